"""One epoch: batches, forward, backward, update; nothing in the loop waits for the device."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.data.images import IGNORE
from brickwork.data.pixels import normalise
from brickwork.errors import BadModel, JobFailed
from brickwork.forward_fault import explained
from brickwork.origin import Preprocessing
from brickwork.outputs import logits_of
from brickwork.training.augment import Batches
from brickwork.training.muon import Muon
from brickwork.training.options import TrainOptions
from brickwork.training.processes import ProcessGroup
from brickwork.training.recording import RecordedStep
from brickwork.training.schedules import learning_rate

Loss = Callable[[Tensor, Tensor], Tensor]  # (logits, target)
Penalty = Callable[[Tensor, Tensor, Tensor], Tensor]  # (network input, logits, target)
BeforeStep = Callable[[int, int], None]  # (number of the step from 0, number of all steps)


@dataclass
class Run:
    """The fixed parts of a training run."""

    settings: TrainOptions
    processes: ProcessGroup
    batches: Batches
    preprocessing: Preprocessing | None  # None: the images are network input already
    memory_format: torch.memory_format
    loss: Loss
    half: bool
    precision: torch.dtype | None = None  # of the network's numbers
    penalty: Penalty | None = None
    before_step: BeforeStep | None = None
    kind: str = (
        "classes"  # of the targets; "several": (B, classes) of 0 and 1, "numbers": whatever the caller's loss takes
    )
    record: bool = False  # as one CUDA graph, replayed step after step
    recorded: RecordedStep | None = None  # of this run; a resumed one begins anew

    def epoch(self, epoch: int, model: nn.Module, optimizer: Any) -> dict[str, Any]:
        """Train for one epoch and return its row of numbers."""
        processes, batches = self.processes, self.batches
        seed = mixed_seed(self.settings.seed, epoch)
        # Dropout and the like, of its own in each process; the caller's generators are put back afterwards.
        torch.manual_seed(mixed_seed(self.settings.seed, epoch, processes.rank))
        draw = batches.draw(seed=seed)
        # An incomplete last batch is left out: every epoch leaves out others.
        size = min(self.settings.batch_size, batches.count)
        steps = batches.count // size
        lost = torch.zeros((), device=processes.device, dtype=torch.float64)
        right = torch.zeros((), device=processes.device, dtype=torch.int64)
        seen = rate = 0.0
        began = time.perf_counter()
        if self.recorded is None:
            reset = partial(optimizer.zero_grad, set_to_none=True)
            self.recorded = RecordedStep(reset, record=self.record)
        gradients = partial(self._forward_backward, model)
        for step in range(steps):
            rate = learning_rate(self.settings, epoch * steps + step, steps)
            for group in optimizer.param_groups:
                group["lr"] = rate
            images, labels, masks = batches.take(
                draw, slice(step * size + processes.rank, (step + 1) * size, processes.size)
            )
            target = labels if masks is None else masks
            assert target is not None  # train() has seen to it
            if self.preprocessing is not None:
                images = normalise(images, self.preprocessing)
            images = images.to(self.precision or images.dtype).contiguous(memory_format=self.memory_format)
            if self.before_step is not None:
                with torch.no_grad():
                    self.before_step(epoch * steps + step, self.settings.epochs * steps)
            loss, hits = self.recorded(gradients, images, target)
            lost += loss
            right += hits
            optimizer.step()
            seen += target.numel()
        counts = processes.total(
            torch.stack([lost, right.double(), torch.tensor(seen, device=processes.device).double()])
        )
        loss_mean = counts[0].item() / (steps * processes.size)
        seconds = time.perf_counter() - began
        if not math.isfinite(loss_mean):
            raise JobFailed(f"the loss became {loss_mean} in epoch {epoch + 1}; a smaller lr often helps.")
        return {
            "epoch": epoch + 1,
            "lr": rate,
            "loss": loss_mean,
            **({} if self.kind == "numbers" else {"accuracy": (counts[1] / counts[2]).item()}),
            "seconds": seconds,
            "images_per_second": steps * size / seconds,
        }

    def _forward_backward(self, model: nn.Module, images: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of one batch; its loss and its hits."""
        first = self.recorded is None or self.recorded.calls == 1
        half = torch.autocast(self.processes.device.type, torch.bfloat16, enabled=self.half)
        with half, explained() if first else nullcontext():
            logits = logits_of(model(images))
        if first and self.kind != "numbers":
            check_logits(logits, target)
        loss = self.loss(logits if logits.dtype == torch.float64 else logits.float(), target)
        if self.penalty is not None:
            loss = loss + self.penalty(images, logits, target)
        self.processes.backward(loss)
        if self.kind == "classes":
            right = logits.detach().argmax(1) == target
        elif self.kind == "several":
            right = (logits.detach() > 0) == (target > 0.5)
        else:
            right = torch.zeros(1, device=loss.device, dtype=torch.int64)
        return loss.detach(), right.sum()


def mixed_seed(seed: int, epoch: int, *more: int) -> int:
    """A seed of its own for each epoch: a resumed run draws what the uninterrupted one would have drawn."""
    return int(np.random.SeedSequence([seed, epoch, *more]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def cross_entropy(label_smoothing: float) -> Loss:
    """Cross-entropy for classes (B,) and for masks (B, H, W); mask value 255 does not count, class 255 does."""

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        ignored = IGNORE if target.ndim > 1 else -100  # the latter is no label at all
        return F.cross_entropy(logits, target, ignore_index=ignored, label_smoothing=label_smoothing)

    return loss


def several_labels(label_smoothing: float) -> Loss:
    """Binary cross-entropy of every label by itself, for images that have several (B, classes)."""

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, target * (1 - label_smoothing) + label_smoothing / 2)

    return loss


def check_logits(logits: Tensor, target: Tensor) -> None:
    """Refuse outputs that do not fit the labels, before cross-entropy fails in its own words."""
    if target.is_floating_point():
        if logits.shape != target.shape:
            raise BadModel(f"the model gives {tuple(logits.shape)} for labels of shape {tuple(target.shape)}.")
        return
    if logits.ndim != target.ndim + 1 or logits.shape[0] != target.shape[0] or logits.shape[2:] != target.shape[1:]:
        raise BadModel(f"the model gives {tuple(logits.shape)} for labels of shape {tuple(target.shape)}.")
    top = int((torch.where(target == IGNORE, 0, target) if target.ndim > 1 else target).max())
    if top >= logits.shape[1]:
        raise BadModel(f"the model has {logits.shape[1]} outputs, but there is a label {top}.")


def make_optimizer(
    parameters: list[nn.Parameter], settings: TrainOptions, device: torch.device
) -> torch.optim.Optimizer:
    """The optimizer that the settings name, in its fused form on CUDA."""
    fused = device.type == "cuda"
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            parameters,
            lr=settings.lr,
            momentum=settings.momentum,
            nesterov=settings.nesterov,
            weight_decay=settings.weight_decay,
            fused=fused,
        )
    if settings.optimizer == "muon":
        return Muon(parameters, settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay)
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, lr=settings.lr, weight_decay=settings.weight_decay, fused=fused)


@contextmanager
def tuned(device: torch.device) -> Iterator[None]:
    """The caller's random state and backend flags put back afterwards; on CUDA, TF32 and tuned kernels.

    Tuned kernels are picked by the clock, so two runs may differ in the last digits; a caller who wants the same bytes
    says so to torch (`torch.use_deterministic_algorithms(True)`), and none are picked.
    """
    devices = [device] if device.type == "cuda" else []
    before = (torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision())
    with torch.random.fork_rng(devices):
        if device.type == "cuda":
            torch.backends.cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()
            torch.backends.cudnn.allow_tf32 = True
            torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            if device.type == "cuda":
                torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = before[:2]
                torch.set_float32_matmul_precision(before[2])
