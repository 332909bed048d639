"""One vector for several tasks, and for every task a mask of one bit per number: base + scale · mask · vector.

EMR-Merging (Huang et al. 2024, arXiv 2405.17461): the vector has, number by number, the sign that the networks' differences to
their base agree on and the largest of the values with that sign. A task's mask leaves out the numbers on which it went the
other way, and one scale per task brings what is left to the size of its own difference.
TALL masks (Wang et al. 2024, arXiv 2405.07813): the vector is the sum of the differences. A task's mask keeps the numbers of
which its own difference is at least a share of what the others add; there is no scale. What two tasks or more keep makes one
network for all (Consensus Merging, the same paper).
No image is looked at, and nothing is trained. Batch-norm statistics, which are few and no directions, are kept whole for every
task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.algebra.deltas import delta
from brickwork.algebra.options import MaskOptions
from brickwork.algebra.plan import STATISTICS
from brickwork.algebra.states import like, state_of
from brickwork.atomic import write_file
from brickwork.errors import BadFile, BadModel, RequestError
from brickwork.html_table import facts_table
from brickwork.options import takes
from brickwork.store.weights import state_hash, tensors_of, tied_names, write_safetensors
from brickwork.tensor_file import SEAL, read_marked
from brickwork.words import counted

FORMAT = "brickwork.masks/1"


@dataclass(frozen=True, eq=False)
class MaskedMerge:
    """What `mask_merge` makes; `network(base, k)` is the network of task k."""

    vector: Mapping[str, Tensor] = field(repr=False)
    masks: tuple[Tensor, ...] = field(repr=False)  # a task each: bits of all numbers in the order of `vector`, packed
    scales: tuple[float, ...]
    statistics: tuple[Mapping[str, Tensor], ...] = field(repr=False)  # a task each, whole
    base: str  # hash of what the networks were trained from
    models: tuple[str, ...] = ()  # hashes of the networks
    options: MaskOptions = field(default_factory=MaskOptions)

    def network(self, base: nn.Module, task: int) -> nn.Module:
        """A new network for one task, from the base it was made with; any other is refused."""
        if not 0 <= task < len(self.masks):
            raise RequestError(f"task is {task}; it must be from 0 to {len(self.masks) - 1}.")
        bits = np.unpackbits(self.masks[task].numpy()).astype(bool)
        return self._network(base, bits, self.scales[task], self.statistics[task], {"task": task})

    def consensus(self, base: nn.Module, *, at_least: int = 2, scale: float = 1.0) -> nn.Module:
        """One new network for all tasks: the numbers of the vector that so many masks keep, times a scale.

        Batch-norm statistics are the mean of the tasks'; `brickwork.repair` measures them on images.
        """
        if not 1 <= at_least <= len(self.masks):
            raise RequestError(f"at_least is {at_least}; it must be from 1 to {len(self.masks)}, the number of tasks.")
        if not np.isfinite(scale):
            raise RequestError(f"scale is {scale}; it must be a finite number.")
        count = np.stack([np.unpackbits(mask.numpy()) for mask in self.masks]).sum(0, dtype=np.int64)
        names = self.statistics[0]
        mean = {n: torch.stack([kept[n].double() for kept in self.statistics]).mean(0).to(names[n]) for n in names}
        return self._network(base, count >= at_least, scale, mean, {"consensus": at_least, "scale": scale})

    def _network(
        self, base: nn.Module, bits: np.ndarray, scale: float, statistics: Mapping[str, Tensor], how: dict[str, Any]
    ) -> nn.Module:
        state = state_of(base, "the base")
        found = state_hash(dict(state))
        if found != self.base:
            raise BadModel(
                f"the masks belong to a base with hash {self.base[:16]}, and this one has {found[:16]}; give the network that "
                "they were made with."
            )
        moved: dict[str, Tensor] = {n: t.detach().clone() for n, t in state.items()}
        start = 0
        for name, step in self.vector.items():
            mask = torch.from_numpy(bits[start : start + step.numel()].copy()).reshape(step.shape)
            start += step.numel()
            value = state[name].detach()
            wide = torch.promote_types(value.dtype, step.dtype)
            added = scale * torch.where(mask, step, 0).to(wide)
            moved[name] = (value.to(wide) + added.to(value.device)).to(value.dtype)
        for name, value in statistics.items():
            moved[name] = value.to(moved[name])
        moved |= {name: moved[first] for name, first in tied_names(dict(state)).items()}
        return like(base, {n: moved[n] for n in state}, {"masks": {**how, **self.to_dict()}})

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors: the vector, and what each task has of its own."""
        own = [t for kept in self.statistics for t in kept.values()]
        return sum(t.numel() * t.element_size() for t in (*self.vector.values(), *self.masks, *own))

    @property
    def provenance(self) -> dict[str, Any]:
        return {"command": "mask_merge", "inputs": {"base": self.base, "models": list(self.models)}}

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without the tensors."""
        return {**self.options.to_dict(), "scales": list(self.scales), "bytes": self.nbytes, **self.provenance}

    def __str__(self) -> str:
        numbers = sum(t.numel() for t in self.vector.values())
        each = len(self.masks[0]) + sum(t.numel() * t.element_size() for t in self.statistics[0].values())
        return f"{counted(len(self.masks), 'task')} on one vector of {numbers:,} numbers, {each:,} bytes more per task"

    def _repr_html_(self) -> str:
        scales = ", ".join(f"{s:.3f}" for s in self.scales)
        return facts_table([("masks", str(self)), ("scales", scales), ("base", self.base)])

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """A safetensors file that knows its base."""
        tensors = {f"vector/{n}": t for n, t in self.vector.items()}
        tensors |= {f"mask/{k}": bits for k, bits in enumerate(self.masks)}
        tensors |= {f"statistics/{k}/{n}": t for k, kept in enumerate(self.statistics) for n, t in kept.items()}
        facts = {"base": self.base, "models": self.models, "order": list(self.vector), "scales": self.scales}
        text = json.dumps({**facts, "options": self.options.to_dict()})
        with write_file(path, force=force) as draft:
            write_safetensors(tensors, draft, {"format": FORMAT, "facts": text}, sealed=True)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> MaskedMerge:
        """What `save` wrote; a file that holds something else, or was changed, is refused."""
        path = Path(path)
        header = read_marked(path, FORMAT, "is no file of masks; MaskedMerge.save makes one")
        if SEAL not in header.metadata:
            raise BadFile(f"{path} is damaged: the hash it was written with is not there.")
        tensors = tensors_of(header)
        try:
            facts = json.loads(header.metadata["facts"])
            vector = {str(name): tensors[f"vector/{name}"] for name in facts["order"]}
            scales = tuple(map(float, facts["scales"]))
            masks = tuple(tensors[f"mask/{k}"] for k in range(len(scales)))
            needed = -(-sum(t.numel() for t in vector.values()) // 8)
            if any(m.dtype != torch.uint8 or m.shape != (needed,) for m in masks):
                raise ValueError("a mask of another length than its vector")
            kept = tuple(
                {n.split("/", 2)[2]: t for n, t in tensors.items() if n.startswith(f"statistics/{k}/")}
                for k in range(len(scales))
            )
            hashes = str(facts["base"]), tuple(map(str, facts["models"]))
            options = MaskOptions.from_dict(facts.get("options", {}))  # files written before 18 November 2026 have none
            return cls(vector, masks, scales, kept, *hashes, options)
        except (KeyError, ValueError, TypeError, RecursionError) as error:
            raise BadFile(f"{path} is damaged: what it says of its tasks cannot be read ({error}).") from error


@takes(MaskOptions)
def mask_merge(models: Sequence[nn.Module], *, base: nn.Module, options: MaskOptions) -> MaskedMerge:
    """Several networks as one vector and a mask each; what is given is left unchanged.

    >>> base, a, b = (nn.Linear(3, 2).double() for _ in range(3))
    >>> both = mask_merge([a, b], base=base)
    >>> alone = mask_merge([a], base=base).network(base, 0)  # of one network it is that network
    >>> len(both.masks), bool((alone.weight - a.weight).abs().max() < 1e-12)
    (2, True)
    """
    if not models:
        raise RequestError("there is nothing to merge; give one model or more.")
    steps = [delta(model, base) for model in models]
    tied = tied_names(dict(state_of(base, "the base")))
    plain = [n for n in steps[0].tensors if n.rpartition(".")[2] not in STATISTICS and n not in tied]
    vector = {}
    bits: list[list[np.ndarray]] = [[] for _ in models]
    lengths, left = [0.0] * len(models), [0.0] * len(models)
    for name in plain:
        each = torch.stack([g.tensors[name].cpu() for g in steps])
        vector[name], masks = (_emr if options.rule == "emr" else partial(_tall, options.threshold))(each)
        for k, (own, mask) in enumerate(zip(each, masks, strict=True)):
            bits[k].append(mask.reshape(-1).numpy())
            lengths[k] += float(own.double().abs().sum())
            left[k] += float(vector[name].double().abs()[mask].sum())
    states = [state_of(model, f"model {k}") for k, model in enumerate(models)]
    kept = tuple(
        {n: state[n].detach().cpu().clone() for n in steps[0].tensors if n.rpartition(".")[2] in STATISTICS}
        for state in states
    )
    return MaskedMerge(
        vector,
        tuple(torch.from_numpy(np.packbits(np.concatenate(own))) for own in bits),
        tuple(length / rest if rest else 0.0 for length, rest in zip(lengths, left, strict=True))
        if options.rule == "emr"
        else (1.0,) * len(models),
        kept,
        str(steps[0].base),
        tuple(state_hash(dict(state)) for state in states),
        options,
    )


def _emr(each: Tensor) -> tuple[Tensor, Tensor]:
    """Of the differences of all tasks (tasks, …): one vector, and a mask per task."""
    sign = each.double().sum(0).sign()
    vector = torch.where(each.sign() == sign, each.abs(), 0).amax(0) * sign.to(each)
    return vector, each * vector > 0


def _tall(threshold: float, each: Tensor) -> tuple[Tensor, Tensor]:
    vector = each.double().sum(0).to(each)
    return vector, each.abs() >= threshold * (vector - each).abs()
