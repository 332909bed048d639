"""Deltas: what training added, g = θ_A − θ_0, and where it is added (paper 1)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.algebra.agreement import refuse_differences
from brickwork.algebra.alignment import measured
from brickwork.algebra.options import AssignOptions, BatchNormOptions
from brickwork.algebra.plan import STATISTICS
from brickwork.algebra.states import like, state_of
from brickwork.atomic import write_file
from brickwork.data.pixels import Images
from brickwork.errors import BadFile, BadModel, RequestError
from brickwork.html_table import facts_table
from brickwork.options import takes
from brickwork.store.weights import state_hash, tensors_of, tied_names, write_safetensors
from brickwork.tensor_file import SEAL, read_marked, warn_unverified
from brickwork.words import counted

FORMAT = "brickwork.delta/1"


@dataclass(frozen=True, eq=False)
class Delta:
    """Floating tensors by name. Deltas add, subtract, scale and negate; `base` is the hash of what it was taken from."""

    tensors: Mapping[str, Tensor] = field(repr=False)
    base: str | None = None  # None once deltas of different bases were combined
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __add__(self, other: Delta) -> Delta:
        _same_names(self.tensors, other.tensors, ("one delta", "the other"))
        added = {n: t + other.tensors[n] for n, t in self.tensors.items()}
        return Delta(added, self.base if self.base == other.base else None)

    def __sub__(self, other: Delta) -> Delta:
        return self + (-other)

    def __neg__(self) -> Delta:
        return self * -1.0

    def __mul__(self, factor: float) -> Delta:
        return replace(self, tensors={n: t * factor for n, t in self.tensors.items()})

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Delta:
        return self * (1 / divisor)

    @property
    def options(self) -> None:
        """A difference has no options."""

    @property
    def provenance(self) -> dict[str, Any]:
        """The networks it was taken from, by hash."""
        return {"command": "delta", "inputs": {"initial": self.base}, **self.facts}

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without the tensors."""
        return {
            "tensors": {n: list(self.tensors[n].shape) for n in sorted(self.tensors)},
            "norm": self.norm(),
            **self.provenance,
        }

    def _repr_html_(self) -> str:
        return facts_table([("delta", str(self)), ("base", self.base or "several")])

    def norm(self) -> float:
        return math.fsum(float(t.double().square().sum()) for t in self.tensors.values()) ** 0.5

    def dot(self, other: Delta) -> float:
        _same_names(self.tensors, other.tensors, ("one delta", "the other"))
        return float(sum((t.double() * other.tensors[n].double()).sum() for n, t in self.tensors.items()))

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """A safetensors file that knows its base."""
        notes = {"format": FORMAT, "base": self.base or "", "facts": json.dumps(dict(self.facts))}
        with write_file(path, force=force) as draft:
            write_safetensors({n: t.contiguous() for n, t in self.tensors.items()}, draft, notes, sealed=True)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Delta:
        """The delta of a file; one that was written before deltas carried a hash is read with a warning."""
        path = Path(path)
        header = read_marked(path, FORMAT, "is not a delta; brickwork delta TRAINED INITIAL makes one")
        notes, tensors = dict(header.metadata), tensors_of(header)
        if notes.pop(SEAL, None) is None:
            if set(notes) - {"format", "base", "facts"}:
                raise BadFile(f"{path} is damaged: the hash it was written with is not there.")
            warn_unverified(path)
        try:
            return cls(tensors, notes["base"] or None, dict(json.loads(notes.get("facts", "{}"))))
        except (KeyError, ValueError, TypeError, RecursionError) as error:
            raise BadFile(f"{path} is damaged: what it says of its networks cannot be read ({error}).") from error

    def __str__(self) -> str:
        numbers = sum(t.numel() for t in self.tensors.values())
        return f"Delta of {counted(len(self.tensors), 'tensor')}, {counted(numbers, 'number')}, norm {self.norm():.4g}"


def delta(trained: nn.Module | Mapping[str, Tensor], initial: nn.Module | Mapping[str, Tensor]) -> Delta:
    """g = θ_A − θ_0 (Eq. 5), in float32 or wider; integer buffers have no part in it.

    >>> g = delta({"w": torch.tensor([3.0])}, {"w": torch.tensor([1.0])})
    >>> (2 * g).tensors["w"], assign({"w": torch.tensor([1.0])}, g)["w"]
    (tensor([4.]), tensor([3.]))
    """
    after, before = state_of(trained, "the trained network"), state_of(initial, "the initial one")
    _same_names(after, before, ("the trained network", "the initial one"))
    result = {}
    for name, value in after.items():
        if value.is_floating_point():
            wide = torch.promote_types(torch.promote_types(value.dtype, before[name].dtype), torch.float32)
            result[name] = value.detach().to(wide) - before[name].detach().to(wide).to(value.device)
    _finite(result)
    return Delta(result, state_hash(dict(before)), {"trained": state_hash(dict(after))})


@takes(AssignOptions)
def assign(model: Any, g: Delta, alpha: float = 1.0, *, images: Images | None = None, options: AssignOptions) -> Any:
    """θ + αg (Eq. 6), as a new network (or dictionary, as given); the one given is left unchanged.

    images: some hundred unlabelled ones, on which batch-norm statistics are measured. bn: how ("recalibrate", in batches;
    "batch", as one); without images they move by αg like everything else ("linear") or stay ("keep"), and a variance that
    would become negative is refused.
    strict: refuse a delta that was taken from another network than this one (paper 1 assigns to any).

    >>> g = delta({"w": torch.tensor([3.0])}, {"w": torch.tensor([1.0])})
    >>> assign({"w": torch.tensor([10.0])}, g, alpha=0.5)["w"]
    tensor([11.])
    """
    bn = options.statistics(images=images is not None)
    _finite_factor("`alpha` is", alpha)
    state = state_of(model, "the network")
    if not isinstance(g, Delta):
        raise RequestError(f"`g` is a {type(g).__name__}; it must be a Delta, as brickwork.delta gives one.")
    if options.strict and g.base is not None and g.base != state_hash(dict(state)):
        raise BadModel(
            f"the delta was taken from a network with hash {g.base[:16]}, and this one has {state_hash(dict(state))[:16]}."
        )
    _same_names({n: t for n, t in state.items() if t.is_floating_point()}, g.tensors, ("the network", "the delta"))
    tied, moved = tied_names(dict(state)), {}
    for name, value in state.items():
        statistic = name.rpartition(".")[2] in STATISTICS
        if not value.is_floating_point() or (statistic and bn != "linear"):
            moved[name] = value.detach().clone()
            continue
        if name in tied:
            continue
        step = g.tensors[name].to(value.device)
        wide = torch.promote_types(value.dtype, step.dtype)
        moved[name] = (value.detach().to(wide) + alpha * step.to(wide)).to(value.dtype)
        _refuse_negative(name, moved[name])
    moved |= {name: moved[first] for name, first in tied.items()}
    _finite(moved)
    facts = {"assign": {"alpha": alpha, "bn": bn, "delta_of": g.base}}
    return measured(like(model, {name: moved[name] for name in state}, facts), images, bn)


@takes(BatchNormOptions)
def combine(terms: Any, *, images: Images | None = None, options: BatchNormOptions) -> Any:
    """Σ α_i θ_i of networks of one architecture, unnormalised: fusion θ_n + αθ_A (Eq. 7), αθ_A + βθ_B (appendix).

    terms: (factor, network or dictionary) pairs; the first gives what is not added: integers, statistics with bn="keep".
    images, bn: as in `assign`.
    """
    bn = options.statistics(images=images is not None)
    pairs = [(float(factor), model) for factor, model in terms]
    if not pairs:
        raise RequestError("there is nothing to combine; give (factor, network) pairs.")
    for factor, _ in pairs:
        _finite_factor("`terms` hold", factor)
    start = pairs[0][1]
    first = state_of(start, "the first network")
    zero = {n: torch.zeros_like(t) if t.is_floating_point() else t for n, t in first.items()}
    total = sum((factor * delta(model, zero) for factor, model in pairs[1:]), pairs[0][0] * delta(start, zero))
    floating = dict(total.tensors)
    if bn != "linear":
        floating |= {n: first[n] for n in floating if n.rpartition(".")[2] in STATISTICS}
    for name, value in floating.items():
        _refuse_negative(name, value)
    _finite(floating)
    state = {n: floating[n].to(t.dtype) if n in floating else t.clone() for n, t in first.items()}
    facts = {"combine": {"factors": [factor for factor, _ in pairs], "bn": bn}}
    return measured(like(start, state, facts), images, bn)


def _finite_factor(who: str, factor: float) -> None:
    if not math.isfinite(factor):
        raise RequestError(f"{who} {factor}; a factor must be a finite number.")


def _refuse_negative(name: str, value: Tensor) -> None:
    if name.endswith("running_var") and bool((value < 0).any()):
        raise BadModel(
            f"{name} would become {float(value.min()):.3g}, and a variance cannot be negative; give images, on which it is "
            "measured, or use bn='keep'."
        )


def _same_names(one: Mapping[str, Tensor], two: Mapping[str, Tensor], who: tuple[str, str]) -> None:
    shapes = ({n: tuple(t.shape) for n, t in state.items()} for state in (one, two))
    refuse_differences(dict(zip(who, shapes, strict=True)))


def _finite(tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise BadModel(f"{name} has values that are NaN or infinite.")
