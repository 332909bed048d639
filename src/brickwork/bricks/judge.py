"""How good a part is at its classes, on images that neither chose its channels nor repaired it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.bricks.samples import Samples
from brickwork.evaluation import auroc
from brickwork.outputs import in_rows, logits_of
from brickwork.prediction import evaluating

BATCH = 500  # images in a pass, at most,
#: and numbers of input: 500 images of 224 pixels took 6.5 GiB on a GPU in a MobileNetV2, 111 took 3 on a CPU
NUMBERS = {"cuda": 2**24, "cpu": 2**21}


def logits_on(model: nn.Module, samples: Samples, index: np.ndarray, output: str | int | None) -> Tensor:
    """The chosen output on these images, float64 on the CPU."""
    room = NUMBERS["cuda" if samples.device.type == "cuda" else "cpu"]
    size = max(1, min(BATCH, room // max(1, samples.inputs(index[:1]).numel()))) if len(index) else BATCH
    with evaluating(model):
        result = [
            in_rows(logits_of(model(samples.inputs(part)), output)).double().cpu()
            for part in np.split(index, range(size, len(index), size))
        ]
    return torch.cat(result).clone()


VARIANCE = "variance explained"  # of the answers of a network of one output, which no label is compared with


class Judge:
    """Compares parts with the whole restricted to the same classes."""

    def __init__(self, whole: nn.Module, samples: Samples, classes: list[int], output: str | int | None) -> None:
        self.samples, self.classes, self.output = samples, classes, output
        self.kind = "auroc" if len(classes) == 1 else "agreement" if samples.answers else "accuracy"
        held = samples.held
        # One class can only be told from the others; several are told from each other.
        own = held[np.isin(samples.labels[held], classes)]
        self.index = own if len(classes) > 1 else held
        self.labels = torch.from_numpy(samples.labels[self.index])
        self.before = None
        if len(self.index):
            logits = logits_on(whole, samples, self.index, output)
            if logits.shape[1] == 1:
                self.kind, self.whole = VARIANCE, logits
            self.before = self._quality(logits[:, classes])

    def of(self, part: nn.Module) -> float | None:
        if self.before is None:
            return None
        return self._quality(logits_on(part, self.samples, self.index, self.output))

    def _quality(self, logits: Tensor) -> float | None:
        if self.kind == VARIANCE:
            variance = float(self.whole.var(unbiased=False))
            return 1 - float((logits - self.whole).square().mean()) / variance if variance > 0 else None
        if self.kind == "auroc":
            return auroc(logits[:, 0], self.labels == self.classes[0])
        predicted = torch.tensor(self.classes)[logits.argmax(1)]
        return (predicted == self.labels).double().mean().item()
