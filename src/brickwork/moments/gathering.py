"""Student and source over the same images: what a layer reads now, and what it is to answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.record import record
from brickwork.copying import copy_module
from brickwork.devices import number_of
from brickwork.errors import BadData, BadModel
from brickwork.moments.batches import ImageBatches, SlicedImages
from brickwork.moments.gram import Moments
from brickwork.moments.layers import Layer, find_layers, full_size, groups_of, positions, rows_of
from brickwork.moments.processes import share_batches
from brickwork.moments.program import Program
from brickwork.moments.ridge import Ridge
from brickwork.moments.windows import add_windows, has_windows

#: bytes of activations that are stored between two layers, of the student and of each source
ROOM = {"cpu": 2**30, "cuda": 3 * 2**29}
PATCHES = 2**28  # bytes of what a layer reads that are laid out at once


@dataclass(frozen=True)
class Source:
    """A network whose responses are to be matched, on images of its own.

    rows: for each layer, which of the source's output channels the student's outputs stand for; all, if absent.
    own: the same images as the source takes them, where it wants them prepared otherwise than the student.
    """

    model: nn.Module
    images: SlicedImages  # (n, …) as the networks take them: a tensor, or what makes slices of them on demand
    rows: Mapping[str, np.ndarray] | None = None
    weight: float = 1.0
    own: SlicedImages | None = None


@dataclass(frozen=True)
class Target:
    """A layer to be solved for, and how what it is to answer is looked at."""

    path: str
    feedback: bool  # the response is the sum that the layer goes into
    places: int | str | None  # of an image, at most
    seed: int


@dataclass(frozen=True)
class _Batch:
    layer: Layer
    images: range
    x: Tensor  # what the layer reads
    y: Tensor  # what it is to answer, less what the sum's other summand gives
    other: Tensor | None  # that summand


class Run:
    """Student and source over one source's images, batch by batch."""

    def __init__(self, student: nn.Module, source: Source, batch_size: int) -> None:
        self.source = source
        like = number_of(student)
        room = ROOM["cuda" if like.is_cuda else "cpu"]
        every, mine = share_batches(source.images, batch_size, like)
        theirs = mine if source.own is None else share_batches(source.own, batch_size, like)[1]
        teacher = _alike(source.model, like)
        self.mine: list[Program] = []
        self.theirs: list[Program] = []
        for size in every.sizes:  # at most two: whole batches, and ones that are one image shorter
            some = every.of_size(size)
            example, own = some[0], room * len(some) * size // len(source.images)  # together they keep to the bound
            self.mine.append(Program(student, record(student, example), mine.of_size(size), room=own))
            self.theirs.append(Program(teacher, record(teacher, example), theirs.of_size(size), room=own))
        self.images = len(source.images)
        self.layers = find_layers(self.mine[0].graph, student)
        self.by_path = [{layer.path: layer for layer in find_layers(p.graph, student)} for p in self.mine]
        self.theirs_by_path = [{layer.path: layer for layer in find_layers(p.graph, teacher)} for p in self.theirs]
        self.rows = source.rows or {}

    def forget(self, path: str) -> None:
        """A layer has new weights: whatever was computed behind it is stale."""
        for program, layers in zip(self.mine, self.by_path, strict=True):
            program.forget(layers[path].output)

    def same_rows(self, path: str) -> bool:
        """Whether a layer answers as often in student and source; not where it runs over places and once for each channel."""
        other = self.theirs_by_path[0].get(path)
        if other is None:
            return True
        shapes = [list(layer.output.shape) for layer in (self.by_path[0][path], other)]
        for shape in shapes:
            del shape[_channel_dim(other)]
        return shapes[0] == shapes[1]

    def passes(self, target: Target) -> tuple[float, float] | None:
        """Between which bounds the response is read, by student and source alike; None: as it is, or not by rectifiers alone."""
        mine, theirs = self.by_path[0][target.path], self.theirs_by_path[0].get(target.path)
        if theirs is None or mine.passes != theirs.passes or (mine.other is None) != (theirs.other is None):
            return None
        return mine.passes if mine.other is None or target.feedback else None

    def gather(self, target: Target, parts: list[Moments]) -> None:
        """Rows of all images into the first of the moments, or of every fifth image into a second."""
        for batch in self._batches(target):
            held = _held_out(batch.x, batch.images) if len(parts) == 2 else None
            self._add(target, batch, parts, held)

    def gather_passing(self, target: Target, fit: Ridge, into: Moments) -> None:
        """Responses alone: those that pass the rectifier, and what the fit answers where both are cut off on one side."""
        bounds = self.passes(target)
        assert bounds is not None
        for batch in self._batches(target):
            now = _answers(batch, fit)
            wanted, given = (batch.y, now) if batch.other is None else (batch.y + batch.other, now + batch.other)
            # how far a response beyond a bound may go is free: as far as it goes now, if it is there
            free = torch.where(wanted <= bounds[0], given.clamp(max=bounds[0]), given.clamp(min=bounds[1]))
            inside = (wanted > bounds[0]) & (wanted < bounds[1])
            free = free if batch.other is None else free - batch.other
            self._add(target, replace(batch, y=torch.where(inside, batch.y, free)), [into], None, gram=False)

    def _batches(self, target: Target) -> Iterator[_Batch]:
        path, rows = target.path, self.rows.get(target.path)
        for k, (mine, theirs) in enumerate(zip(self.mine, self.theirs, strict=True)):
            layer, other = self.by_path[k][path], self.theirs_by_path[k].get(path)
            if other is None:
                raise BadModel(f"a source network has no layer {path!r} to match")
            use = target.feedback and layer.other is not None and other.other is not None
            point = other.response if use else other.own
            index = None if rows is None else torch.as_tensor(rows, device=mine.device)
            dim = _channel_dim(layer)
            asked = [layer.input, layer.other] if use and layer.other is not None else [layer.input]
            assert isinstance(mine.batches, ImageBatches)
            made = zip(mine.batches.bounds, mine.each(asked), theirs.each([point]), strict=True)
            for (before, after), (x, *besides), (y,) in made:
                if index is not None:
                    y = y.index_select(dim, index)
                if y.shape[dim] != layer.output.shape[dim]:
                    raise BadModel(
                        f"{path} makes {layer.output.shape[dim]} channels and is to match {y.shape[dim]} of a source;"
                        " give the source's channels that they stand for in Source.rows"
                    )
                if besides:
                    y = y - besides[0]
                if not bool(torch.isfinite(x).all() and torch.isfinite(y).all()):
                    raise BadData(f"activations at {path} became NaN or infinite in the batch from image {before} on")
                yield _Batch(layer, range(before, after), x, y, besides[0] if besides else None)

    def _add(
        self, target: Target, batch: _Batch, parts: list[Moments], held: Tensor | None, *, gram: bool = True
    ) -> None:
        """held: which entries of what the layer reads go into the second of the moments."""
        layer, x, y = batch.layer, batch.x, batch.y
        limit = self._limit(target, layer, x)
        if limit is None and has_windows(layer):
            for moments, some in _parted(parts, held):
                add_windows(moments, layer, x if some is None else x[some], y if some is None else y[some], gram=gram)
            return
        rows_x, rows_y = rows_of(layer, x, y, positions(layer, limit, target.seed, batch.images.start))
        for moments, some in _parted(parts, held):
            if some is not None:
                chosen = some.repeat_interleave(rows_x.shape[1] // len(some))
                moments.add(rows_x[:, chosen], rows_y[:, chosen])
            elif gram:
                moments.add(rows_x, rows_y)
            else:
                moments.add_responses(rows_x, rows_y)

    def _limit(self, target: Target, layer: Layer, x: Tensor) -> int | None:
        """How many places of an image are used; None: all."""
        places = target.places
        if places is None or layer.op is None:
            return None
        if isinstance(places, int):
            return places
        if has_windows(layer):
            return None
        kernel = layer.op.args[1].shape
        inputs, full = int(np.prod(kernel[1:])), int(np.prod(layer.output.shape[2:]))
        needed = -(-16 * inputs // self.images)  # enough of them to determine the weights
        row = x.shape[1] * int(np.prod(kernel[2:])) * x.element_size()  # bytes of what is read at one place
        room = PATCHES // (row * layer.output.shape[0])
        if x.is_cuda:
            return max(1, needed, min(full, room))
        cheap = full * kernel[0] // max(1, inputs)  # as many rows as make the Gram cost what the layer costs
        return max(1, needed, min(cheap, room))


def _channel_dim(layer: Layer) -> int:
    return 1 if layer.op is not None else -1


def _alike(model: nn.Module, like: Tensor) -> nn.Module:
    """The model itself, or a copy on the device and in the precision of the student."""
    floats = [t for t in [*model.parameters(), *model.buffers()] if t.is_floating_point()]
    if all(t.device == like.device and t.dtype == like.dtype for t in floats):
        return model
    return copy_module(model).to(like)


def _answers(batch: _Batch, fit: Ridge) -> Tensor:
    """What the layer answers with the weights of a fit."""
    layer, x = batch.layer, batch.x
    weight = fit.weight.to(x)  # (groups, inputs, outputs)
    bias = None if fit.bias is None else fit.bias.to(x).reshape(-1)
    if layer.op is None:
        return nn.functional.linear(x, weight[0].mT, bias)
    shape = layer.op.args[1].shape
    rank = len(shape) - 2
    stride, padding, dilation = (full_size(layer.op.args[k], rank) for k in (3, 4, 5))
    convolve = (nn.functional.conv1d, nn.functional.conv2d, nn.functional.conv3d)[rank - 1]
    return convolve(x, weight.mT.reshape(shape), bias, stride, padding, dilation, groups_of(layer))


def _parted(parts: list[Moments], held: Tensor | None) -> list[tuple[Moments, Tensor | None]]:
    return [(parts[0], None)] if held is None else [(parts[0], ~held), (parts[1], held)]


def _held_out(x: Tensor, images: range) -> Tensor | None:
    """Which entries of a layer's input are of every fifth image; None where it does not say which are of which image.

    Tokens and windows may lie in the first dimension together with the images, each image's one after the other.
    """
    count = len(images)
    behind = x.dim() > 2 and len(x) != count and x.shape[1] == count  # tokens first, then images
    if behind or len(x) % count:
        return None
    return (images.start + torch.arange(len(x), device=x.device) // (len(x) // count)) % 5 == 4
