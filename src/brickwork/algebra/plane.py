"""The plane of networks that α and β span: θ(α, β) = offset + α · first + β · second, tensor by tensor."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from brickwork.algebra.agreement import refuse_differences
from brickwork.algebra.plan import STATISTICS
from brickwork.copying import copy_module
from brickwork.store import state_hash

Cell = tuple[float, float]  # α, β


class Plane:
    """αa + βb, or θ₀ + α(a − θ₀) + β(b − θ₀); `model` is a copy of a on the device, for its structure.

    bn="linear": batch-norm statistics are combined like the rest, a variance below 0 counting as 0; "keep": they are the
    base's, or a's, in every cell; "recalibrate": those of `measured`, which has to be of the cells asked for; "batch": none.

    >>> a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    >>> plane = Plane(a, b, None, bn="linear", where=torch.device("cpu"))
    >>> plane.formula, plane.at("weight", [(1.0, 0.0), (0.5, 0.5)]).shape
    ('αa + βb', torch.Size([2, 2, 2]))
    """

    def __init__(
        self, a: nn.Module, b: nn.Module | None, base: nn.Module | None, *, bn: str, where: torch.device
    ) -> None:
        states = {"a": a.state_dict()}
        states |= {"b": b.state_dict()} if b is not None else {}
        states |= {"base": base.state_dict()} if base is not None else {}
        refuse_differences({n: {k: tuple(t.shape) for k, t in s.items()} for n, s in states.items()})
        self.hashes = {name: state_hash(dict(state)) for name, state in states.items()}
        self.model = copy_module(a).to(where).eval()
        self.bn, self.where = bn, where
        self.measured: dict[str, Tensor] = {}  # statistics of the cells at hand, (cells, channels)
        self.formula = "θ₀ + α(a − θ₀)" if base is not None else "αa"
        self.formula += (" + β(b − θ₀)" if base is not None else " + βb") if b is not None else ""
        zero = states.get("base")
        self.kept = self.model.state_dict()
        self.parts: dict[str, tuple[Tensor | None, Tensor, Tensor | None]] = {}
        for name, value in states["a"].items():
            statistic = name.rpartition(".")[2] in STATISTICS
            if not value.is_floating_point() or (bn != "linear" and statistic):
                if bn == "keep" and statistic and zero is not None:
                    self.kept[name].copy_(zero[name])
                continue
            wide = torch.promote_types(value.dtype, torch.float32)
            first = value.detach().to(where, wide)
            second = states["b"][name].detach().to(where, wide) if b is not None else None
            offset = None
            if zero is not None:
                offset = zero[name].detach().to(where, wide)
                first, second = first - offset, None if second is None else second - offset
            self.parts[name] = offset, first, second

    def at(self, name: str, cells: Sequence[Cell]) -> Tensor:
        """A tensor in these cells, (cells, …); what does not change with α and β is repeated without a copy."""
        if name in self.measured:
            return self.measured[name]
        if name not in self.parts:
            value = self.kept[name]
            return value.expand(len(cells), *value.shape)
        value = self._sum(name, cells)
        return value.clamp_(min=0) if name.endswith("running_var") else value

    def negative(self, cells: Sequence[Cell]) -> int:
        """How many cells have a variance below 0."""
        wrong = torch.zeros(len(cells), dtype=torch.bool, device=self.where)
        for name in self.parts:
            if name.endswith("running_var"):
                wrong |= (self._sum(name, cells) < 0).flatten(1).any(1)
        return int(wrong.sum())

    def _sum(self, name: str, cells: Sequence[Cell]) -> Tensor:
        offset, first, second = self.parts[name]
        factors = torch.tensor(cells, dtype=first.dtype).to(first.device)
        shape = (len(cells), *[1] * first.dim())
        value = first * factors[:, 0].reshape(shape)
        if offset is not None:
            value += offset
        if second is not None:
            value.addcmul_(second.expand_as(value), factors[:, 1].reshape(shape))
        return value
