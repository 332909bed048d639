"""How good a part is at its classes, on images that neither chose its channels nor repaired it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.bricks.samples import Samples
from brickwork.data.images import IGNORE
from brickwork.measures import auroc, mean_overlap
from brickwork.outputs import drawn_places, logits_of, place_rows
from brickwork.prediction import evaluating

BATCH = 500  # images in a pass, at most,
#: and numbers of input: 500 images of 224 pixels took 6.5 GiB on a GPU in a MobileNetV2, 111 took 3 on a CPU
NUMBERS = {"cuda": 2**24, "cpu": 2**21}


def logits_on(model: nn.Module, samples: Samples, index: np.ndarray, output: str | int | None) -> Tensor:
    """The chosen output on these images, float64 on the CPU; of maps a row per place that is looked at (`place_rows`)."""
    room = NUMBERS["cuda" if samples.device.type == "cuda" else "cpu"]
    size = max(1, min(BATCH, room // max(1, samples.inputs(index[:1]).numel()))) if len(index) else BATCH
    with evaluating(model):
        result = [
            place_rows(logits_of(model(samples.inputs(part)), output), samples.places(len(index))).double().cpu()
            for part in np.split(index, range(size, len(index), size))
        ]
    return torch.cat(result).clone()


IOU, IOU_WITH_WHOLE = "mean IoU", "mean IoU with the whole"  # of maps: with masks, and without
VARIANCE = "variance explained"  # of answers that are numbers, of which no largest one is the answer


class Judge:
    """Compares parts with the whole restricted to the same classes; maps place by place, with masks or the whole's answers."""

    def __init__(
        self, whole: nn.Module, samples: Samples, classes: list[int], output: str | int | None, *, numbers: bool = False
    ) -> None:
        self.samples, self.classes, self.output = samples, classes, output
        held = samples.held
        # One class can only be told from the others; several are told from each other.
        own = held[np.isin(samples.labels[held], classes)]
        self.index = own if len(classes) > 1 else held
        self.kind, self.before = self._kind(numbers), None
        if len(self.index):
            answers = logits_on(whole, samples, self.index, output)
            self.wanted = self._wanted(answers)
            self.before = self._quality(answers[:, classes])

    def of(self, part: nn.Module) -> float | None:
        if self.before is None:
            return None
        return self._quality(logits_on(part, self.samples, self.index, self.output))

    def _kind(self, numbers: bool) -> str:
        samples = self.samples
        if numbers:
            return VARIANCE
        if samples.outputs:
            return IOU_WITH_WHOLE if samples.masks is None else IOU
        if len(self.classes) == 1:
            return "auroc"
        return "agreement" if samples.answers else "accuracy"

    def _wanted(self, whole: Tensor) -> Tensor:
        """What every row is to be answered with: a class, or the whole's own numbers."""
        if self.kind == VARIANCE:
            return whole
        if self.kind == IOU_WITH_WHOLE:
            return whole.argmax(1)
        if self.kind == IOU and self.samples.masks is not None:
            masks = self.samples.masks[torch.from_numpy(self.index)]
            return drawn_places(masks, 1, self.samples.places(len(masks))).flatten().long()
        return torch.from_numpy(self.samples.labels[self.index])

    def _quality(self, logits: Tensor) -> float | None:
        if self.kind == VARIANCE:
            variance = float(self.wanted.var(0, unbiased=False).mean())
            return 1 - float((logits - self.wanted).square().mean()) / variance if variance > 0 else None
        if self.kind == "auroc":
            return auroc(logits[:, 0], self.wanted == self.classes[0])
        predicted = torch.tensor(self.classes)[logits.argmax(1)]
        if self.kind in (IOU, IOU_WITH_WHOLE):
            counted = self.wanted != IGNORE if self.kind == IOU else slice(None)
            return mean_overlap(predicted[counted], self.wanted[counted], len(self.classes))
        return (predicted == self.wanted).double().mean().item()
