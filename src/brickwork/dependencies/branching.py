"""Further classes from a branch of a network: its last layers once more, to be trained, beside the ones that stay."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from brickwork.blueprint.parts import zero_linear
from brickwork.blueprint.splitting import Above, Place, around, places, split
from brickwork.copying import copy_module
from brickwork.dependencies.depths import several_depths, watched
from brickwork.errors import BadModel, RequestError
from brickwork.origin import attach, origin_of
from brickwork.outputs import logits_of


class BranchedClasses(nn.Module):
    """A classifier with further classes behind its own: [f, g(h)], h what a layer of f answers, g the branch; f stays.

    The classifier itself is never in training mode: its batch norms keep their statistics whatever the branch learns.
    """

    def __init__(self, model: nn.Module, at: str, branch: Above) -> None:
        super().__init__()
        self.model, self.at, self.branch = model, at, branch

    def train(self, mode: bool = True) -> BranchedClasses:
        super().train(mode)
        self.model.eval()
        return self

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        inputs = [*args, *kwargs.values()]
        if len(inputs) != 1:
            raise RequestError(
                f"a network with a branch takes images and nothing else, and was given {len(inputs)} inputs; its branch "
                "would not know of the others."
            )
        with watched(self.model, [self.at], copied=True) as seen:
            logits = logits_of(self.model(*args, **kwargs))
        return torch.cat([logits, logits_of(self.branch(seen[self.at], image=inputs[0]))], 1)


def branched_classes(
    model: nn.Module, at: str, head: str, new: int, names: Sequence[str] | None = None
) -> BranchedClasses:
    """A copy of `model` with a second copy of all behind the layer `at`, which ends in new classes (weights of `head` zero).

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> branched_classes(net, "1", "4", 3)(torch.ones(5, 3)).shape
    torch.Size([5, 5])
    """
    branch = split(model, at).above
    last = branch.net.get_submodule(head)
    if not isinstance(last, nn.Linear):
        kind = type(model.get_submodule(head))
        raise BadModel(
            f"the last layer {head!r} is {kind.__module__}.{kind.__name__}, not a plain nn.Linear, so it cannot be "
            "branched; use on='features'."
        )
    branch.net.set_submodule(head, zero_linear(last.in_features, new, like=last))
    grown = BranchedClasses(copy_module(model), at, branch)
    classes = {} if names is None else {"classes": tuple(names)}
    step = {"op": "branched_classes", "at": at, "head": head, "new": new}
    attach(grown, origin_of(model).after(step, **classes))
    grown.train(model.training)
    return grown


def branching_place(model: nn.Module, images: Tensor, head: str) -> str:
    """Where to branch off: behind the deepest of several depths with a convolution left to learn; without any, any layer.

    Where something else goes past a depth, as inside a residual block, the nearest place before it counts.
    """
    advice = "no place to branch off was found in this network; use on='features' or on='depths'"
    try:
        known = places(model)
    except BadModel as error:
        raise BadModel(f"{advice}: {error}") from error
    inner_first = sorted(known.values(), key=lambda place: -place.name.count("."))
    clean = {place.position: place for place in inner_first if place.clean}  # of several the outermost
    candidates: list[Place] = []
    for depth in reversed(several_depths(model, images)):
        here, end = known.get(depth), -1
        if here is None:  # inside of a layer that is followed as a whole: what is before that
            whole = next((known[name] for name in around(depth) if name in known), None)
            end = whole.position - 1 if whole is not None else -1
        elif here.clean:
            candidates.append(here)
        else:
            end = here.position
        before = [position for position in clean if position <= end]
        if before:
            candidates.append(clean[max(before)])
    axes = {name: values.dim() for name, values in model.named_parameters()}
    for least in (3, 2):
        for place in candidates:
            if any(
                axes[name] >= least for name in axes if _is_used(name, place.behind) and not name.startswith(f"{head}.")
            ):
                return place.name
    if candidates:
        raise BadModel(f"nothing but {head} can learn behind the layers of this network; use on='features'.")
    raise BadModel(f"{advice}.")


def _is_used(parameter: str, used: frozenset[str]) -> bool:
    """By its own name, or as one of a module that is."""
    return parameter in used or any(name in used for name in around(parameter))
