"""Raw uint8 images (N, H, W, C) to network input (N, C, H, W), and what one must know to do it."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from brickwork.data.streamed import BATCH, Images, StreamedImages, tensor_of
from brickwork.devices import DeviceLike
from brickwork.errors import BadData
from brickwork.origin import Framing, Preprocessing


def measure(images: np.ndarray | StreamedImages) -> Preprocessing:
    """Per-channel mean and standard deviation of raw images, on the 0..1 scale.

    >>> measure(np.full((2, 4, 4, 1), 51, np.uint8))
    Preprocessing(size=(4, 4), channels=1, mean=(0.2,), std=(1.0,))
    """
    if len(images) == 0:
        raise BadData("there are no images to measure mean and spread on.")
    height, width, channels = images.shape[1:]
    # A histogram a channel is exact and needs no float copy of the images.
    levels = np.arange(256) / 255
    counts = np.zeros((channels, 256), np.int64)
    parts = range(0, len(images), BATCH) if isinstance(images, StreamedImages) else (0,)
    for start in parts:
        part = np.asarray(images[start : start + BATCH]) if isinstance(images, StreamedImages) else images
        counts += [np.bincount(part[..., channel].ravel(), minlength=256) for channel in range(channels)]
    mean, std = [], []
    for share in counts / counts.sum(1, keepdims=True):
        centre = float(share @ levels)
        spread = float(np.sqrt(share @ (levels - centre) ** 2))
        mean.append(round(centre, 6))
        std.append(round(spread, 6) if spread > 1e-6 else 1.0)  # a constant channel must not divide by zero
    return Preprocessing(size=(height, width), channels=channels, mean=tuple(mean), std=tuple(std))


def as_input(
    images: Images,
    preprocessing: Preprocessing | None,
    device: DeviceLike = "cpu",
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Tensor:
    """Network input (N, C, H, W): uint8 images (N, H, W, C) are prepared, floating ones taken as they are.

    Prepared images lie in memory as torch's own loaders lay them, so that `x.view(len(x), -1)` in a forward works.

    >>> as_input(np.zeros((2, 8, 8, 3), np.uint8), Preprocessing((4, 4), 1, (0.5,), (0.5,))).shape
    torch.Size([2, 1, 4, 4])
    """
    tensor = tensor_of(images).to(device)
    if tensor.is_floating_point():
        return tensor
    check_raw(tensor)
    # while they are bytes: a quarter of what moving floats would cost
    tensor = tensor.permute(0, 3, 1, 2).contiguous(memory_format=memory_format)
    if preprocessing is None:
        return tensor.float() / 255
    prepared = normalise(fitted(tensor, preprocessing), preprocessing)
    return prepared.contiguous(memory_format=memory_format)  # repeated grey is not, yet


def fitted(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """(N, C, H, W) uint8 with the channels and of the size that a network reads; of that size already: as they are."""
    if images.shape[1] != preprocessing.channels:
        images = change_channels(images, preprocessing.channels)
    if preprocessing.size and tuple(images.shape[2:]) != tuple(preprocessing.size):
        images = resize(images, preprocessing.size, preprocessing.framing)
    return images


def normalise(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """(N, C, H, W) on the 0..255 scale to zero mean and unit spread, float32."""
    scale, shift = _constants(preprocessing, images.device)
    return images.float() * scale + shift


@functools.lru_cache(maxsize=32)
def _constants(preprocessing: Preprocessing, device: torch.device) -> tuple[Tensor, Tensor]:
    """(x / 255 - mean) / std as one factor and one summand; kept, because copying them waits for the GPU."""
    mean, std = preprocessing.mean or (0.0,), preprocessing.std or (1.0,)
    with torch.inference_mode(False):  # kept beyond the block that happens to ask first
        scale = torch.tensor([1 / (255 * s) for s in std], device=device).view(1, -1, 1, 1)
        shift = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)], device=device).view(1, -1, 1, 1)
    return scale, shift


def check_raw(images: Images) -> None:
    """Refuse anything that is not (N, H, W, 1 or 3) uint8."""
    if str(images.dtype).removeprefix("torch.") != "uint8" or images.ndim != 4 or images.shape[3] not in (1, 3):
        raise BadData(
            f"images are {tuple(images.shape)} {images.dtype}; raw images are (N, H, W, 1 or 3) uint8, "
            "network input is (N, C, H, W) floating."
        )


def change_channels(images: Tensor, channels: int) -> Tensor:
    """(N, C, H, W) grey to RGB by repeating, RGB to grey by the usual luma weights (ITU-R 601)."""
    if images.shape[1] == 1 and channels == 3:
        return images.expand(-1, 3, -1, -1)
    if images.shape[1] == 3 and channels == 1:
        weights = torch.tensor([0.299, 0.587, 0.114], device=images.device).view(1, 3, 1, 1)
        return (images.float() * weights).sum(1, keepdim=True).round().to(images.dtype)
    raise BadData(f"images have {images.shape[1]} channels and {channels} are asked for; 1 and 3 can be exchanged.")


def resize(images: Tensor, size: tuple[int, int], framing: Framing | None = None) -> Tensor:
    """(N, C, H, W) uint8 to another height and width: bilinear, with antialiasing when it shrinks.

    With a `framing` that says so they are scaled to its size first, and the middle is cut out.
    """
    framing = framing or Framing()
    height, width = scaled_sides((images.shape[2], images.shape[3]), framing.resize) if framing.resize else size
    mode = framing.interpolation
    smooth = {} if mode == "nearest" else {"antialias": True}
    parts = [
        F.interpolate(part.float(), size=(height, width), mode=mode, **smooth).round().clamp(0, 255).to(images.dtype)
        for part in images.split(1024)  # in parts: a float copy of a large set would not fit
    ]
    top, left = middle((height, width), size)
    return torch.cat(parts)[:, :, top : top + size[0], left : left + size[1]]


def scaled_sides(sides: tuple[int, int], resize: int | tuple[int, int]) -> tuple[int, int]:
    """Height and width after scaling: the shorter side becomes `resize`, or both what it says, as in torchvision.

    >>> scaled_sides((300, 400), 256), scaled_sides((300, 400), (64, 48))
    ((256, 341), (64, 48))
    """
    if not isinstance(resize, int):
        return resize
    shorter = min(sides)
    return int(resize * sides[0] / shorter), int(resize * sides[1] / shorter)


def middle(sides: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """Where the middle of `size` begins in an image of these sides, which must not be smaller."""
    if sides[0] < size[0] or sides[1] < size[1]:
        raise BadData(f"images are scaled to {sides[0]}×{sides[1]}, and {size[0]}×{size[1]} cannot be cut out of that.")
    return round((sides[0] - size[0]) / 2), round((sides[1] - size[1]) / 2)


def resize_masks(masks: Tensor, size: tuple[int, int]) -> Tensor:
    """(N, H, W) class numbers to another height and width; nearest, so that no class is invented."""
    return F.interpolate(masks[:, None].float(), size=tuple(size), mode="nearest")[:, 0].to(masks.dtype)
