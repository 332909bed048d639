"""Rehearsal: images of the earlier tasks are stored, and trained on again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.continual.bench import Bench
from brickwork.continual.one_network import OneNetwork, Penalty, Stored
from brickwork.continual.registry import method
from brickwork.data.images import ImageData
from brickwork.data.streamed import concatenated
from brickwork.options import option
from brickwork.outputs import logits_of
from brickwork.prediction import input_of, predict


class Stores(OneNetwork):
    """So many images of every class are kept, drawn at random."""

    stored: int = option(default=20, at_least=1, help="Images stored per class.")

    def kept(self, model: nn.Module, bench: Bench, number: int, task: ImageData, earlier: Stored) -> Stored:
        draw = np.random.default_rng([bench.seed_of(number), 6])
        labels = task.train_labels
        own = [draw.permutation(np.flatnonzero(labels == k))[: self.stored] for k in np.unique(labels)]
        chosen = np.sort(np.concatenate(own))
        new = {
            "images": torch.from_numpy(np.asarray(task.train_images[chosen])),
            "labels": torch.from_numpy(labels[chosen]),
        }
        return {name: torch.cat([earlier[name], value]) if earlier else value for name, value in new.items()}


@method("replay")
class Replay(Stores):
    """One network and one head for all classes so far; some images of every class are stored and trained on again."""

    prefix = "replay"

    def images(self, task: ImageData, earlier: Stored) -> ImageData:
        if not earlier:
            return task
        images = concatenated([task.train_images, earlier["images"].numpy()])
        return replace(
            task, train_images=images, train_labels=np.concatenate([task.train_labels, earlier["labels"].numpy()])
        )


@method("derpp")
class DarkReplay(Stores):
    """As replay, but in every step, and towards what the network answered when an image was stored, too (2004.07211)."""

    prefix = "der"
    alpha: float = option(default=0.2, at_least=0, help="Weight of the stored answers.")
    beta: float = option(default=0.5, at_least=0, help="Weight of the stored labels.")
    batch: int = option(default=32, at_least=1, help="Stored images per step.")

    def penalty(self, model: nn.Module, bench: Bench, number: int, earlier: Stored) -> Penalty:
        prepared = input_of(model, earlier["images"], bench.device)
        labels, answers = (earlier[name].to(bench.device) for name in ("labels", "answers"))
        known = answers.isfinite()  # an image knows nothing of the classes that came after it
        draw = np.random.default_rng([bench.seed_of(number), 7])

        def again() -> tuple[Tensor, Tensor]:
            some = torch.from_numpy(draw.choice(len(labels), min(self.batch, len(labels)), replace=False)).to(
                bench.device
            )
            return some, logits_of(model(prepared[some])).float()

        def penalty(_images: Tensor, _logits: Tensor, _target: Tensor) -> Tensor:
            some, logits = again()
            far = (logits[:, : answers.shape[1]] - answers[some].nan_to_num()).square()[known[some]].mean()
            some, logits = again()
            return self.alpha * far + self.beta * F.cross_entropy(logits, labels[some])

        return penalty

    def kept(self, model: nn.Module, bench: Bench, number: int, task: ImageData, earlier: Stored) -> Stored:
        kept = super().kept(model, bench, number, task, earlier)
        before = len(earlier["labels"]) if earlier else 0
        answers = predict(model, kept["images"][before:]).float().cpu()
        if earlier:
            old = F.pad(earlier["answers"], (0, answers.shape[1] - earlier["answers"].shape[1]), value=torch.nan)
            answers = torch.cat([old, answers])
        return {**kept, "answers": answers}
