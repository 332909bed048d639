"""The pool: a frozen codebook of kernels for each layer of a network, from which tasks choose."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.devices import pick
from brickwork.errors import BadModel, RequestError
from brickwork.origin import Origin, origin_of
from brickwork.pools.clusters import k_means
from brickwork.pools.layers import PoolLayer, find_layers, head_of, outputs_of, same_layers, weight_of
from brickwork.pools.nearest import nearest
from brickwork.pools.norms import with_statistics_of
from brickwork.pools.rebuilding import bare, rebuilt
from brickwork.pools.streams import neighbours
from brickwork.pools.task import Task, rounded
from brickwork.progress import bar
from brickwork.store import state_hash
from brickwork.store.weights import check_finite, state_of, tied_names


@dataclass(frozen=True, eq=False)
class KernelPool:
    """Codebooks (K, length), one a layer, by the layer's name; `base` is the network they were made from.

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
    residual: Mapping[str, Tensor] = field(
        default_factory=dict, repr=False
    )  # codebooks of what one kernel leaves
    tied: Mapping[str, str] = field(default_factory=dict, repr=False)
    base: Task | None = field(default=None, repr=False)
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _neighbours: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    @classmethod
    def cluster(
        cls,
        models: Sequence[nn.Module] | nn.Module,
        *,
        size: int = 512,
        group: int = 1,
        residual: int = 0,
        head: str | None = None,
        images: Any = None,
        seed: int = 0,
        device: str | torch.device | None = "cpu",
        progress: bool = False,
    ) -> KernelPool:
        """k-means of every layer's kernels over one or several networks of one architecture; no training, no images.

        size: kernels in a codebook; a layer with fewer distinct ones gets those (see `short`).
        group: how many scalars of 1×1 and linear layers make a vector. residual: size of a second codebook for what the
        first leaves, 0 for none. The first network, said in the pool's kernels, is `base`: each kernel by its nearest, or,
        with (unlabelled) images, by what it does to the network's responses on them.
        """
        models = [models] if isinstance(models, nn.Module) else list(models)
        first = _checked(models, size, group, residual)
        head = head_of(first, head)
        shapes = find_layers(first, head, group)
        for model in models[1:]:
            same_layers(shapes, find_layers(model, head_of(model, head), group))
        where = pick(device)
        layers, second = {}, {}
        with bar("clustering", len(shapes), show=progress) as advance:
            for number, (name, layer) in enumerate(shapes.items()):
                weights = [weight_of(model, name).to(where).reshape(-1, layer.length) for model in models]
                vectors = torch.cat(weights)
                layers[name] = k_means(vectors, size, seed=seed + number).cpu()
                if residual:
                    book = layers[name].to(where)
                    left = vectors - book[nearest(vectors, book)]
                    second[name] = k_means(left, residual, seed=seed + number).cpu()
                advance(1, name)
        facts = {"made": "cluster", "networks": len(models), "seed": seed}
        pool = cls.of(first, layers, shapes, head, size=size, group=group, residual=second, facts=facts)
        if images is None:
            return pool
        from brickwork.pools.encoding import encode

        told = encode(replace(pool, base=None), first, images, seed=seed, device=where, progress=progress)
        return replace(pool, base=told)

    @classmethod
    def pretrain(cls, model: nn.Module, images: Any, labels: Any, **options: Any) -> KernelPool:
        """Codebooks trained together with a network: see `brickwork.pools.pretraining.pretrain`."""
        from brickwork.pools.pretraining import pretrain

        return pretrain(model, images, labels, **options)

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
        residual: Mapping[str, Tensor] | None = None,
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
            residual=residual or {},
            tied=tied_names(state),
            facts=facts or {},
        )
        return replace(pool, base=pool.task_of(model, precision=16))

    @property
    def head_weight(self) -> str:
        """The name of the head's weight in a state dict."""
        return f"{self.head}.weight" if self.head else "weight"

    @property
    def size_bytes(self) -> int:
        """Of all codebooks."""
        return sum(t.numel() * t.element_size() for t in [*self.layers.values(), *self.residual.values()])

    def neighbours(self, name: str) -> np.ndarray:
        """From each kernel of a layer's codebook the others by their distance (K, K−1)."""
        if name not in self._neighbours:
            self._neighbours[name] = neighbours(self.layers[name].numpy())
        return self._neighbours[name]

    @property
    def short(self) -> dict[str, int]:
        """Layers whose codebook is smaller than was asked for, because they have no more distinct kernels."""
        return {name: len(book) for name, book in self.layers.items() if len(book) < self.size}

    @functools.cached_property
    def hash(self) -> str:
        """sha256 of the codebooks and of what they are for; tasks carry it."""
        books = {f"first.{k}": v for k, v in self.layers.items()}
        books |= {f"second.{k}": v for k, v in self.residual.items()}
        said = [self.head, {k: [list(v.shape), v.length] for k, v in self.shapes.items()}, self.origin.arch]
        return hashlib.sha256((json.dumps(said, sort_keys=True) + state_hash(books)).encode()).hexdigest()

    def task_of(
        self,
        model: nn.Module,
        *,
        codes: Mapping[str, Tensor] | None = None,
        precision: int = 16,
        reference: Task | None = None,
        fold: bool = False,
        **more: Any,
    ) -> Task:
        """A network of this architecture as a task: every kernel by its nearest, unless `codes` says which.

        fold: batch norms are told with the reference's statistics, the same function from half as many numbers.
        """
        self.check(model)
        if codes is None:
            codes = {n: nearest(weight_of(model, n).reshape(-1, s.length), self.layers[n].to(weight_of(model, n)))
                     for n, s in self.shapes.items()}  # fmt: skip
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
            own[name] = (
                torch.zeros_like(value) if name.endswith("num_batches_tracked") else rounded(value, precision)
            )
        return Task(
            pool=self.hash,
            origin=self._origin_for(origin_of(model), outputs_of(model, self.head)),
            codes={n: codes[n].detach().cpu().int() for n in self.shapes},
            own=own,
            precision=precision,
            reference=reference,
            **more,
        )

    def rebuild(self, task: Task, *, device: str | torch.device = "cpu") -> nn.Module:
        """The task's network: an ordinary module, in evaluation mode, the same bits every time."""
        return rebuilt(self, task).to(device)

    def weight(self, task: Task, name: str) -> Tensor:
        """A layer's dense weight, in memory of its own."""
        book, codes = self.layers[name], task.codes.get(name)
        layer = self.shapes[name]
        if codes is None or len(codes) != layer.count:
            found = "none" if codes is None else f"{len(codes)}"
            raise BadModel(
                f"the task is of another network: {name} has {layer.count} kernels, and it names {found}."
            )
        vectors = book.index_select(0, codes)  # several times as fast as book[codes]
        if name in task.extra:
            vectors = vectors + self.residual[name].index_select(0, task.extra[name])
        if name in task.scales:
            vectors = vectors * task.scales[name]
        return vectors.reshape(layer.shape)

    def check(self, model: nn.Module) -> None:
        """Refuse a network that this pool has no kernels for, by the layer's name."""
        known = {name for name, _ in model.named_modules()}
        if self.head not in known:
            raise BadModel(f"the network has no layer {self.head!r}, which is the head of the pool's.")
        same_layers(self.shapes, find_layers(model, self.head, self.group))
        mine = next(iter(self.layers.values())).dtype
        if other := {p.dtype for p in model.parameters() if p.is_floating_point()} - {mine}:
            raise BadModel(
                f"the network is {_short(other)} and the pool's kernels are {_short({mine})}; convert the network first, "
                "as model.float() does."
            )

    def _origin_for(self, origin: Origin, classes: int) -> Origin:
        """The record of a network of this architecture with so many classes."""
        args = dict(origin.args)
        word = "num_labels" if "num_labels" in args else "num_classes"
        plain = origin.arch is not None and not origin.steps and not origin.parts
        if plain and (word in args or classes != outputs_of(self.template, self.head)):
            args[word] = classes
        return replace(origin, args=args, provenance={})

    def __repr__(self) -> str:
        most = max(len(book) for book in self.layers.values())
        return (f"KernelPool({self.origin.arch or type(self.template).__name__}: {len(self.layers)} layers of up to "
                f"{most} kernels, {self.size_bytes:,} bytes)")  # fmt: skip


def _checked(models: list[nn.Module], size: int, group: int, residual: int) -> nn.Module:
    if not models:
        raise RequestError("a pool is clustered from one network or more; none was given.")
    for name, value, least in (("size", size, 1), ("group", group, 1), ("residual", residual, 0)):
        if value < least:
            raise RequestError(f"{name} is {value}; it must be {least} or more.")
    kinds = set()
    for model in models:
        check_finite(state_of(model), "cannot make a pool")
        kinds |= {p.dtype for p in model.parameters() if p.is_floating_point()}
    if len(kinds) > 1 or not kinds <= {torch.float32, torch.float64}:
        raise BadModel(
            f"the weights are {_short(kinds)}; a pool is made from networks in float32. "
            "Convert them first, as model.float() does."
        )
    return models[0]


def _short(kinds: set[torch.dtype]) -> str:
    return " and ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
