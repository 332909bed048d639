"""Modules of joined networks: parts that run side by side on their own channels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from brickwork.blueprint.record import pick_output


class Parts(nn.Module):
    """Several layers in lock-step: each reads its own channels of the input, outputs stand side by side.

    A run of neighbouring channels is sliced, any other set gathered.

    >>> left, right = nn.Linear(2, 1, bias=False), nn.Linear(1, 2, bias=False)
    >>> both = Parts([left, right], [torch.tensor([0, 1]), torch.tensor([2])], total=3, dim=-1)
    >>> both(torch.ones(5, 3)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self, layers: Sequence[nn.Module], reads: Sequence[Tensor | None], total: int, dim: int,
        order: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.parts = nn.ModuleList(layers)
        self.total, self.dim = total, dim
        self.spans: list[tuple[int, int] | None] = []
        for k, index in enumerate(reads):
            run = index is not None and (len(index) == 1 or bool((index.diff() == 1).all()))
            self.spans.append((int(index[0]), len(index)) if run else None)  # type: ignore[index, arg-type]
            self.register_buffer(f"index{k}", None if run else index)
        self.register_buffer("order", order)  # the outputs' order, where it is not part behind part

    def reads(self, k: int, x: Tensor) -> Tensor:
        span, index = self.spans[k], getattr(self, f"index{k}")
        if span is not None:
            return x.narrow(self.dim, *span)
        return x if index is None else x.index_select(self.dim, index)

    def forward(self, x: Tensor) -> Tensor:
        outputs = torch.cat([layer(self.reads(k, x)) for k, layer in enumerate(self.parts)], self.dim)
        return outputs if self.order is None else outputs.index_select(self.dim, self.order)

    def extra_repr(self) -> str:
        return f"{self.total} channels along axis {self.dim}"


class Branches(nn.Module):
    """Whole networks side by side on one input; their outputs are concatenated along the class axis."""

    def __init__(self, models: Sequence[nn.Module], outputs: Sequence[str | int | None] | None = None) -> None:
        super().__init__()
        self.branches = nn.ModuleList(models)
        self.outputs = list(outputs) if outputs is not None else [None] * len(models)

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        results = [
            pick_output(model(*args, **kwargs), which)
            for model, which in zip(self.branches, self.outputs, strict=True)
        ]
        return torch.cat(results, 1)
