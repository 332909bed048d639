"""`synthesise`: calibration images from what a network's batch norms remember, for people who have none.

Batch norms keep the mean and variance of every channel over the images a network was trained on. Images that bring them
about again, and that the network takes for its classes, can stand for those images where a network is repaired (Yin et al.
2020, arXiv 1912.08795; Cai et al. 2020, 2001.00281). They are no pictures of anything.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from brickwork.blueprint.record import refuse_scripted
from brickwork.copying import copy_module
from brickwork.data.images import ImageData
from brickwork.data.pixels import normalise
from brickwork.devices import DeviceLike, pick
from brickwork.errors import BadModel, RequestError
from brickwork.options import takes
from brickwork.origin import Preprocessing, origin_of
from brickwork.outputs import logits_of
from brickwork.prediction import precision_of
from brickwork.progress import bar
from brickwork.training.options import SynthesiseOptions
from brickwork.words import sides

SURE = 0.1  # weight of the classes beside the statistics: the statistics are what a repair needs
ROLLED = 16  # images are moved by up to this part of their side, so that no pixel stands for one place alone


@takes(SynthesiseOptions)
def synthesise(
    model: nn.Module, *, device: DeviceLike | None = None, progress: bool = True, options: SynthesiseOptions
) -> ImageData:
    """Images, as many of every class, on which the model's batch norms see what they saw in training.

    They stand wherever images without labels do: `disassemble`, `compress`, `merge`, `export` to int8. The labels are the classes
    that the images were made for; accuracy on them says nothing about real images.

    >>> from brickwork import zoo
    >>> made = synthesise(zoo.build("resnet8", num_classes=2, in_channels=1), images=4, steps=2, size=8, progress=False)
    >>> made.train_images.shape, made.train_labels.tolist()
    ((4, 8, 8, 1), [0, 1, 0, 1])
    """
    refuse_scripted(model)
    where = pick(device, of=model)
    net = copy_module(model).to(where).eval().requires_grad_(False)
    if precision_of(net) in (torch.float16, torch.bfloat16):
        net = net.float()  # steps of pixels are smaller than such numbers can tell
    prepared = _prepared(net, options.size)
    norms = [m for m in net.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]
    if not norms:
        raise BadModel(
            "the network has no batch norm with statistics of its training images, from which alone images can be made; "
            "give real ones, some hundred without labels."
        )
    names, outputs = origin_of(model).classes, _outputs(net, prepared, options.output)
    classes = names if names is not None and len(names) == outputs else tuple(map(str, range(outputs)))
    count = options.images or max(500, 2 * len(classes))
    if count < len(classes):
        raise RequestError(f"`images` is {count}; with {len(classes)} classes it must be at least as many.")
    labels = np.arange(count) % len(classes)
    pieces = np.array_split(
        labels, -(-count // options.batch_size)
    )  # even ones: the statistics of a single image say little
    parts = []
    with bar("synthesising", len(pieces) * options.steps, show=progress) as advance:
        for k, target in enumerate(pieces):
            batch = _Batch(net, norms, prepared, torch.from_numpy(target), [options.seed, k])
            parts.append(batch.made(options, advance))
    pixels = torch.cat(parts).mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    none = np.zeros(0, np.int64)
    return ImageData("synthetic", classes, pixels, labels, pixels[:0], none)


class _Batch:
    """Some images on their way from noise to what the batch norms know."""

    def __init__(
        self, net: nn.Module, norms: list[_BatchNorm], prepared: Preprocessing, target: Tensor, seed: list[int]
    ) -> None:
        like = next(net.parameters())
        self.net, self.norms, self.prepared, self.target = net, norms, prepared, target.to(like.device)
        self.random = np.random.default_rng(seed)
        assert prepared.size is not None
        noise = self.random.normal(0.5, 0.25, (len(target), prepared.channels, *prepared.size)).clip(0, 1)
        self.pixels = torch.from_numpy(noise).to(like).requires_grad_()

    def made(self, options: SynthesiseOptions, advance: Any) -> Tensor:
        optimizer = torch.optim.Adam([self.pixels], lr=options.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
        reach = [side // ROLLED for side in self.pixels.shape[2:]]
        for _ in range(options.steps):
            shift = tuple(int(self.random.integers(-most, most + 1)) for most in reach)
            with torch.enable_grad():
                loss = self._loss(torch.roll(self.pixels, shift, (2, 3)), options.output)
            if not bool(torch.isfinite(loss)):
                raise BadModel(
                    "the network's answers became NaN or infinite while images were made; its weights may be damaged."
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                self.pixels.clamp_(0, 1)
            advance(1)
        return self.pixels.detach().float().cpu()

    def _loss(self, pixels: Tensor, output: str | int | None) -> Tensor:
        far: list[Tensor] = []
        hooks = [
            norm.register_forward_pre_hook(lambda m, given: far.append(_divergence(m, given[0]))) for norm in self.norms
        ]
        try:
            inputs = normalise(255 * pixels, self.prepared).to(pixels.dtype)
            logits = logits_of(self.net(inputs), output)
        finally:
            for hook in hooks:
                hook.remove()
        if not far:
            raise BadModel(
                "the network's forward uses none of its batch norms, so that they remember nothing; give real images."
            )
        return torch.stack(far).mean() + SURE * nn.functional.cross_entropy(logits, self.target)


def _divergence(norm: _BatchNorm, x: Tensor) -> Tensor:
    """How far the images' mean and variance are from the remembered ones: Kullback-Leibler of two normal distributions."""
    assert norm.running_mean is not None and norm.running_var is not None
    places = [d for d in range(x.dim()) if d != 1]
    mean, variance = x.mean(places), x.var(places, unbiased=False) + norm.eps
    known = norm.running_var + norm.eps
    return 0.5 * ((known / variance).log() + (variance + (mean - norm.running_mean).square()) / known - 1).mean()


def _prepared(model: nn.Module, size: int | None) -> Preprocessing:
    """How images become the network's input; without a record of it, pixels from 0 to 1 as they are."""
    origin = origin_of(model)
    known, shape = origin.preprocessing, origin.input_shape
    side = (size, size) if size is not None else known.size if known else None
    if side is None and shape is not None and len(shape) == 3:
        side = shape[1], shape[2]
    if side is None:
        raise RequestError("the model does not say how large its images are; give `size`.")
    first = next((m.in_channels for m in model.modules() if isinstance(m, nn.Conv2d)), 3)
    channels = known.channels if known else shape[0] if shape else first
    mean, std = (known.mean, known.std) if known and known.mean else ((0.0,) * channels, (1.0,) * channels)
    return Preprocessing(side, channels, mean, std)


def _outputs(model: nn.Module, prepared: Preprocessing, output: str | int | None) -> int:
    """How many classes the chosen output has."""
    assert prepared.size is not None
    blank = torch.zeros(2, prepared.channels, *prepared.size).to(next(model.parameters()))
    try:
        with torch.no_grad():
            logits = logits_of(model(blank), output)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        shape, text = sides(blank.shape[1:]), str(error).strip().splitlines()[0]
        raise BadModel(
            f"the network's forward fails on images of {shape} ({text}); give their right `size`."
        ) from error
    if logits.dim() != 2:
        shape = sides(logits.shape[1:])
        raise BadModel(f"the network answers {shape} numbers an image; images are made for classes, a number each.")
    return int(logits.shape[1])
