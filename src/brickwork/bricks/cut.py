"""Cut a part out and repair it without labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor, nn

from brickwork.blueprint.building import locate
from brickwork.blueprint.plan import CLASSES, Blueprint
from brickwork.devices import number_of
from brickwork.errors import RequestError
from brickwork.moments import LayerFit, Source, match_responses, reestimate_batch_norm
from brickwork.moments.batches import ImageBatches, SlicedImages, fitting
from brickwork.outputs import in_rows, logits_of

REPAIRS = ("match", "bn", "none")
REFITS = 1  # of layers in front of rectifiers, to what passes them; see docs/bricks-studies.md


@dataclass(frozen=True)
class Cut:
    model: nn.Module
    kept: dict[str, list[int]]
    fits: tuple[LayerFit, ...] = ()


def cut_and_repair(
    model: nn.Module,
    bp: Blueprint,
    kept: dict[str, list[int]],
    classes: list[int],
    images: SlicedImages,
    *,
    repair: str = "match",
    ridge: float | None = None,
    shrink_to: str = "weights",
    batch_size: int | None = None,
    seed: int = 0,
    progress: bool = True,
    network: Callable[[nn.Module, dict[str, list[int]]], nn.Module] | None = None,
) -> Cut:
    """Select the kept channels and classes, then match the part's responses to the source's on unlabelled images.

    network: makes another module of the selected part, with the same layers, before it is repaired.
    """
    if repair not in REPAIRS:
        raise RequestError(f"repair must be one of {', '.join(REPAIRS)}, not {repair!r}")
    keep: dict[str, list[int]] = dict(kept)
    if bp.by_class:
        keep[CLASSES] = list(classes)
    part = bp.select(model, keep).eval()
    if network is not None:
        part = network(part, kept)
    if repair == "none":
        return Cut(part, keep)
    if repair == "bn":
        size = batch_size or fitting(part, images)
        return Cut(reestimate_batch_norm(part, ImageBatches(images, size, number_of(part))), keep)
    rows = response_rows(bp, keep)
    student, teacher = part, model
    if bp.output is not None:
        student, teacher = LogitsAlone(part, bp.output), LogitsAlone(model, bp.output).eval()
        rows = {f"net.{path}": result for path, result in rows.items()}
    matched = match_responses(
        student,
        [Source(teacher, images, rows)],
        ridge=ridge,
        shrink_to=shrink_to,
        layers=lambda path: path in rows or _outputs(student, path) == _outputs(teacher, path),
        refits=REFITS,
        batch_size=batch_size,
        seed=seed,
        progress=progress,
    )
    if not isinstance(matched.model, LogitsAlone):
        return Cut(matched.model, keep, matched.fits)
    fits = tuple(replace(fit, layer=fit.layer.removeprefix("net.")) for fit in matched.fits)
    return Cut(matched.model.net, keep, fits)


def _outputs(model: nn.Module, path: str) -> int:
    """How many a layer has. One that is cut and has no rows sees no image: it makes a parameter of a table, and is right so."""
    weight = model.get_submodule(path).weight
    assert isinstance(weight, Tensor)
    return len(weight)


class LogitsAlone(nn.Module):
    """A network that may return several things, as one that returns the logits alone, of all classes or of some."""

    def __init__(self, net: nn.Module, output: str | int | None, classes: list[int] | None = None) -> None:
        super().__init__()
        self.net, self.output, self.classes = net, output, classes

    def forward(self, x: Tensor) -> Tensor:
        logits = in_rows(logits_of(self.net(x), self.output))
        return logits if self.classes is None else logits[:, self.classes]


def response_rows(bp: Blueprint, keep: dict[str, list[int]]) -> dict[str, np.ndarray]:
    """For every layer, which of the whole network's outputs the part's outputs stand for."""
    gone = {int(u) for name, ids in keep.items() for u in np.delete(bp.space(name).units, ids)}
    lost = np.fromiter(gone, np.int64, len(gone))
    order, units = keep.get(CLASSES), bp.space(CLASSES).units if CLASSES in bp.spaces else np.zeros(0, np.int64)
    # classes asked for in an order of their own: where each stood, another one stands
    to = {} if order is None else dict(zip(units[sorted(order)].tolist(), units[order].tolist(), strict=True))
    rows = {}
    for site in bp.sites:
        if site.kind in ("conv", "linear") and site.makes is not None:
            rows[site.module] = np.flatnonzero(~np.isin(site.makes, lost))
            made = [to.get(u, u) for u in site.makes[rows[site.module]].tolist()]
            if len(set(made)) == len(made) and np.isin(made, site.makes).all():
                rows[site.module] = locate(site.makes, np.array(made, np.int64)) if made else rows[site.module]
    return rows
