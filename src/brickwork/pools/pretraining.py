"""Pools trained together with a network: the kernels follow those that choose them, and the unused start anew (paper 4)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.copying import copy_module
from brickwork.data.datasets import unpacked
from brickwork.data.images import ImageData
from brickwork.data.streamed import Images
from brickwork.devices import DeviceLike
from brickwork.options import takes
from brickwork.origin import attach, origin_of
from brickwork.pools.codebook_weight import CodebookWeight
from brickwork.pools.layers import outputs_of, replace_head
from brickwork.pools.options import PretrainOptions
from brickwork.pools.pool import KernelPool, made_facts
from brickwork.pools.search import Search
from brickwork.pools.task import labelled
from brickwork.training import train

SMOOTH = 1e-5  # of a count, so that no entry is divided by nothing
RECORDED = ("epochs", "lr", "commitment", "decay", "seed")


@takes(PretrainOptions)
def pretrain(
    model: nn.Module,
    data: ImageData | Images,
    labels: Any = None,
    *,
    classes: Sequence[str] | int | None = None,
    device: DeviceLike | None = None,
    progress: bool = True,
    options: PretrainOptions,
) -> KernelPool:
    """A pool whose codebooks are trained with a copy of `model`, which becomes the base; the model is left unchanged.

    data: an ImageData, whose training split is used, or images with `labels`. Begins with k-means of the model's kernels,
    so a trained network needs a few epochs only. Every `refresh` steps each kernel moves to the running mean (`decay`) of
    the temporary kernels that choose it; every `revive` steps those that none chooses start anew from ones in use.

    >>> from brickwork import data, zoo
    >>> digits = data.load("digits:0-2@20", size=8, channels=1)
    >>> net = zoo.build("lenet", num_classes=3, in_channels=1, seed=0)
    >>> pretrain(net, digits, size=16, epochs=1, device="cpu", progress=False)
    KernelPool(lenet: 4 layers of up to 16 kernels, 2,328 bytes)
    """
    data, labels, classes = unpacked(data, labels, classes)  # type: ignore[arg-type]
    images, names = labelled(data, labels, classes)
    size, group, seed = options.size, options.group, options.seed
    pool = KernelPool.cluster([model], size=size, group=group, head=options.head, seed=seed)
    student = copy_module(model).cpu().requires_grad_(True)
    known = origin_of(model).classes
    if outputs_of(student, pool.head) != len(names) or (known is not None and known != names):
        replace_head(student, pool.head, len(names), seed=seed)
    attach(student, replace(origin_of(student), classes=names))
    search = Search(student, pool, None, commitment=options.commitment, refresh=options.refresh)
    books = MovingCodebooks(search, decay=options.decay, revive=options.revive, seed=seed)
    train(
        student,
        data,
        labels,
        classes=names,
        device=device,
        progress=progress,
        before_step=books.step,
        **options.training(),
    )
    search.finish()
    student.cpu()
    layers = {name: chosen.book.detach().cpu() for name, chosen in search.layers.items()}
    facts = made_facts("pretrain", [model], options, RECORDED) | {"images": len(images), "revived": books.revived}
    return KernelPool.of(student, layers, pool.shapes, pool.head, size=size, group=group, facts=facts)


class MovingCodebooks:
    """Codebooks that follow a search: running counts and sums for each of their entries."""

    def __init__(self, search: Search, *, decay: float, revive: int, seed: int) -> None:
        self.search, self.decay, self.revive = search, decay, revive
        self.draw = torch.Generator().manual_seed(seed)
        self.counts: dict[str, Tensor] = {}
        self.sums: dict[str, Tensor] = {}
        self.revived = 0

    def step(self, step: int, steps: int) -> None:
        """Before a training step: choose, then move."""
        due = step % self.search.refresh == 0
        if due:
            for chosen in self.search.layers.values():
                chosen.fresh = False  # the codebook has moved since
        self.search.step(step, steps)
        if not due:
            return
        for name, chosen in self.search.layers.items():
            vectors = chosen.vectors(self.search.temporary(name))
            self._follow(name, chosen, vectors)
            # the very end is left to settle
            if step and step % self.revive == 0 and step < 0.8 * steps:
                self._revive(name, chosen, vectors)
            chosen.use(chosen.index)

    def _follow(self, name: str, chosen: CodebookWeight, vectors: Tensor) -> None:
        sums = torch.zeros_like(chosen.book, dtype=torch.float64).index_add_(0, chosen.index, vectors.double())
        ones = torch.ones(len(vectors), dtype=torch.float64, device=vectors.device)
        counts = torch.zeros(len(chosen.book), dtype=torch.float64, device=vectors.device)
        counts.index_add_(0, chosen.index, ones)
        if name not in self.counts:
            self.counts[name], self.sums[name] = counts, sums
        else:
            self.counts[name].lerp_(counts, 1 - self.decay)
            self.sums[name].lerp_(sums, 1 - self.decay)
        used = self.counts[name] > SMOOTH
        means = self.sums[name] / self.counts[name].clamp(min=SMOOTH)[:, None]
        chosen.book.copy_(torch.where(used[:, None], means.to(chosen.book.dtype), chosen.book))

    def _revive(self, name: str, chosen: CodebookWeight, vectors: Tensor) -> None:
        """Entries that hardly any kernel chooses take the place of ones that are badly served."""
        dead = (self.counts[name] < 0.03 * min(1.0, len(vectors) / len(chosen.book))).nonzero()[:, 0]
        if not len(dead):
            return
        self.revived += len(dead)
        error = (vectors - chosen.book[chosen.index]).square().sum(1)
        worst = error.topk(min(4 * len(dead), len(error))).indices
        some = worst[torch.randperm(len(worst), generator=self.draw)[: len(dead)].to(worst.device)]
        dead = dead[: len(some)]
        chosen.book[dead] = vectors[some]
        self.counts[name][dead] = 1.0
        self.sums[name][dead] = vectors[some].double()
