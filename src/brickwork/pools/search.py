"""The search beside a training run: which kernels the network uses, chosen anew every few steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from brickwork.errors import RequestError, UnknownName
from brickwork.pools.pool import KernelPool
from brickwork.pools.straight import Chosen
from brickwork.pools.task import Task

HARD_FROM = 0.7  # of an annealed run: from here on the network is used exactly as the pool's kernels


class Search:
    """Temporary kernels in every pooled layer of `model` (changed in place until `finish`).

    refresh: choose anew every so many steps. stay: an index of `old` is kept until another kernel is closer by `stay` ×
    the layer's usual squared distance of neighbours. changes: at most so many indices leave `old`, those that gain most.
    free: for this share of the run the temporary kernels are used as they are.
    """

    def __init__(
        self,
        model: nn.Module,
        pool: KernelPool,
        old: Task | None,
        *,
        beta: float = 0.5,
        refresh: int = 1,
        stay: float = 0.0,
        anneal: bool = False,
        scale: bool = False,
        residual: Collection[str] = (),
        changes: int | None = None,
        free: float = 0.0,
    ) -> None:
        for name, value, good, allowed in (
            ("beta", beta, beta >= 0, "0 or more"),
            ("refresh", refresh, refresh >= 1, "1 or more"),
            ("stay", stay, stay >= 0, "0 or more"),
            ("changes", changes, changes is None or changes >= 0, "0 or more"),
            ("free", free, 0 <= free < 1, "0 or more and below 1"),
        ):
            if not good:
                raise RequestError(f"{name} is {value}; it must be {allowed}.")
        if (stay or changes is not None) and old is None:
            raise RequestError("stay and a budget need a task to stay with; start from one, or from the pool's base.")
        for name in residual:
            if name not in pool.layers:
                raise UnknownName("layer of the pool", name, pool.layers)
            if name not in pool.residual:
                raise RequestError(f"the pool has no second codebook for {name!r}; make it with residual=SIZE.")
        self.model, self.refresh, self.stay, self.anneal, self.changes = model, refresh, stay, anneal, changes
        self.free = free
        self.layers: dict[str, Chosen] = {}
        self.weights: dict[str, float] = {}  # what a squared distance of the layer counts for
        self.started = False
        self.places: list[nn.Module] = []  # where the kernels are used; a weight that two layers share, in both
        keep = old if (stay or changes is not None) else None
        for name, layer in pool.shapes.items():
            module = model.get_submodule(name)
            weight = module.weight
            assert isinstance(weight, Tensor)
            chosen = Chosen(
                weight,
                pool.layers[name],
                beta=beta,
                scaled=scale,
                soft=anneal or free > 0,
                second=pool.residual[name] if name in residual else None,
                old=None if keep is None else keep.codes[name],
            )
            for place in [m for m in model.modules() if m._parameters.get("weight") is weight]:
                parametrize.register_parametrization(place, "weight", chosen, unsafe=True)
                self.places.append(place)
            self.layers[name] = chosen
            # of the energy of one filter: what a norm behind the layer leaves of the change
            energy = float(weight.detach().square().mean()) * weight[0].numel()
            self.weights[name] = 1 / max(energy, 1e-20) if layer.count else 0.0

    def step(self, step: int, steps: int) -> None:
        """Before a training step."""
        if self.anneal or self.free:
            soft = max(0.0, 1 - (step + 1) / (HARD_FROM * steps)) if self.anneal else 0.0
            if step < self.free * steps:
                soft = 1.0
            for chosen in self.layers.values():
                chosen.softness.fill_(soft)
        if step % self.refresh == 0 or not self.started:
            self.choose()

    @torch.no_grad()
    def choose(self) -> None:
        """Choose kernels for the weights as they are now."""
        self.started = True
        found, gains = {}, {}
        for name, chosen in self.layers.items():
            weight = self.temporary(name)
            index = chosen.assign(weight)
            if chosen.old is not None:
                gain = chosen.gain(weight, index)
                index = torch.where(gain > self.stay * chosen.unit, index, chosen.old)
                if self.changes is not None:
                    gains[name] = torch.where(index == chosen.old, 0.0, gain * self.weights[name])
            found[name] = index
        if self.changes is not None:
            self._limit(found, gains, self.changes)
        for name, chosen in self.layers.items():
            chosen.take(self.temporary(name), found[name])

    def _limit(self, found: dict[str, Tensor], gains: Mapping[str, Tensor], changes: int) -> None:
        """Only the changes that gain most, over all layers; no number leaves the device."""
        every = torch.cat(list(gains.values()))
        if changes >= len(every):
            return
        place = len(every) - changes
        # a GPU sorts a million numbers sooner than it selects among them
        least = every.sort().values[place - 1] if every.is_cuda else every.kthvalue(place).values
        for name, gain in gains.items():
            old = self.layers[name].old
            assert old is not None
            found[name] = torch.where(gain > least, found[name], old)

    def temporary(self, name: str) -> Tensor:
        """The temporary kernels of a layer."""
        return self.model.get_submodule(name).parametrizations.weight.original  # type: ignore[union-attr, return-value]

    def finish(self) -> None:
        """The model is an ordinary one again, its weights the temporary kernels."""
        for place in self.places:
            parametrize.remove_parametrizations(place, "weight", leave_parametrized=False)

    @property
    def codes(self) -> dict[str, Tensor]:
        """The indices that are in use."""
        return {name: chosen.index for name, chosen in self.layers.items()}

    @property
    def extra(self) -> dict[str, Tensor]:
        """Indices into the second codebooks."""
        return {name: c.more for name, c in self.layers.items() if c.more is not None}

    @property
    def scales(self) -> dict[str, float]:
        return {name: float(c.scale) for name, c in self.layers.items() if c.scaled}
