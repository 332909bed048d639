"""`routes`: the channels that decide for a class, layer by layer."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from brickwork.blueprint.plan import CLASSES, Blueprint
from brickwork.bricks.options import RoutesOptions
from brickwork.bricks.route_sets import RouteLayer, Routes
from brickwork.bricks.samples import Data, pair_of
from brickwork.bricks.scores import Scores, score_channels
from brickwork.bricks.subject import Classes, Subject, prepare
from brickwork.bricks.widths import by_threshold
from brickwork.data.images import ImageData
from brickwork.devices import DeviceLike
from brickwork.errors import BadData
from brickwork.options import takes
from brickwork.origin import origin_of
from brickwork.store import state_hash


@takes(RoutesOptions)
def routes(
    model: nn.Module,
    data: Data,
    classes: Classes = None,
    *,
    device: DeviceLike | None = None,
    progress: bool = True,
    options: RoutesOptions,
) -> Routes:
    """The decision route of each class: the channels of every layer that score above `threshold` × the layer's mean.

    That is what `disassemble(model, [name], data, attribution=…, threshold=…)` keeps for the class alone on the
    same images (paper 2, §6.3 and A.1). data: (images, labels) or an ImageData, whose training split is used.
    classes: names, numbers or the text of a data spec; None: all that the data has. scored: images that score
    channels, as many of each class. Every channel of the input is on every route, and of the output only the class
    itself. The model is left unchanged.

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
    >>> x = torch.randn(200, 4)
    >>> found = routes(net, (x, net(x).argmax(1)), [2, 0], attribution="taylor")
    >>> [layer.name for layer in found.layers], found.sharing("classes")
    (['input', '0', 'classes'], 0.0)
    >>> 0 < found.sharing("0", "2", "0") < 1
    True
    """
    attribution, seed = options.attribution, options.seed
    asked = _present(model, data) if classes is None else classes
    subject = prepare(model, asked, data, device=device, output=options.output, seed=seed)
    bp, known, wanted = subject.bp, subject.known, subject.wanted
    scores = _scored(subject, options.scored, attribution=attribution, seed=seed, progress=progress)
    silent = [known[k] for k in wanted if scores.counts[k] == 0]
    if silent:
        raise BadData(
            f"{attribution} scores only images the model is sure of, and there are none of {', '.join(silent)}; "
            "train the model further, or choose another attribution, such as taylor."
        )
    names = {k: known[k] if known.count(known[k]) == 1 else f"{known[k]} ({k})" for k in wanted}
    return Routes(
        classes=tuple(names.values()),
        layers=_layers(bp, scores, names, options.threshold, inputs=subject.samples.inputs(np.zeros(1, int)).shape[1]),
        network=origin_of(model).arch or type(model).__name__,
        images={name: int(scores.counts[k]) for k, name in names.items()},
        options=options,
        source=state_hash(model),
    )


def _present(model: nn.Module, data: Data) -> Classes:
    """The classes that there are images of, as the model knows them; None where it knows none of them."""
    labels = np.unique(pair_of(data)[1]).tolist()
    known = origin_of(model).classes
    if not isinstance(data, ImageData) or known is None:
        return labels
    return [data.classes[k] for k in labels if data.classes[k] in known] or None


def _scored(subject: Subject, scored: int, *, attribution: str, seed: int, progress: bool) -> Scores:
    """Scores of one class at a time: a class has the same route whichever others it is drawn with."""
    samples, wanted = subject.samples, subject.wanted
    result = []
    for k in wanted:
        index = samples.of_classes([k], max(1, scored // len(wanted)), seed)
        labels = torch.from_numpy(samples.labels[index]).to(samples.device)
        result.append(
            score_channels(
                subject.whole, subject.bp, samples.inputs(index), labels, attribution=attribution, progress=progress
            )
        )
    tables = {name: np.sum([one.scores[name] for one in result], 0) for name in result[0].scores}
    return Scores(tables, np.sum([one.counts for one in result], 0), attribution)


def _layers(
    bp: Blueprint, scores: Scores, names: dict[int, str], threshold: float, *, inputs: int
) -> tuple[RouteLayer, ...]:
    """The input, every scored space in the network's order, the classes."""
    kept = {
        k: by_threshold(bp, {space: table[[k]] for space, table in scores.scores.items()}, threshold) for k in names
    }
    first = "input"
    while first in bp.spaces:
        first += "'"
    reads = _reads(bp, first)
    everything = tuple(range(inputs))
    columns = [RouteLayer(first, "input", inputs, dict.fromkeys(names.values(), everything))]
    for space, table in scores.scores.items():
        if not table[list(names)].any():
            continue  # nothing that responds is made there, such as a parameter that is added to a layer
        columns.append(
            RouteLayer(
                name=space,
                kind="layer",
                size=bp.spaces[space],
                on={name: tuple(kept[k][space]) for k, name in names.items()},
                scores={name: tuple(table[k].tolist()) for k, name in names.items()},
                made_by=tuple(bp.space(space).made_by),
                reads=reads.get(space, ()),
                fixed=len(bp.space(space).fixed),
            )
        )
    own: dict[str, tuple[int, ...]] = {name: (k,) for k, name in names.items()}
    made_by = tuple(bp.space(CLASSES).made_by)
    size = bp.spaces[CLASSES]
    columns.append(RouteLayer(CLASSES, "classes", size, own, made_by=made_by, reads=reads.get(CLASSES, ())))
    return tuple(columns)


def _reads(bp: Blueprint, first: str) -> dict[str, tuple[str, ...]]:
    """For every space, the spaces its layers are computed from; `first` stands for the input."""
    result: dict[str, dict[str, None]] = {}
    for site in bp.sites:
        if site.kind not in ("conv", "linear") or site.makes is None:
            continue
        made = {bp.place(int(u))[0] for u in np.unique(site.makes) if bp.has_place(int(u))}
        units = np.unique(site.makes[:0] if site.reads is None else site.reads)  # None: it reads the images
        read = dict.fromkeys(bp.place(int(u))[0] for u in units if bp.has_place(int(u))) or {first: None}
        for space in made:
            result.setdefault(space, {}).update({name: None for name in read if name != space})
    return {space: tuple(names) for space, names in result.items()}
