"""Accuracy against multiply-adds, without training and after a polish: ours, the rule before, and Torch-Pruning's."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork import zoo
from brickwork.blueprint.plan import CLASSES, trace
from brickwork.bricks.choosing import choose
from brickwork.bricks.cut import Cut
from brickwork.bricks.disassembly import repaired
from brickwork.bricks.judge import Judge, logits_on
from brickwork.bricks.narrow_heads import with_open_heads
from brickwork.bricks.options import DisassembleOptions
from brickwork.bricks.polishing import polish
from brickwork.bricks.samples import Samples
from brickwork.bricks.subject import Subject, prepare
from brickwork.bricks.widths import Kept
from brickwork.data.images import ImageData
from brickwork.errors import BrickworkError
from brickwork.moments import reestimate_batch_norm
from brickwork.moments.batches import ImageBatches
from brickwork.origin import origin_of
from brickwork_lab import public_networks
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, averaged, some_of, study

SHARES = (0.75, 0.5, 0.35, 0.25, 0.15)
POLISHED = (0.5, 0.25)
IMAGES = 3000
#: without training, by network and share: (accuracy, the whole's, source)
PUBLISHED = {("resnet50", 0.25): (91.02, 94.99, "ModHiFi, arXiv 2511.19566, 4.07 times fewer multiply-adds")}
REBUILD = "rebuild"
#: what each way uses labels for
LABELS = {REBUILD: "none", "taylor": "to score channels", "l2": "none"}
DEFAULT = (*public_networks.NETWORKS, "vgg16", "resnet50", "vit_small")


@study("prune", paper="")
def prune(
    lab: Lab,
    *,
    archs: Names = None,
    picks: Names = None,
    seeds: int = 3,
    shares: tuple[float, ...] = SHARES,
    minutes: float = 2.0,
) -> Iterator[Row]:
    """Accuracy against multiply-adds without training, and after a polish: public networks and three of ours."""
    ways = some_of(WAYS, picks, "way")
    for arch in lab.archs(archs, DEFAULT):
        bench = Bench(lab, arch, minutes if lab.full else 0.02)
        for name, way in ways.items():
            draws = range(
                seeds if lab.full and name == REBUILD else 1
            )  # other ways: the first draw of the images alone
            at = POLISHED if name == "polished" else shares
            yield from averaged([way(bench, at if lab.full else (0.5,), number) for number in draws])


class Bench:
    """One network, the images it may look at, and how parts of it are judged."""

    def __init__(self, lab: Lab, arch: str, minutes: float) -> None:
        self.lab, self.arch, self.minutes = lab, arch, minutes
        self.net, self.images, self.classes, self.labels = network_and_images(lab, arch)
        self.tested = judge_of(lab, self.net, self.images, self.classes, self.labels)
        self.whole = self.tested(self.net)

    def subject(self, number: int) -> Subject:
        """number: which draw of the calibration images and of those that are held out."""
        pair = self.images.train_images, self.labels[self.images.train_labels]
        return prepare(self.net, self.classes, pair, device=self.lab.where, output=None, seed=self.lab.seed + number)

    def row(self, subject: Subject, way: str, share: float, model: nn.Module, began: float, **facts: Any) -> Row:
        took = round(time.monotonic() - began, 2)
        known: Row = {"what": self.title(way, share), "paper": None, "ours": self.tested(model)}
        published = PUBLISHED.get((self.arch, share))
        if published and way == REBUILD:
            known |= {"paper": published[0], "paper_whole": published[1], "source": published[2]}
        counted, full = trace(model, subject.samples.inputs(np.arange(2))).count(), subject.bp.count()
        known |= {"whole": self.whole, "macs": counted.macs / full.macs}
        known |= {"parameters": counted.parameters / full.parameters}
        if self.lab.where.type == "cuda":
            known["gpu_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
            torch.cuda.reset_peak_memory_stats()
        known |= {"seconds": took, "images": IMAGES, "seed": self.lab.seed}
        return {**known, "arch": self.arch, "way": way, "share": share, **facts}

    def missing(self, way: str, share: float, **why: str) -> Row:
        return {"what": self.title(way, share), "paper": None, "ours": None, "arch": self.arch, **why}

    def title(self, way: str, share: float) -> str:
        return f"{self.arch}, {share:.0%} of the multiply-adds, {way}"


@dataclass
class Cutter:
    """Parts of one network by one way of choosing, on one draw of the images."""

    bench: Bench
    attribution: str
    number: int

    def __post_init__(self) -> None:
        seed = self.bench.lab.seed + self.number
        self.options = DisassembleOptions(of="macs", budget=0.5, attribution=self.attribution, images=IMAGES, seed=seed)
        self.subject = with_open_heads(self.bench.subject(self.number), self.options)
        self.index = self.subject.samples.some(IMAGES, seed)
        spaces = [name for name in self.subject.bp.spaces if name != CLASSES]
        began = time.monotonic()
        self.choice = choose(self.subject, self.options, spaces, self.cut, False)
        self.chose = round(time.monotonic() - began, 2)

    def cut(self, kept: Kept, **how: Any) -> Cut:
        return repaired(self.subject, kept=kept, index=self.index, options=self.options, progress=False, **how)

    def at(self, share: float) -> Cut:
        return self.cut(self.choice.kept(share))


def _cut_rows(bench: Bench, shares: Sequence[float], number: int, *, attribution: str) -> Iterator[Row]:
    cutter = Cutter(bench, attribution, number)
    for share in shares:
        began = time.monotonic()
        try:
            model = cutter.at(share).model
        except BrickworkError as error:
            yield bench.missing(attribution, share, refused=str(error))
            continue
        facts = {"labels": LABELS[attribution], "steps": 0, "chosen_in": cutter.chose}
        yield bench.row(cutter.subject, attribution, share, model, began, **facts)


def _polished_rows(bench: Bench, shares: Sequence[float], number: int) -> Iterator[Row]:
    """Half of the time on the calibration images alone, and all of it on whatever is not held out."""
    cutter = Cutter(bench, REBUILD, number)
    subject = cutter.subject
    judge = Judge(subject.whole, subject.judged, bench.classes, None)
    few = replace(subject, samples=replace(subject.samples, use=cutter.index))
    for share in shares:
        cut = cutter.at(share)
        for taught, minutes in ((few, bench.minutes / 2), (subject, bench.minutes)):
            began = time.monotonic()
            given: dict[str, Any] = {"source": bench.images.source, "seed": cutter.options.seed, "progress": False}
            polished, facts = polish(cut.model, cut.kept, taught, judge, minutes, **given)
            used = {"labels": "none", "judge_keeps": facts["kept"], "epochs": facts["epochs"]}
            way = f"rebuild, polished {minutes:g} min on {facts['images']} images"
            yield bench.row(subject, way, share, polished, began, **used, unlabelled=facts["images"])


def _peer_rows(bench: Bench, shares: Sequence[float], number: int) -> Iterator[Row]:
    subject = bench.subject(number)
    peer = _TorchPruning(subject)
    for way, everywhere in itertools.product(("taylor", "l2"), (True, False)):
        name = f"Torch-Pruning {way}{'' if everywhere else ', the same ratio in every layer'}, new statistics"
        for share in shares:
            began = time.monotonic()
            try:
                model = peer.pruned(way, share, everywhere)
            except Exception as error:  # a peer's fault is a row of the table, whatever it is
                yield bench.missing(name, share, failed=f"{type(error).__name__}: {error}"[:200])
                continue
            yield bench.row(subject, name, share, model, began, labels=LABELS[way], steps=0)


#: what `--pick` names: (bench, shares, draw of the images) -> rows
WAYS: dict[str, Callable[[Bench, Sequence[float], int], Iterator[Row]]] = {
    REBUILD: partial(_cut_rows, attribution=REBUILD),
    "polished": _polished_rows,
    "taylor": partial(_cut_rows, attribution="taylor"),
    "Torch-Pruning": _peer_rows,
}


def network_and_images(lab: Lab, arch: str) -> tuple[nn.Module, ImageData, list[int], np.ndarray]:
    """Network, images, the classes it is judged on, and for each class of the images the network's number."""
    if arch in public_networks.NETWORKS:
        net = public_networks.load(arch, lab.networks).to(lab.where)
        imagenet = arch == "public-mobilenetv2"
        images = lab.data("imagenette" if imagenet else "cifar10")
        numbers = np.array(public_networks.IMAGENETTE) if imagenet else np.arange(10)
        return net, images, numbers.tolist(), numbers
    spec = "cifar10" if lab.full else "digits"
    images = lab.data(spec)

    def make() -> nn.Module:
        given = {"in_channels": images.shape[2], **({} if lab.full else lab.arguments(arch, spec))}
        model = zoo.build(arch, num_classes=10, seed=lab.seed, **given)
        return lab.taught(model, images, spec, seed=lab.seed, **({} if lab.full else lab.recipe(arch)))

    net = lab.kept(f"{arch}-{spec}-whole-{lab.seed}", make, study="prune", seed=lab.seed)
    return net, images, list(range(10)), np.arange(10)


def judge_of(
    lab: Lab, net: nn.Module, images: ImageData, classes: list[int], labels: np.ndarray
) -> Callable[[nn.Module], float]:
    """Accuracy of a network, or of a part of the same classes, on the test images."""
    test = Samples(
        torch.from_numpy(images.test_images),
        labels[images.test_labels],
        np.arange(0),
        np.arange(len(images.test_labels)),
        origin_of(net).preprocessing,
        lab.where,
        torch.float32,
    )
    return partial(_accuracy, test, classes)


def _accuracy(test: Samples, classes: list[int], model: nn.Module) -> float:
    logits = logits_on(model, test, test.held, None)
    if logits.shape[1] > len(classes):
        logits = logits[:, classes]
    right = torch.tensor(classes)[logits.argmax(1)] == torch.from_numpy(test.labels)
    return round(100 * float(right.double().mean()), 2)


class _TorchPruning:
    """Pruned to a share of the multiply-adds, batch norms estimated again on the same images.

    everywhere: channels of all layers compete for one ratio (its global pruning); else every layer loses that share.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject, self.samples = subject, subject.samples
        self.index = self.samples.some(IMAGES, 0)
        self.example = self.samples.inputs(self.index[:2])
        self._gradients: dict[str, torch.Tensor] = {}

    def pruned(self, way: str, share: float, everywhere: bool) -> nn.Module:
        full = trace(self.subject.whole, self.example).count().macs
        low, high, best = 0.0, 0.98, None
        for _ in range(8):
            middle = (low + high) / 2
            model = self._at(way, middle, everywhere)
            if trace(model, self.example).count().macs <= share * full:
                high, best = middle, model
            else:
                low = middle
        if best is None:
            raise RuntimeError("no ratio reaches the budget")
        if any(isinstance(m, nn.BatchNorm2d) for m in best.modules()):
            batches = ImageBatches(self.samples.lazy(self.index), 100, next(best.parameters()))
            best = reestimate_batch_norm(best, batches)
        return best.eval()

    def _at(self, way: str, ratio: float, everywhere: bool) -> nn.Module:
        import torch_pruning as tp

        model = copy.deepcopy(self.subject.whole)
        kind = tp.importance.GroupTaylorImportance if way == "taylor" else tp.importance.GroupMagnitudeImportance
        last = [m for m in model.modules() if isinstance(m, nn.Linear)][-1:]
        attention: list[Any] = [m for m in model.modules() if hasattr(m, "qkv") and hasattr(m, "heads")]
        heads = {m.qkv: m.heads for m in attention}
        options: dict[str, Any] = {"global_pruning": everywhere, "ignored_layers": last, "num_heads": heads}
        pruner = tp.pruner.BasePruner(model, self.example, importance=kind(), pruning_ratio=ratio, **options)
        if way == "taylor":
            for name, parameter in model.named_parameters():
                parameter.grad = self.gradients.get(name)
        pruner.step()
        for m in attention:  # as its examples do: it leaves the numbers beside the tensors as they were
            m.heads = pruner.num_heads[m.qkv]
            m.head_dim = m.qkv.out_features // 3 // m.heads
        model.zero_grad()
        return model

    @property
    def gradients(self) -> dict[str, torch.Tensor]:
        """Of the cross-entropy on the images, as its Taylor score wants them."""
        if not self._gradients:
            model = copy.deepcopy(self.subject.whole)
            for some in np.array_split(self.index, max(1, len(self.index) // 100)):
                labels = torch.from_numpy(self.samples.labels[some]).to(self.samples.device)
                nn.functional.cross_entropy(model(self.samples.inputs(some)), labels).backward()
            self._gradients = {n: p.grad.detach() for n, p in model.named_parameters() if p.grad is not None}
        return self._gradients
