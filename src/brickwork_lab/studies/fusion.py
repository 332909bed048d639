"""Paper 1, Tables 3 and 4, Figures 3 and 4: a whole network added to others, θ_i + αθ_A.

The same networks as in `gradient-assignment`. For trained θ_i, what the paper does not ask: is there a network that keeps
both tasks? Response matching on unlabelled images of both, with one head or with a head for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from brickwork.algebra import combine, fit_head, merge_on, own_heads
from brickwork.data.images import ImageData
from brickwork_lab.studies.cast import Cast, Play, Table, curves, own_share, scenes, share
from brickwork_lab.studies.family import Family, mean
from brickwork_lab.studies.registry import Row, Run, study

#: Table 3, the small scale on its 40 images
TABLE_3: Table = {
    0.1: (0.10, 0.10, 0.10, 0.08, 0.10),
    0.2: (0.10, 0.10, 0.10, 0.10, 0.10),
    0.3: (0.10, 0.10, 0.15, 0.13, 0.13),
    0.4: (0.23, 0.13, 0.18, 0.30, 0.23),
    0.5: (0.35, 0.28, 0.30, 0.48, 0.30),
    0.6: (0.48, 0.40, 0.43, 0.53, 0.43),
    0.7: (0.73, 0.53, 0.65, 0.60, 0.48),
    0.8: (0.70, 0.63, 0.80, 0.65, 0.50),
    0.9: (0.85, 0.70, 0.93, 0.70, 0.55),
    1.0: (0.88, 0.75, 0.90, 0.80, 0.63),
}
#: Table 4, the large scale on the test set, for trained networks
TABLE_4: Table = {
    0.1: (0.11, 0.11, 0.14, 0.08, 0.21),
    0.5: (0.11, 0.12, 0.14, 0.11, 0.15),
    1.0: (0.18, 0.22, 0.30, 0.26, 0.24),
    1.5: (0.30, 0.35, 0.43, 0.39, 0.34),
    2.0: (0.37, 0.43, 0.48, 0.45, 0.41),
    3.0: (0.43, 0.49, 0.51, 0.49, 0.47),
    4.0: (0.46, 0.52, 0.51, 0.50, 0.49),
    5.0: (0.47, 0.52, 0.51, 0.50, 0.50),
}
PAPER: dict[tuple[str, str, str], Table] = {
    ("small", "train", "random"): TABLE_3,
    ("large", "test", "trained"): TABLE_4,
}


@study("fusion", paper="1, Tables 3-4, Figures 3-4")
def fusion(run: Run, *, picks: tuple[str, ...] | None = None) -> Iterator[Row]:
    """Add α times a trained LeNet to five random and five trained ones; and merge two trained ones so that both last."""
    facts: Row = {"seed": run.seed, "unit": "share right"}
    for scale, split, casts in scenes(Family.of(run), picks):
        nets = [cast.teacher(scale) for cast in casts]
        paper = {("small", "train"): 1.0, ("large", "test"): 0.61}.get((scale, split)) if run.full else None
        each = [share(a, *cast.judged(split)) for a, cast in zip(nets, casts, strict=True)]
        yield {"what": f"{scale}, {split}: θ_A", "paper": paper, "ours": mean(each), "each": each, **facts}
        for kind in casts[0].thetas:
            plays = [
                Play(cast.ways(cast.thetas[kind], a), a, cast.judged(split))
                for cast, a in zip(casts, nets, strict=True)
                if cast.thetas[kind]
            ]
            what, table = f"{scale}, {split}: {kind} θ_i + αθ_A", PAPER.get((scale, split, kind), {})
            yield from curves(what, plays, table, facts, full=run.full)
    yield from _both(casts[0], casts[0].teacher(scale), facts)


def _both(cast: Cast, a: nn.Module, facts: Row) -> Iterator[Row]:
    """One network that keeps both tasks: the mean over the θ_i of each task's accuracy on its test images."""
    count = 2000 if cast.full else 200
    task = cast.family.data(cast.task)
    found: dict[str, list[tuple[float, float]]] = {}
    for theta, spec in zip(cast.thetas["trained"], cast.specs, strict=False):
        other = cast.family.data(spec)
        images = [_some(task, count), _some(other, count)]

        def note(way: str, first: nn.Module, second: nn.Module, other: ImageData = other) -> None:
            found.setdefault(way, []).append((own_share(first, task), own_share(second, other)))

        note("each network alone", a, theta)
        plain = combine([(0.5, a), (0.5, theta)])
        note("the mean of both", plain, plain)
        matched = merge_on([a, theta], images, "match", progress=False)
        note("responses matched", matched, matched)
        headed = fit_head(matched, [a, theta], images, ridge=1e-2)
        note("responses matched, one head fitted", headed, headed)
        first, second = own_heads(matched, [a, theta], images)
        note("responses matched, own heads", first, second)
    for way, pairs in found.items():
        yield {
            "what": f"θ_A and a trained θ_i in one network: {way}",
            "paper": None,
            "ours": mean([min(pair) for pair in pairs]),
            "task": mean([p[0] for p in pairs]),
            "other": mean([p[1] for p in pairs]),
            "each": [list(pair) for pair in pairs],
            **facts,
        }


def _some(images: ImageData, count: int) -> Any:
    """Images without labels, of all classes."""
    step = max(1, len(images.train_labels) // count)
    return images.train_images[::step][:count]
