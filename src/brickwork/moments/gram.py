"""Second moments in a stream: XᵀX and XᵀY, float32 (or any type) in, float64 sums."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from brickwork.devices import DeviceLike
from brickwork.errors import BadData

_PIECE = 4096  # rows summed in float32 before the sum goes on in float64
_BLOCK = 2048  # rows of a Gram matrix computed at once: bounds the temporary beside the float64 sum


@dataclass
class Moments:
    """Sums over all rows seen: the Gram matrix of the inputs, their products with the responses, both sums.

    Every sum may have one leading axis: the groups of a grouped convolution, each with its own rows.
    """

    gram: Tensor  # (…, d, d)
    cross: Tensor  # (…, d, m)
    sum_x: Tensor  # (…, d)
    sum_y: Tensor  # (…, m)
    sum_yy: Tensor  # (…, m) squares of the responses
    rows: float = 0.0

    @classmethod
    def empty(cls, inputs: int, outputs: int, device: DeviceLike = "cpu", *, groups: int | None = None) -> Moments:
        """Nothing seen yet.

        >>> seen = Moments.empty(2, 1)
        >>> seen.add(torch.eye(2), torch.ones(2, 1)).gram.tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        lead = () if groups is None else (groups,)
        shapes = [(inputs, inputs), (inputs, outputs), (inputs,), (outputs,), (outputs,)]
        gram, cross, *sums = (torch.zeros(lead + s, dtype=torch.float64, device=device) for s in shapes)
        return cls(gram, cross, sums[0], sums[1], sums[2])

    def add(self, x: Tensor, y: Tensor) -> Moments:
        """Take in rows of inputs x (…, n, d) and responses y (…, n, m)."""
        if x.shape[:-1] != y.shape[:-1]:
            raise BadData(f"inputs are {tuple(x.shape)} and responses {tuple(y.shape)}; their rows must be paired")
        for start in range(0, x.shape[-1], _BLOCK):
            self.gram[..., start : start + _BLOCK, :] += product(x[..., start : start + _BLOCK], x)
        self.sum_x += column_sums(x)
        self.rows += x.shape[-2]
        return self.add_responses(x, y)

    def add_responses(self, x: Tensor, y: Tensor) -> Moments:
        """Take in the responses of rows whose inputs have been taken in."""
        self.cross += product(x, y)
        return self.add_sums(y)

    def add_sums(self, y: Tensor) -> Moments:
        self.sum_y += column_sums(y)
        self.sum_yy += column_sums(y, squared=True)
        return self

    def responses_alone(self) -> Moments:
        """Empty, for responses of rows whose inputs are not to be taken in again: `with_responses` puts them beside these."""
        cross, sum_y, sum_yy = (torch.zeros_like(t) for t in (self.cross, self.sum_y, self.sum_yy))
        return Moments(self.gram.new_zeros(0), cross, self.sum_x.new_zeros(0), sum_y, sum_yy)

    def with_responses(self, other: Moments) -> Moments:
        """The same inputs, with these responses."""
        return replace(self, cross=other.cross, sum_y=other.sum_y, sum_yy=other.sum_yy)

    def plus(self, other: Moments) -> Moments:
        """The moments of both sets of rows."""
        mine, theirs = vars(self), vars(other)
        return Moments(**{k: mine[k] + theirs[k] for k in mine})

    def scaled(self, factor: float) -> Moments:
        return Moments(**{k: v * factor for k, v in vars(self).items()})

    @property
    def finite(self) -> bool:
        return all(bool(torch.isfinite(t).all()) for t in (self.gram, self.cross, self.sum_yy))


def product(a: Tensor, b: Tensor) -> Tensor:
    """aᵀb summed in pieces short enough that float32 sums stay accurate, then in float64."""
    if a.dtype == torch.float64:
        return a.mT @ b
    total = torch.zeros(*a.shape[:-2], a.shape[-1], b.shape[-1], dtype=torch.float64, device=a.device)
    for start in range(0, a.shape[-2], _PIECE):
        # a product of half-precision numbers would be rounded to (or overflow) half precision itself
        total += a[..., start : start + _PIECE, :].float().mT @ b[..., start : start + _PIECE, :].float()
    return total


def column_sums(x: Tensor, *, squared: bool = False) -> Tensor:
    """Sums over the rows of x (…, n, d), or of its squares, in float64; in pieces, that no copy of all rows is made."""
    total = torch.zeros(*x.shape[:-2], x.shape[-1], dtype=torch.float64, device=x.device)
    for piece in x.split(_PIECE, -2):
        total += (piece.double().square() if squared else piece.double()).sum(-2)
    return total
