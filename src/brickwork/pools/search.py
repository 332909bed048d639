"""The search beside a training run: which kernels the network uses, chosen anew every few steps."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from brickwork.errors import RequestError
from brickwork.pools.codebook_weight import CodebookWeight
from brickwork.pools.pool import KernelPool
from brickwork.pools.task import PoolTask


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
        old: PoolTask | None,
        *,
        commitment: float = 0.5,
        refresh: int = 1,
        stay: float = 0.0,
        changes: int | None = None,
        free: float = 0.0,
    ) -> None:
        if (stay or changes is not None) and old is None:
            raise RequestError(
                "`stay` and a `budget` need a task to stay with; start from one, or from the pool's base."
            )
        self.model, self.refresh, self.stay, self.changes, self.free = model, refresh, stay, changes, free
        self.layers: dict[str, CodebookWeight] = {}
        self.weights: dict[str, float] = {}  # what a squared distance of the layer counts for
        self.started = False
        self.users: list[nn.Module] = []  # modules that use the kernels; a weight that two layers share, both
        keep = old if (stay or changes is not None) else None
        for name, layer in pool.shapes.items():
            weight = model.get_submodule(name).weight
            assert isinstance(weight, Tensor)
            old_codes = None if keep is None else keep.codes[name]
            chosen = CodebookWeight(
                weight, pool.layers[name], commitment=commitment, old=old_codes, may_be_free=free > 0
            )
            for user in [m for m in model.modules() if m._parameters.get("weight") is weight]:
                parametrize.register_parametrization(user, "weight", chosen, unsafe=True)
                self.users.append(user)
            self.layers[name] = chosen
            # of the energy of one filter: what a norm behind the layer leaves of the change
            energy = float(weight.detach().square().mean()) * weight[0].numel()
            self.weights[name] = 1 / max(energy, 1e-20) if layer.count else 0.0

    def step(self, step: int, steps: int) -> None:
        """Before a training step."""
        if self.free:
            for chosen in self.layers.values():
                chosen.free.fill_(1.0 if step < self.free * steps else 0.0)
        if step % self.refresh == 0 or not self.started:
            self.choose()

    @torch.no_grad()
    def choose(self) -> None:
        """Choose kernels for the weights as they are now."""
        self.started = True
        indices, gains = {}, {}
        for name, chosen in self.layers.items():
            indices[name], gain = chosen.staying(self.temporary(name), self.stay)
            if self.changes is not None and chosen.old is not None and gain is not None:
                gains[name] = torch.where(indices[name] == chosen.old, 0.0, gain * self.weights[name])
        if self.changes is not None:
            self._limit(indices, gains, self.changes)
        for name, chosen in self.layers.items():
            chosen.use(indices[name])

    def _limit(self, indices: dict[str, Tensor], gains: Mapping[str, Tensor], changes: int) -> None:
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
            indices[name] = torch.where(gain > least, indices[name], old)

    def temporary(self, name: str) -> Tensor:
        """The temporary kernels of a layer."""
        return self.model.get_submodule(name).parametrizations.weight.original  # type: ignore[union-attr, return-value]

    def finish(self) -> None:
        """The model is an ordinary one again, its weights the temporary kernels."""
        for user in self.users:
            parametrize.remove_parametrizations(user, "weight", leave_parametrized=False)

    @property
    def codes(self) -> dict[str, Tensor]:
        """The indices that are in use."""
        return {name: chosen.index for name, chosen in self.layers.items()}
