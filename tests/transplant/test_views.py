"""Views: the images themselves first, then copies whose answers go with them."""

from __future__ import annotations

import numpy as np

from brickwork.transplant.views import views_of


def test_labels_and_masks_go_with_their_images():
    images = np.arange(3, dtype=np.uint8)[:, None, None, None] * np.ones(
        (3, 8, 8, 1), np.uint8
    )  # of one grey each
    seen, labels = views_of(images, np.array([10, 11, 12]), count=4)
    assert seen.shape == (12, 8, 8, 1) and seen.dtype == np.uint8 and labels.dtype == np.int64
    assert (seen[:3] == images).all() and (seen[:, 0, 0, 0] + 10 == labels).all()
    drawn = np.random.default_rng(0).integers(0, 255, (3, 8, 8, 1)).astype(np.uint8)
    seen, masks = views_of(drawn, drawn[..., 0].astype(np.int64), count=3)
    assert (seen[..., 0] == masks).all() and not (seen[3:6] == drawn).all()


def test_views_are_drawn_by_their_seed_and_none_are_drawn_for_one():
    images = np.random.default_rng(0).integers(0, 255, (4, 8, 8, 3)).astype(np.uint8)
    assert (views_of(images, count=1)[0] == images).all() and views_of(images, count=1)[1] is None
    first, again, other = (views_of(images, count=3, seed=seed)[0] for seed in (0, 0, 1))
    assert (first == again).all() and not (first == other).all()
    mirrored = views_of(images, count=2, augment="flip")[0][4:]
    known = [image.tobytes() for image in (*images, *images[:, :, ::-1])]
    assert all(np.ascontiguousarray(image).tobytes() in known for image in mirrored)
