"""What several layers of a network answer, as one row an image; and a classifier with further classes made of that."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.blueprint.parts import zero_linear
from brickwork.copying import copy_module, keep_modes
from brickwork.errors import BadModel
from brickwork.origin import attach, origin_of
from brickwork.outputs import logits_of
from brickwork.prediction import eval_mode

PLACES = 4  # depths of a network whose maps have one size


class DeeperClasses(nn.Module):
    """A classifier with further classes behind its own: [f, Θd + b], d the `pooled` answers of some layers; f is untouched.

    >>> net = DeeperClasses(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), ["0"], 4, 1)
    >>> net(torch.ones(5, 3)).shape
    torch.Size([5, 3])
    """

    def __init__(self, model: nn.Module, layers: Sequence[str], width: int, new: int) -> None:
        super().__init__()
        self.model, self.layers = model, tuple(layers)
        self.more = zero_linear(width, new, like=model)

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        with watched(self.model, self.layers) as seen:
            logits = logits_of(self.model(*args, **kwargs))
        answers = [seen[name] for name in self.layers]
        rows = pooled(answers)
        # its width says which axis held the channels when it was made
        if rows.shape[1] != self.more.in_features:
            rows = _rows(answers, not _channels_last([answer.shape for answer in answers]))
        return torch.cat([logits, self.more(rows)], 1)


def deeper_classes(
    model: nn.Module, layers: Sequence[str], width: int, new: int, names: Sequence[str] | None = None
) -> DeeperClasses:
    """A copy of `model` with room for new classes (weights zero) made of what `layers` answer; recorded for replay."""
    absent = [name for name in layers if name not in dict(model.named_modules())]
    if absent:
        raise BadModel(f"the model has no layer {absent[0]!r}.")
    grown = DeeperClasses(copy_module(model), layers, width, new)
    classes = {} if names is None else {"classes": tuple(names)}
    step = {"op": "deeper_classes", "layers": list(layers), "width": width, "new": new}
    attach(grown, origin_of(model).after(step, **classes))
    grown.train(model.training)
    keep_modes(grown.model, model)
    return grown


@contextmanager
def watched(model: nn.Module, layers: Sequence[str], *, copied: bool = False) -> Iterator[dict[str, Tensor]]:
    """While inside, a call of the model leaves the answers of these layers here (of one that runs twice, the last).

    copied: as they were given, whatever is written over them behind the layer. Other threads' calls leave nothing here.
    """
    seen: dict[str, Tensor] = {}
    thread = 0 if torch.compiler.is_compiling() else get_ident()

    def watch(name: str) -> Any:
        def hook(_module: nn.Module, _given: Any, out: Tensor) -> None:
            # torch.compile cannot ask for the thread
            if torch.compiler.is_compiling() or get_ident() == thread:
                seen[name] = out.clone() if copied else out

        return model.get_submodule(name).register_forward_hook(hook)

    hooks = [watch(name) for name in layers]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def pooled(answers: Sequence[Tensor]) -> Tensor:
    """One row an image: of maps (B, C, H, W) the largest and the mean of every channel, of tokens (B, T, C) likewise.

    Maps are read as (B, H, W, C) where all of them are square that way round and not the other.

    >>> pooled([torch.arange(8.0).reshape(1, 2, 2, 2), torch.ones(1, 3)])
    tensor([[3.0000, 7.0000, 1.5000, 5.5000, 1.0000, 1.0000, 1.0000]])
    """
    return _rows(answers, _channels_last([answer.shape for answer in answers]))


def _rows(answers: Sequence[Tensor], channels_last: bool) -> Tensor:
    rows: list[Tensor] = []
    for answer in answers:
        if answer.dim() == 2:
            rows.append(answer)
            continue
        last = answer.dim() == 3 or channels_last
        over = tuple(range(1, answer.dim() - 1) if last else range(2, answer.dim()))
        rows += [answer.amax(over), answer.mean(over)]
    return torch.cat(rows, 1)


def _channels_last(shapes: Sequence[torch.Size]) -> bool:
    maps = [shape for shape in shapes if len(shape) == 4]
    return all(shape[1] == shape[2] for shape in maps) and any(shape[2] != shape[3] for shape in maps)


def _order(shape: torch.Size, image: torch.Size) -> bool | None:
    """Whether a map has its channels last: its places are to each other as the image's sides. None: cannot be told."""

    def unlike(height: int, width: int) -> float:
        return abs(math.log(height * image[-1] / (width * image[-2])))

    last, first = unlike(shape[1], shape[2]), unlike(shape[2], shape[3])
    return None if last == first else last < first


def several_depths(model: nn.Module, images: Tensor) -> list[str]:
    """Layers at several depths: the last one of every size of map; of tokens, evenly from the blocks.

    Maps are (B, C, H, W) or (B, H, W, C): of a network that has both, those of the order in which more sizes end.
    """
    shapes: dict[str, torch.Size] = {}  # in the order in which they answered

    def note(name: str) -> Any:
        def hook(module: nn.Module, given: Any, out: Any) -> None:
            shapes.pop(name, None)  # the last call counts
            if any(out is value for value in given):  # hands on what it is given
                return
            if not isinstance(out, Tensor) or out.dim() not in (3, 4) or not out.is_floating_point():
                return
            # one answer an image, not one a window; shares of attention are no map
            if len(out) == len(images) and not isinstance(module, nn.Softmax):
                shapes[name] = out.shape

        return hook

    modules = [(name, module) for name, module in model.named_modules() if name]
    hooks = [module.register_forward_hook(note(name)) for name, module in modules]
    try:
        with eval_mode(model), torch.no_grad():
            model(images)
    finally:
        for hook in hooks:
            hook.remove()
    if not shapes:
        raise BadModel("no layer of the model answers with maps or tokens; use on='features' or on='logits'.")
    chosen = _last_of_each_size(shapes, images.shape)
    if len(chosen) < PLACES - 1:
        chosen = _evenly(shapes)
    as_pooled = _channels_last([shapes[name] for name in chosen])
    for name in chosen:
        if len(shapes[name]) == 4 and _order(shapes[name], images.shape) not in (as_pooled, None):
            raise BadModel(
                f"which axis of {name}'s maps {tuple(shapes[name])} holds the channels cannot be told from images of "
                f"{images.shape[-2]} x {images.shape[-1]}; use square images, on='features' or on='logits'."
            )
    return chosen


def _last_of_each_size(shapes: dict[str, torch.Size], image: torch.Size) -> list[str]:
    """The last map of every size, all of one order of axes: the one in which more sizes end."""
    orders = {name: _order(shape, image) for name, shape in shapes.items() if len(shape) == 4}
    ends = {shapes[name][1:3] if last else shapes[name][2:]: last for name, last in orders.items()}
    main = sum(last is True for last in ends.values()) > sum(last is False for last in ends.values())
    alike = [name for name, last in orders.items() if last in (main, None)]
    result = {shapes[name][1:3] if main else shapes[name][2:]: name for name in alike}
    return sorted(result.values(), key=list(shapes).index)


def _evenly(shapes: dict[str, torch.Size]) -> list[str]:
    """Layers spread over those that answer in the usual shape."""
    every = list(shapes.values())
    usual = max(every, key=every.count)
    common = [name for name, shape in shapes.items() if shape == usual]
    # the outermost level at which there are enough: blocks, not what is inside them
    for depth in range(1 + max(name.count(".") for name in common)):
        level = [name for name in common if name.count(".") == depth]
        if len(level) >= PLACES:
            return [level[round(k * (len(level) - 1) / PLACES)] for k in range(1, PLACES + 1)]
    return common[-PLACES:]
