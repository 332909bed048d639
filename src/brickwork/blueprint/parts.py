"""Modules of joined networks: parts that run side by side on their own channels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from brickwork.copying import copy_module, keep_modes
from brickwork.errors import BadModel
from brickwork.origin import attach, origin_of
from brickwork.outputs import logits_of


class Parts(nn.Module):
    """Several layers in lock-step: each reads its own channels of the input, outputs stand side by side.

    A run of neighbouring channels is sliced, any other set gathered.

    >>> left, right = nn.Linear(2, 1, bias=False), nn.Linear(1, 2, bias=False)
    >>> both = Parts([left, right], [torch.tensor([0, 1]), torch.tensor([2])], total=3, dim=-1)
    >>> both(torch.ones(5, 3)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        reads: Sequence[Tensor | None],
        total: int,
        dim: int,
        order: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({str(k): layer for k, layer in enumerate(layers)})
        self.total, self.dim = total, dim
        for k, index in enumerate(reads):
            self.register_buffer(f"index{k}", index)
        self.order: Tensor | None
        self.register_buffer("order", order)  # the outputs' order, where it is not part behind part
        self.settle()

    def settle(self) -> None:
        """After a cut: drop parts of which nothing is left; note which parts read a run of neighbours."""
        for key in [k for k, layer in self.parts.items() if any(p.numel() == 0 for p in layer.parameters())]:
            del self.parts[key]
            delattr(self, f"index{key}")
        self.spans: dict[str, tuple[int, int] | None] = {}
        for key in self.parts:
            index = getattr(self, f"index{key}")
            if index is not None and not index.is_meta:
                run = len(index) == 1 or bool((index.diff() == 1).all())
                self.spans[key] = (int(index[0]), len(index)) if run else None
        self.total = sum(
            len(getattr(self, f"index{key}")) for key in self.parts if getattr(self, f"index{key}") is not None
        )

    def reads(self, key: str, x: Tensor) -> Tensor:
        index, span = getattr(self, f"index{key}"), self.spans.get(key)
        if index is None:
            return x
        if span is not None and not x.is_meta:  # a recording sees the index itself, so that it can be cut
            return x.narrow(self.dim, *span)
        return x.index_select(self.dim, index)

    def forward(self, x: Tensor) -> Tensor:
        outputs = torch.cat([layer(self.reads(key, x)) for key, layer in self.parts.items()], self.dim)
        return outputs if self.order is None else outputs.index_select(self.dim, self.order)

    def extra_repr(self) -> str:
        return f"{self.total} channels along axis {self.dim}"


class Branches(nn.Module):
    """Whole networks side by side on one input; their outputs are concatenated along the class axis, `dim`."""

    def __init__(
        self, models: Sequence[nn.Module], outputs: Sequence[str | int | None] | None = None, *, dim: int = 1
    ) -> None:
        super().__init__()
        self.branches = nn.ModuleList(models)
        self.outputs = list(outputs) if outputs is not None else [None] * len(models)
        self.dim = dim

    def forward(self, x: Tensor | None = None, *more: Tensor, **named: Tensor) -> Tensor:
        given = more if x is None else (x, *more)  # x by name, so that exporters can speak of its batch axis
        results = [
            logits_of(model(*given, **named), which, guess=False)
            for model, which in zip(self.branches, self.outputs, strict=True)
        ]
        return torch.cat(results, self.dim)


class RescaledInput(nn.Module):
    """A network that was trained on images normalised in another way: each channel is rescaled first.

    >>> net = RescaledInput(nn.Identity(), (2.0,), (1.0,))
    >>> net(torch.ones(1, 1, 1, 1)).item()
    3.0
    """

    def __init__(self, model: nn.Module, scale: Sequence[float], shift: Sequence[float]) -> None:
        super().__init__()
        self.model = model
        like = next(model.parameters(), torch.empty(0))
        self.scale: Tensor
        self.shift: Tensor
        for name, values in (("scale", scale), ("shift", shift)):
            numbers = torch.tensor(values, dtype=like.dtype, device=like.device).reshape(-1, 1, 1)
            self.register_buffer(name, numbers)

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x * self.scale + self.shift)


def rescale_input(model: nn.Module, scale: Sequence[float], shift: Sequence[float]) -> RescaledInput:
    """A network that reads x · scale + shift, channel by channel, where `model` read x; recorded for replay."""
    new = RescaledInput(copy_module(model), scale, shift)
    step = {"op": "rescale_input", "scale": [float(v) for v in scale], "shift": [float(v) for v in shift]}
    attach(new, origin_of(model).after(step))
    new.train(model.training)
    keep_modes(new.model, model)
    return new


def zero_linear(width: int, outputs: int, *, like: nn.Module) -> nn.Linear:
    """A linear layer of zeros, of a module's precision and device; drawing weights would move the caller's generator."""
    number = next((p for p in like.parameters() if p.is_floating_point()), torch.empty(0))
    layer = nn.utils.skip_init(nn.Linear, width, outputs, dtype=number.dtype, device=number.device)
    for values in layer.parameters():
        nn.init.zeros_(values)
    return layer


class MoreClasses(nn.Module):
    """A classifier with further classes that are combinations of its own logits: [f, Θf + b]; f itself is untouched.

    >>> net = MoreClasses(nn.Identity(), 3, 2)
    >>> net(torch.ones(4, 3)).shape
    torch.Size([4, 5])
    """

    def __init__(self, model: nn.Module, known: int, new: int) -> None:
        super().__init__()
        self.model = model
        self.more = zero_linear(known, new, like=model)

    def forward(self, x: Tensor | None = None, *more: Tensor, **named: Tensor) -> Tensor:
        logits = logits_of(self.model(*(more if x is None else (x, *more)), **named))
        return torch.cat([logits, self.more(logits)], 1)


def more_classes(model: nn.Module, known: int, new: int, names: Sequence[str] | None = None) -> MoreClasses:
    """A copy of `model` with room for new classes behind its `known` ones (weights zero); recorded for replay."""
    grown = MoreClasses(copy_module(model), known, new)
    classes = {} if names is None else {"classes": tuple(names)}
    attach(grown, origin_of(model).after({"op": "add_classes", "known": known, "new": new}, **classes))
    grown.train(model.training)
    keep_modes(grown.model, model)
    return grown


class WiderOutput(nn.Module):
    """The last layer of a classifier with further classes beside its own, which are computed as before.

    >>> WiderOutput(nn.Linear(4, 3), 2)(torch.ones(5, 4)).shape
    torch.Size([5, 5])
    """

    def __init__(self, layer: nn.Linear, new: int) -> None:
        super().__init__()
        self.known = layer
        self.more = zero_linear(layer.in_features, new, like=layer)

    def forward(self, input: Tensor) -> Tensor:  # named as in the layer it stands for
        return torch.cat([self.known(input), self.more(input)], -1)


def widen_output(model: nn.Module, path: str, new: int, names: Sequence[str] | None = None) -> nn.Module:
    """A copy of `model` whose last layer has room for new classes (weights zero); recorded for replay."""
    grown = copy_module(model)
    layer = grown.get_submodule(path)
    if not isinstance(layer, nn.Linear):
        raise BadModel(f"{path} is a {type(layer).__name__}; only a linear last layer can be widened.")
    grown.set_submodule(path, WiderOutput(layer, new))
    classes = {} if names is None else {"classes": tuple(names)}
    attach(grown, origin_of(model).after({"op": "widen_output", "layer": path, "new": new}, **classes))
    return grown
