"""Accuracy against multiply-adds, without training and after a polish: ours, the rule before, and Torch-Pruning's."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork import zoo
from brickwork.blueprint.plan import CLASSES, trace
from brickwork.bricks.choosing import choose
from brickwork.bricks.disassembly import repaired
from brickwork.bricks.judge import Judge, logits_on
from brickwork.bricks.options import DisassembleOptions
from brickwork.bricks.polishing import polish
from brickwork.bricks.samples import Samples
from brickwork.bricks.subject import Subject, prepare
from brickwork.data.images import ImageData
from brickwork.errors import BrickworkError
from brickwork.moments import reestimate_batch_norm
from brickwork.moments.batches import ImageBatches
from brickwork.origin import origin_of
from brickwork_lab import public_networks
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, study

SHARES = (0.75, 0.5, 0.35, 0.25, 0.15)
POLISHED = (0.5, 0.25)
IMAGES = 3000
#: without training, by network and share: (accuracy, the whole's, source)
PUBLISHED = {("resnet50", 0.25): (91.02, 94.99, "ModHiFi, arXiv 2511.19566, 4.07 times fewer multiply-adds")}
#: what each way uses labels for
LABELS = {"rebuild": "none", "taylor": "to score channels", "l2": "none"}
DEFAULT = (*public_networks.NETWORKS, "vgg16", "resnet50", "vit_small")


@study("prune", paper="")
def prune(
    lab: Lab,
    *,
    archs: Names = None,
    seeds: int = 3,
    shares: tuple[float, ...] = SHARES,
    compared: tuple[float, ...] = SHARES,
    minutes: float = 2.0,
) -> Iterator[Row]:
    """Accuracy against multiply-adds without training, and after a polish: three public networks and three of ours."""
    for arch in lab.archs(archs, DEFAULT):
        for number in range(seeds if lab.full else 1):
            if lab.full:
                yield from _rows(lab, arch, number, shares, compared, minutes)
            else:
                yield from _rows(lab, arch, number, (0.5,), (0.5,), 0.02)


def _rows(
    lab: Lab, arch: str, number: int, shares: tuple[float, ...], compared: tuple[float, ...], minutes: float
) -> Iterator[Row]:
    """One draw of the calibration images; peers, the rule before and the polish with the first draw only."""
    net, images, classes, labels = network_and_images(lab, arch)
    pair = images.train_images, labels[images.train_labels]
    subject = prepare(net, classes, pair, device=lab.where, output=None, seed=lab.seed + number)
    judge = Judge(subject.whole, subject.judged, classes, None)
    tested = judge_of(lab, net, images, classes, labels)
    whole = tested(subject.whole)

    def row(way: str, share: float, model: nn.Module, began: float, **facts: Any) -> Row:
        published = PUBLISHED.get((arch, share))
        known: Row = {"what": f"{arch}, {share:.0%} of the multiply-adds, {way}", "paper": None, "ours": tested(model)}
        if published and way == "rebuild":
            known |= {"paper": published[0], "paper_whole": published[1], "source": published[2]}
        counted = trace(model, subject.samples.inputs(np.arange(2))).count()
        full = subject.bp.count()
        known |= {"whole": whole, "macs": counted.macs / full.macs, "parameters": counted.parameters / full.parameters}
        if lab.where.type == "cuda":
            known["gpu_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
            torch.cuda.reset_peak_memory_stats()
        known |= {"seconds": round(time.monotonic() - began, 2), "images": IMAGES, "seed": lab.seed + number}
        return {**known, "arch": arch, "way": way, "share": share, **facts}

    for way in ("rebuild", "taylor") if number == 0 else ("rebuild",):
        began = time.monotonic()
        options = DisassembleOptions(of="macs", budget=0.5, attribution=way, images=IMAGES, seed=lab.seed + number)
        index = subject.samples.some(options.images, options.seed)
        cut_out = partial(repaired, subject, index=index, options=options, progress=False)
        spaces = [name for name in subject.bp.spaces if name != CLASSES]
        choice = choose(subject, options, spaces, cut_out, False)
        chose = time.monotonic() - began
        for share in shares if way == "rebuild" and number == 0 else compared if number == 0 else POLISHED:
            began = time.monotonic()
            try:
                cut = cut_out(kept=choice.kept(share))
                model = cut.model
            except BrickworkError as error:
                yield {
                    "what": f"{arch}, {share:.0%} of the multiply-adds, {way}",
                    "paper": None,
                    "ours": None,
                    "refused": str(error),
                }
                continue
            yield row(way, share, model, began, labels=LABELS[way], steps=0, chosen_in=round(chose, 2))
            if way == "rebuild" and number == 0 and share in POLISHED:
                few = replace(subject, samples=replace(subject.samples, use=index))
                for taught, time_for_it in ((few, minutes / 2), (subject, minutes)):
                    began = time.monotonic()
                    polished, facts = polish(
                        model,
                        cut.kept,
                        taught,
                        judge,
                        time_for_it,
                        source=images.source,
                        seed=options.seed,
                        progress=False,
                    )
                    used = {"labels": "none", "judge_keeps": facts["kept"], "epochs": facts["epochs"]}
                    what = f"rebuild, polished {time_for_it:g} min on {facts['images']} images"
                    yield row(what, share, polished, began, **used, unlabelled=facts["images"])
    peer = _TorchPruning(subject)
    for way in ("taylor", "l2") if number == 0 else ():
        for share in compared:
            began = time.monotonic()
            try:
                model = peer.pruned(way, share)
            except Exception as error:  # a peer's fault is a row of the table, whatever it is
                text = f"{type(error).__name__}: {error}"[:200]
                yield {
                    "what": f"{arch}, {share:.0%} of the multiply-adds, Torch-Pruning {way}",
                    "paper": None,
                    "ours": None,
                    "failed": text,
                }
                continue
            yield row(f"Torch-Pruning {way}, new statistics", share, model, began, labels=LABELS[way], steps=0)


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
        model = zoo.build(arch, num_classes=10, seed=lab.seed, in_channels=images.shape[2])
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
    """Pruned to a share of the multiply-adds by one global ratio, batch norms estimated again on the same images."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.samples = subject, subject.samples
        self.index = self.samples.some(IMAGES, 0)
        self.example = self.samples.inputs(self.index[:2])
        self._gradients: dict[str, torch.Tensor] = {}

    def pruned(self, way: str, share: float) -> nn.Module:
        full = trace(self.subject.whole, self.example).count().macs
        low, high, best = 0.0, 0.98, None
        for _ in range(8):
            middle = (low + high) / 2
            model = self._at(way, middle)
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

    def _at(self, way: str, ratio: float) -> nn.Module:
        import torch_pruning as tp

        model = copy.deepcopy(self.subject.whole)
        kind = tp.importance.GroupTaylorImportance if way == "taylor" else tp.importance.GroupMagnitudeImportance
        last = [m for m in model.modules() if isinstance(m, nn.Linear)][-1:]
        attention: list[Any] = [m for m in model.modules() if hasattr(m, "qkv") and hasattr(m, "heads")]
        heads = {m.qkv: m.heads for m in attention}
        options: dict[str, Any] = {"global_pruning": True, "ignored_layers": last, "num_heads": heads}
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
