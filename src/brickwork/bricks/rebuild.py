"""What a network loses as the channels of a space go, once the layers that read them have made good for what they can."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.plan import CLASSES, Blueprint
from brickwork.blueprint.record import record
from brickwork.bricks.answers import Answers
from brickwork.devices import number_of
from brickwork.errors import BadData
from brickwork.moments.batches import SlicedImages
from brickwork.moments.collect import collect_moments
from brickwork.moments.elimination import Reader, eliminate
from brickwork.moments.gram import Moments
from brickwork.moments.layers import Layer, find_layers
from brickwork.moments.processes import share_batches, summed
from brickwork.progress import bar

GRAMS = 2**30  # bytes of Gram matrices held at a time; what does not fit is collected in further passes
ROWS = 8  # rows for every input of a layer, at the least
RIDGE = 1e-3  # of the mean variance of a layer's inputs; 1e-4 and 1e-2 choose as well (docs/bricks-studies.md)
PROBES = (0.4, 0.75)  # shares of a space after whose loss the answers are looked at


@dataclass(frozen=True)
class Curve:
    """Channels of a space in the order in which they go; damage[k]: what their loss does to the answers, k of them gone."""

    order: tuple[int, ...]
    damage: np.ndarray

    def kept(self, size: int, width: int) -> list[int]:
        """What is left at a width.

        >>> Curve((2, 0), np.zeros(3)).kept(4, 3)
        [0, 1, 3]
        """
        return sorted(set(range(size)) - set(self.order[: size - width]))

    def rank(self, size: int) -> np.ndarray:
        """A score of each channel: the later it goes, the better."""
        scores = np.full(size, float(size))
        scores[list(self.order)] = np.arange(len(self.order))
        return scores


def rebuild_curves(
    model: nn.Module,
    bp: Blueprint,
    images: SlicedImages,
    answers: Answers | None,
    *,
    spaces: Collection[str],
    batch_size: int = 100,
    seed: int = 0,
    progress: bool = True,
) -> dict[str, Curve]:
    """The curve of every space all of whose readers can be solved for; neither labels nor gradients are used.

    answers: measure the damage that they show; None: the order alone is wanted, and errors of the readers are good enough.
    """
    if len(images) < 2:
        raise BadData("channels are chosen on two images or more; give some hundred, labels are not needed.")
    like = number_of(model)
    layers = {layer.path: layer for layer in find_layers(record(model, images[0:2].to(like), output=bp.output), model)}
    wanted = [name for name in bp.spaces if name != CLASSES and name in spaces]
    read = {name: found for name in wanted if (found := _readers(bp, name, layers))}
    _, batches = share_batches(images, batch_size, like)
    curves: dict[str, Curve] = {}
    with bar("choosing channels", len(read), show=progress) as advance:
        for pack in _packs(model, read):
            paths = sorted({path for name in pack for path in read[name]})
            own = collect_moments(
                model,
                batches,
                layers=paths,
                places=_places(len(images), model),
                output=bp.output,
                seed=seed,
                progress=False,
            )
            moments = {path: summed(own[path]) for path in paths}
            for name in pack:
                curves[name] = _curve(model, bp, name, read[name], moments, answers)
                advance(1, name)
    return curves


def _curve(
    model: nn.Module,
    bp: Blueprint,
    name: str,
    read: Mapping[str, np.ndarray],
    moments: Mapping[str, Moments],
    answers: Answers | None,
) -> Curve:
    readers = {path: _group_readers(model, path, moments[path], channels) for path, channels in read.items()}
    size = bp.spaces[name]
    probes = sorted({max(1, round(size * share)) for share in PROBES}) if answers is not None else []
    gone = eliminate(
        [reader for group in readers.values() for reader in group],
        size,
        fixed=bp.space(name).fixed,
        cells=bp.cells(name),
        keep_weights=probes,
    )
    if answers is None:
        return Curve(gone.order, gone.errors)
    measured = []
    for count, weights in gone.weights.items():
        rest = iter(weights)
        changed = {}
        for path, group in readers.items():
            new = [next(rest) for _ in group]
            means = moments[path].sum_x / moments[path].rows
            shift = [mean @ (reader.weight - w) for mean, reader, w in zip(means, group, new, strict=True)]
            changed[path] = torch.cat([w.mT for w in new]), torch.cat(shift)
        measured.append((count, answers.with_weights(changed)))
    return Curve(gone.order, damage_between(gone.errors, measured))


def curve_of(
    whole: nn.Module, bp: Blueprint, name: str, order: tuple[int, ...], errors: np.ndarray, answers: Answers | None
) -> Curve:
    """The curve of channels whose order is known already. errors: what says how their damage grows between two looks."""
    measured = []
    probes = {max(1, round(len(order) * share)) for share in PROBES} if order and answers is not None else ()
    for count in sorted(probes):
        assert answers is not None
        kept = sorted(set(range(bp.spaces[name])) - set(order[:count]))
        measured.append((count, answers.changed(bp.zero(whole, {name: kept}))))
    return Curve(order, damage_between(errors, measured))


def damage_between(errors: np.ndarray, measured: list[tuple[int, float]]) -> np.ndarray:
    """Errors after each channel as damage to the answers: measured after some of them, between those by the errors' shape.

    >>> damage_between(np.array([0.0, 1.0, 2.0]), [(1, 0.5), (2, 2.0)]).tolist()
    [0.0, 0.5, 2.0]
    >>> damage_between(np.zeros(3), [(1, 0.5), (2, 2.0)]).tolist()  # of what no activation runs over, a rank say
    [0.0, 0.5, 2.0]
    """
    if not measured:
        return errors
    if not errors[-1] > 0:  # nothing says how damage grows between two looks: evenly
        errors = np.arange(len(errors), dtype=np.float64)
    shape = np.maximum(errors, max(1e-12 * float(errors[-1]), 1e-200))
    # between two measurements the factor changes with the logarithm of the error; before and behind them it stays
    factors = np.log([max(damage, 1e-300) / shape[count] for count, damage in measured])
    factor = np.exp(np.interp(np.log(shape), np.log([shape[count] for count, _ in measured]), factors))
    return np.maximum.accumulate(errors * factor)


def _readers(bp: Blueprint, name: str, layers: Mapping[str, Layer]) -> dict[str, np.ndarray]:
    """{layer: for each input channel its number in the space, -1 if it is of another}; none if one cannot be solved for."""
    places = np.full(len(bp.classes), -1)
    places[bp.space(name).units] = np.arange(bp.spaces[name])
    result: dict[str, np.ndarray] = {}
    for site in bp.sites:
        if site.kind not in ("conv", "linear") or site.reads is None:
            continue
        channels = places[site.reads]
        if not (channels >= 0).any():
            continue
        if site.groups > 1 and site.makes is not None and (places[site.makes] >= 0).any():
            continue  # a depthwise layer hands its channels on
        if site.module not in layers or site.module in result:
            return {}
        result[site.module] = channels
    return result


def _inputs(model: nn.Module, path: str) -> int:
    weight = model.get_submodule(path).weight
    assert isinstance(weight, Tensor)
    return weight[0].numel()


def _packs(model: nn.Module, read: Mapping[str, Mapping[str, np.ndarray]]) -> Iterator[list[str]]:
    """The spaces, some at a time, so that the Gram matrices of their readers fit."""
    pack: list[str] = []
    paths: set[str] = set()
    for name, own in read.items():
        if pack and sum(8 * _inputs(model, path) ** 2 for path in paths | set(own)) > GRAMS:
            yield pack
            pack, paths = [], set()
        pack.append(name)
        paths |= set(own)
    if pack:
        yield pack


def _places(images: int, model: nn.Module) -> Callable[[Layer], int]:
    def places(layer: Layer) -> int:
        return max(4, math.ceil(ROWS * _inputs(model, layer.path) / images))

    return places


def _group_readers(model: nn.Module, path: str, moments: Moments, channels: np.ndarray) -> list[Reader]:
    """A layer, group by group, with an error of its outputs counted against the variance of them all."""
    weight = model.get_submodule(path).weight
    assert isinstance(weight, Tensor)
    weights = weight.detach().double().flatten(1).unflatten(0, (len(moments.gram), -1)).mT
    mean_y = moments.sum_y / moments.rows
    variance = (moments.sum_yy / moments.rows - mean_y.square()).clamp(min=0).sum().clamp(min=1e-12)
    result = []
    for k, own in enumerate(np.split(channels, len(moments.gram))):
        mean = moments.sum_x[k] / moments.rows
        covariance = moments.gram[k] / moments.rows - torch.outer(mean, mean)
        diagonal = covariance.diagonal()
        # inputs that never change leave rounding errors of their squares
        rounding = 1e-6 * float(moments.gram[k].diagonal().max()) / moments.rows + 1e-12
        covariance = covariance + torch.diag((RIDGE * diagonal.mean()).clamp(min=rounding).expand_as(diagonal))
        places = np.repeat(own, len(weights[k]) // len(own))
        result.append(Reader(weights[k], covariance, (1 / variance).expand_as(mean_y[k]), places))
    return result
