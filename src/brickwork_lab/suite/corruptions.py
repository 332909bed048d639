"""Damaged images: noise, blur, contrast, brightness and JPEG at one severity, about the third of ImageNet-C's five.

Strengths are chosen for images of 64 pixels; the same seed gives the same images.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageFilter


def noise(images: np.ndarray, seed: int) -> np.ndarray:
    """Gaussian, a standard deviation of 0.1 of the range."""
    drawn = np.random.default_rng([seed, 31]).normal(0, 0.1 * 255, images.shape)
    return _bytes(images + drawn)


def blur(images: np.ndarray, seed: int) -> np.ndarray:
    """Gaussian, a radius of one pixel."""
    return _each(images, lambda image: image.filter(ImageFilter.GaussianBlur(1)))


def contrast(images: np.ndarray, seed: int) -> np.ndarray:
    """0.4 of every image's own contrast."""
    means = images.mean((1, 2), keepdims=True)
    return _bytes((images - means) * 0.4 + means)


def brightness(images: np.ndarray, seed: int) -> np.ndarray:
    """0.3 of the range brighter."""
    return _bytes(images + 0.3 * 255)


def jpeg(images: np.ndarray, seed: int) -> np.ndarray:
    """Quality 15."""
    return _each(images, _compressed)


CORRUPTIONS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    f.__name__: f for f in (noise, blur, contrast, brightness, jpeg)
}


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _each(images: np.ndarray, change: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    grey = images.shape[-1] == 1
    changed = [np.asarray(change(Image.fromarray(one[..., 0] if grey else one))) for one in images]
    return np.stack(changed).reshape(images.shape)


def _compressed(image: Image.Image) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=15)
    return Image.open(io.BytesIO(buffer.getvalue()))
