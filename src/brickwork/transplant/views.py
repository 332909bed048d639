"""Further looks at few images: shifted and mirrored copies with their answers, and blends of two, which have none."""

from typing import Any

import numpy as np
import torch

from brickwork.data.streamed import tensor_of
from brickwork.training.augment import Batches


def views_of(
    images: Any, answers: Any = None, *, count: int, augment: str = "crop+flip", seed: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """The images (N, H, W, C) as they are, then `count` − 1 times as others would see them; answers (N,) or masks alike.

    >>> images, labels = views_of(np.zeros((2, 8, 8, 1), np.uint8), np.array([4, 7]), count=3)
    >>> images.shape, sorted(labels.tolist())
    ((6, 8, 8, 1), [4, 4, 4, 7, 7, 7])
    """
    plain = tensor_of(images)
    known = None if answers is None else torch.as_tensor(answers)
    masks = known is not None and known.dim() > 1
    batches = Batches(plain, None if masks else known, known if masks else None, augment=augment)
    seen, words = [plain], [known]
    for number in range(1, count):
        x, labels, shifted = batches.take(batches.draw(seed=1000 * seed + number), slice(None))
        seen.append(x.permute(0, 2, 3, 1))
        words.append(shifted if masks else labels)
    summary = None if known is None else torch.cat([t.to(known) for t in words if t is not None]).numpy()
    return torch.cat(seen).numpy(), summary


def blends_of(images: Any, *, count: int, augment: str = "crop+flip", seed: int = 0) -> np.ndarray:
    """`count` times every image, seen in another way and blended with one that is drawn; for a teacher to answer.

    Of N images one in N draws the image itself. What a teacher says between two images tells more of what it looks at than
    what it says of those it was trained on.

    >>> blends_of(np.zeros((3, 8, 8, 1), np.uint8), count=2).shape
    (6, 8, 8, 1)
    """
    plain = tensor_of(images)
    batches = Batches(plain, None, augment=augment)
    result = []
    for number in range(count):
        one, other = (
            batches.take(batches.draw(seed=1000 * seed + 500 + 2 * number + k), slice(None))[0] for k in range(2)
        )
        source = torch.Generator().manual_seed(1000 * seed + 500 + number)
        share = torch.rand(len(plain), 1, 1, 1, generator=source)
        mixed = share * one.float() + (1 - share) * other.float()
        result.append((mixed.round() if not plain.is_floating_point() else mixed).to(plain.dtype).permute(0, 2, 3, 1))
    return torch.cat(result).numpy() if result else plain[:0].numpy()
