"""The pool: a frozen codebook of kernels for each layer of a network, from which tasks choose."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.devices import DeviceLike
from brickwork.errors import BadModel
from brickwork.html_table import rows_table
from brickwork.lazy import Elsewhere
from brickwork.options import Options
from brickwork.origin import Origin, origin_of
from brickwork.pools.arguments import same_arguments
from brickwork.pools.growth import Growth, grow, versions_of
from brickwork.pools.layers import PoolLayer, find_layers, outputs_of, same_layers, weight_of
from brickwork.pools.nearest import nearest
from brickwork.pools.norms import eps_of, rounded_variance, with_statistics_of
from brickwork.pools.options import ClusterOptions, CodebookOptions, PretrainOptions, restored
from brickwork.pools.rebuilding import bare, rebuilt
from brickwork.pools.streams import neighbours
from brickwork.pools.task import PoolTask, rounded
from brickwork.store import state_hash
from brickwork.store.weights import check_finite, state_of, tied_names
from brickwork.words import counted, sides


@dataclass(frozen=True, eq=False)
class KernelPool:
    """Codebooks (K, length), one per layer, by the layer's name; `base` is the network they were made from.

    >>> from brickwork import zoo
    >>> pool = KernelPool.cluster([zoo.build("lenet", seed=0)], size=16)
    >>> pool
    KernelPool(lenet: 4 layers of up to 16 kernels, 3,328 bytes)
    >>> pool.rebuild(pool.base).fc3.out_features
    10
    """

    layers: Mapping[str, Tensor] = field(repr=False)
    shapes: Mapping[str, PoolLayer] = field(repr=False)
    head: str
    origin: Origin
    template: nn.Module = field(repr=False)  # the network without values of its own
    size: int = 512  # of a codebook, as it was asked for
    group: int = 1  # scalars of 1×1 and linear layers in a vector, as it was asked for
    tied: Mapping[str, str] = field(default_factory=dict, repr=False)
    base: PoolTask | None = field(default=None, repr=False)
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)  # how it was made; JSON values
    grown: tuple[Mapping[str, int], ...] = ()  # kernels that were added to layers, growth after growth
    _neighbours: dict[tuple[str, int], np.ndarray] = field(default_factory=dict, repr=False)

    cluster = Elsewhere("brickwork.pools.clustering", "cluster")  # k-means of the kernels of networks, no training
    pretrain = Elsewhere("brickwork.pools.pretraining", "pretrain")  # codebooks trained together with a network

    @classmethod
    def of(
        cls,
        model: nn.Module,
        layers: Mapping[str, Tensor],
        shapes: Mapping[str, PoolLayer],
        head: str,
        *,
        size: int,
        group: int = 1,
        facts: Mapping[str, Any] | None = None,
    ) -> KernelPool:
        """A pool of these codebooks whose base is `model`, each kernel by its nearest."""
        state = state_of(model)
        check_finite(state, "cannot make a pool")
        pool = cls(
            layers=layers,
            shapes=shapes,
            head=head,
            origin=origin_of(model),
            template=bare(model),
            size=size,
            group=group,
            tied=tied_names(state),
            facts=facts or {},
        )
        return replace(pool, base=pool.task_of(model))

    @property
    def options(self) -> CodebookOptions | None:
        """How it was made, where that is on record."""
        kinds: dict[str | None, type[CodebookOptions]] = {"cluster": ClusterOptions, "pretrain": PretrainOptions}
        kind = kinds.get(self.facts.get("made"))
        own = {"size": self.size, "group": self.group, "head": self.head}
        return None if kind is None else restored(kind, self.facts, **own)

    @property
    def provenance(self) -> dict[str, Any]:
        """What it was made from, by hash, and how."""
        inputs = {f"network {k}": hashed for k, hashed in enumerate(self.facts.get("sources", ()))}
        return {"command": f"pool {self.facts.get('made')}", "inputs": inputs, "hash": self.hash, **self.facts}

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the pool, without tasks, as a pool folder; see `PoolFolder` for tasks."""
        from brickwork.pools.folder import PoolFolder

        return PoolFolder.create(folder, self, force=force).path

    @classmethod
    def load(cls, folder: str | Path, *, arch: Any = None) -> KernelPool:
        """The pool of a folder; arch: as in `brickwork.load`."""
        from brickwork.pools.folder import PoolFolder

        return PoolFolder.open(folder, arch=arch).pool

    @property
    def head_weight(self) -> str:
        """The name of the head's weight in a state dict."""
        return f"{self.head}.weight" if self.head else "weight"

    @property
    def size_bytes(self) -> int:
        """Of all codebooks."""
        return sum(t.numel() * t.element_size() for t in self.layers.values())

    def neighbours(self, name: str) -> np.ndarray:
        """From each kernel of a layer's codebook the others by their distance (K, K−1)."""
        key = name, len(self.layers[name])  # shared with the pool as it was and will be
        if key not in self._neighbours:
            self._neighbours[key] = neighbours(self.layers[name].numpy())
        return self._neighbours[key]

    @property
    def short(self) -> dict[str, int]:
        """Layers whose codebook is smaller than was asked for, because they have no more distinct kernels."""
        return {name: len(book) for name, book in self.layers.items() if len(book) < self.size}

    @functools.cached_property
    def versions(self) -> dict[str, dict[str, int]]:
        """The pool as it was made and after every growth: its hash then, and the kernels of each layer."""
        return versions_of(self)

    @property
    def hash(self) -> str:
        """sha256 of the codebooks and of what they are for; tasks carry it."""
        return next(reversed(self.versions))

    def grown_by(self, growth: Growth) -> KernelPool:
        """The pool with new kernels behind its own, as `learn` and `encode` bring them; this one is left as it is.

        Every task stays as it was: no index changes its meaning.
        """
        return grow(self, growth)

    def at(self, version: str) -> KernelPool:
        """The pool as it was when this was its hash."""
        if version == self.hash:
            return self
        place = list(self.versions).index(version)
        sizes = self.versions[version]
        earlier = replace(
            self, layers={name: book[: sizes[name]] for name, book in self.layers.items()}, grown=self.grown[:place]
        )
        vars(earlier)["versions"] = dict(list(self.versions.items())[: place + 1])
        return earlier

    def for_task(self, task: PoolTask) -> KernelPool:
        """The pool as it was when the task was made, with the kernels that it brings; refused where it is of another."""
        if task.pool in self.versions:
            return self.at(task.pool)
        if task.brings is not None and task.brings.after in self.versions:
            return self.at(task.brings.after).grown_by(task.brings)
        raise BadModel(
            f"the task was learned with pool {task.pool[:12]} and this is pool {self.hash[:12]}; open the pool it "
            "belongs to, as it is now if it has grown since."
        )

    def check_reference(self, task: PoolTask) -> None:
        """Refuse a task to start from, or to stay with, that uses kernels which the pool does not have."""
        if task.pool not in self.versions:
            raise BadModel(
                f"the task to start from is of pool {task.pool[:12]}, and this is pool {self.hash[:12]}; if it brought new "
                "kernels, use the pool that has them: pool.grown_by(task.brings), or that of a folder the task was added to."
            )

    def task_of(
        self,
        model: nn.Module,
        *,
        codes: Mapping[str, Tensor] | None = None,
        bits: int = 16,
        reference: PoolTask | None = None,
        fold: bool = False,
        **more: Any,
    ) -> PoolTask:
        """A network of this architecture as a task: every kernel by its nearest, unless `codes` says which.

        bits: of a value of norms and head. fold: batch norms are stored with the reference's statistics, the same function
        from half as many numbers.
        """
        self.check(model)
        if codes is None:
            codes = {
                n: nearest(weight_of(model, n).reshape(-1, s.length), self.layers[n].to(weight_of(model, n)))
                for n, s in self.shapes.items()
            }
        mine = {self.shapes[name].parameter for name in self.shapes}
        mine |= {alias for alias, name in self.tied.items() if name in mine}
        own = {
            name: value.detach().cpu().clone()
            for name, value in model.state_dict().items()
            if name not in mine and name not in self.tied and ".parametrizations." not in name
        }
        if fold and reference is not None:
            own = with_statistics_of(model, own, reference.own)
        for name, value in own.items():
            # a counter of steps decides nothing in evaluation, and would cost bytes
            if name.endswith("num_batches_tracked"):
                own[name] = torch.zeros_like(value)
            elif name.endswith("running_var"):
                own[name] = rounded_variance(value, bits, eps_of(model, name))
            else:
                own[name] = rounded(value, bits)
        return PoolTask(
            pool=self.hash,
            origin=self._origin_for(origin_of(model), outputs_of(model, self.head)),
            codes={n: codes[n].detach().cpu().int() for n in self.shapes},
            own=own,
            precision=bits,
            reference=reference,
            **more,
        )

    def rebuild(self, task: PoolTask, *, device: DeviceLike = "cpu") -> nn.Module:
        """The task's network: an ordinary module, in evaluation mode, the same bits every time."""
        return rebuilt(self, task).to(device)

    def weight(self, task: PoolTask, name: str) -> Tensor:
        """A layer's dense weight, in memory of its own."""
        book, codes = self.layers[name], task.codes.get(name)
        layer = self.shapes[name]
        if codes is None or len(codes) != layer.count:
            count = "none" if codes is None else f"{len(codes)}"
            raise BadModel(f"the task is of another network: {name} has {layer.count} kernels, and it names {count}.")
        return book.index_select(0, codes).reshape(layer.shape)  # several times as fast as book[codes]

    def check(self, model: nn.Module) -> None:
        """Refuse a network that this pool has no kernels for, or that would be rebuilt as another, by what differs."""
        known = {name for name, _ in model.named_modules()}
        if self.head not in known:
            raise BadModel(
                f"the network has no layer {self.head!r}, which is the head of the pool's; it is of another "
                "architecture. Make a pool from it."
            )
        same_layers(self.shapes, find_layers(model, self.head, self.group))
        outputs = outputs_of(self.template, self.head), outputs_of(model, self.head)
        same_arguments(self.origin, origin_of(model), outputs)
        self._check_tied(model)
        mine = next(iter(self.layers.values())).dtype
        if other := {p.dtype for p in model.parameters() if p.is_floating_point()} - {mine}:
            raise BadModel(
                f"the network is {kinds_of(other)} and the pool's kernels are {kinds_of({mine})}; convert the network "
                "first, as model.float() does."
            )

    def _check_tied(self, model: nn.Module) -> None:
        """Refuse a network with two tensors where the pool's has one: a task holds one of them, and the other would go."""
        state = {k: v for k, v in model.state_dict().items() if not (v.is_meta or k.endswith("num_batches_tracked"))}
        for layer in self.shapes.values():  # whether these are one is known from the layers
            state.pop(layer.parameter, None)
        for alias, name in self.tied.items():
            if alias in state and name in state and not torch.equal(state[alias], state[name]):
                raise BadModel(
                    f"{alias} and {name} are one tensor in the pool's network and two in this one, with other values; tie "
                    "them first, or make a pool from this network."
                )

    def _origin_for(self, origin: Origin, classes: int) -> Origin:
        """The record of a network of this architecture with so many classes."""
        args = dict(origin.args)
        word = "num_labels" if "num_labels" in args else "num_classes"
        plain = origin.arch is not None and not origin.steps and not origin.parts
        if plain and (word in args or classes != outputs_of(self.template, self.head)):
            args[word] = classes
        return replace(origin, args=args, provenance={})

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without the kernels."""
        return {
            "hash": self.hash,
            "arch": self.origin.arch,
            "layers": {name: list(book.shape) for name, book in self.layers.items()},
            "short": self.short,
            "head": self.head,
            "made": dict(self.facts),
        }

    def _repr_html_(self) -> str:
        rows = [
            [name, sides(layer.shape), f"{len(self.layers[name])} of {layer.length}"]
            for name, layer in self.shapes.items()
        ]
        return rows_table(["layer", "weight", "kernels"], rows, lines=[repr(self)])

    def __repr__(self) -> str:
        most = max(len(book) for book in self.layers.values())
        grown = f", grown {counted(len(self.grown), 'time')}" if self.grown else ""
        return (
            f"KernelPool({self.origin.arch or type(self.template).__name__}: {len(self.layers)} layers of up to "
            f"{most} kernels, {self.size_bytes:,} bytes{grown})"
        )


def made_facts(made: str, models: Sequence[nn.Module], options: Options, recorded: Sequence[str]) -> dict[str, Any]:
    """What is kept of how a pool was made: its networks by hash, and options that a pool does not know itself."""
    changed = {
        name: value for name, value in options.changed().items() if name not in ("size", "group", "head", "record")
    }
    kept = {name: getattr(options, name) for name in recorded} | changed
    return {"made": made, "networks": len(models), "sources": [state_hash(model) for model in models], **kept}


def kinds_of(kinds: set[torch.dtype]) -> str:
    """Names of types of numbers."""
    return " and ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
