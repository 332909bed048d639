"""Views: the images themselves first, then copies whose answers go with them."""

from __future__ import annotations

import numpy as np
import pytest

from brickwork.errors import RequestError
from brickwork.transplant.options import AdapterOptions
from brickwork.transplant.views import blends_of, views_of


def test_labels_and_masks_go_with_their_images():
    images = np.arange(3, dtype=np.uint8)[:, None, None, None] * np.ones((3, 8, 8, 1), np.uint8)  # of one grey each
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


def test_blends_lie_between_two_images_and_are_drawn_by_their_seed():
    greys = np.array([0, 100, 200], np.uint8)[:, None, None, None] * np.ones((3, 8, 8, 1), np.uint8)
    seen = blends_of(greys, count=5)
    assert seen.shape == (15, 8, 8, 1) and seen.dtype == np.uint8
    assert (seen == seen[:, :1, :1]).all()  # one grey each, whatever the shift
    values = set(seen[:, 0, 0, 0].tolist())
    assert len(values - {0, 100, 200}) >= 5 and max(values) <= 200
    first, again, other = (blends_of(greys, count=2, seed=seed) for seed in (0, 0, 1))
    assert (first == again).all() and not (first == other).all()
    floats = blends_of(greys / 255, count=1)
    assert (
        floats.dtype == np.float64
        and (floats <= 200 / 255 + 1e-6).all()
        and blends_of(greys, count=0).shape == (0, 8, 8, 1)
    )


def test_so_many_looks_that_no_memory_holds_them_are_refused():
    with pytest.raises(RequestError, match="blends is 99999; it must be 0 to 200"):
        AdapterOptions(way="distill", blends=99999)
