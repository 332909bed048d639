"""Shifted and mirrored copies of images with their answers: a task module should see more than a few hundred pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from brickwork.training.augment import Batches


def views_of(
    images: Any, answers: Any = None, *, count: int, augment: str = "crop+flip", seed: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """The images (N, H, W, C) as they are, then `count` − 1 times as others would see them; answers (N,) or masks alike.

    >>> images, labels = views_of(np.zeros((2, 8, 8, 1), np.uint8), np.array([4, 7]), count=3)
    >>> images.shape, sorted(labels.tolist())
    ((6, 8, 8, 1), [4, 4, 4, 7, 7, 7])
    """
    plain = torch.as_tensor(images)
    known = None if answers is None else torch.as_tensor(answers)
    masks = known is not None and known.dim() > 1
    batches = Batches(plain, None if masks else known, known if masks else None, augment=augment)
    seen, said = [plain], [known]
    for number in range(1, count):
        x, labels, shifted = batches.take(batches.draw(seed=1000 * seed + number), slice(None))
        seen.append(x.permute(0, 2, 3, 1))
        said.append(shifted if masks else labels)
    told = None if known is None else torch.cat([t.to(known) for t in said if t is not None]).numpy()
    return torch.cat(seen).numpy(), told
