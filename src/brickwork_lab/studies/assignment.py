"""Paper 1, Tables 1 and 2, Figures 1 and 2: what one network learned, added to networks it never met.

A LeNet is trained on CIFAR-10 from θ₀, on 4 or 100 images a class or on all; g is what training added. g goes to five
random starts and to five networks trained on other images, α times: θ_i + αg.

The recipe decides what is seen. What matters is that g outweighs a start: plain gradient descent on pixels from 0 to 1 gives
the paper's curve (40 images, lr 0.095, five starts: g alone 0.69, α=1 0.43, α=5 0.72; lr 0.07, three starts: 0.68, 0.32,
0.68); Adam at 1e-3 reaches the same training accuracy with a g that is worth little without its start (0.28, 0.20, 0.29).
"""

from __future__ import annotations

from collections.abc import Iterator

from brickwork.algebra import combine
from brickwork_lab.studies.cast import Play, Table, curves, scenes, share
from brickwork_lab.studies.family import Family, mean
from brickwork_lab.studies.registry import Row, Run, study

#: Table 1, on the 40 images of the small scale; and the accuracy of θ_A and of g alone
TABLE_1: Table = {
    0.01: (0.10, 0.10, 0.10, 0.10, 0.10),
    0.1: (0.10, 0.10, 0.10, 0.07, 0.10),
    0.2: (0.10, 0.07, 0.05, 0.07, 0.10),
    0.5: (0.12, 0.17, 0.07, 0.20, 0.25),
    0.8: (0.17, 0.30, 0.27, 0.32, 0.32),
    1.0: (0.35, 0.35, 0.42, 0.35, 0.40),
    5.0: (0.75, 0.72, 0.72, 0.77, 0.72),
    10.0: (0.77, 0.80, 0.72, 0.77, 0.75),
    20.0: (0.77, 0.80, 0.77, 0.77, 0.75),
    30.0: (0.77, 0.80, 0.77, 0.77, 0.77),
    40.0: (0.77, 0.80, 0.77, 0.77, 0.77),
}
#: Table 2, the large scale on the test set, for trained networks
TABLE_2: Table = {
    0.01: (0.10, 0.12, 0.13, 0.07, 0.23),
    0.1: (0.11, 0.11, 0.14, 0.08, 0.21),
    0.2: (0.11, 0.10, 0.14, 0.09, 0.18),
    0.5: (0.11, 0.11, 0.13, 0.11, 0.15),
    0.8: (0.12, 0.14, 0.17, 0.12, 0.17),
    1.0: (0.13, 0.16, 0.20, 0.15, 0.20),
    2.0: (0.25, 0.30, 0.35, 0.29, 0.32),
    3.0: (0.30, 0.35, 0.38, 0.35, 0.36),
    4.0: (0.33, 0.37, 0.39, 0.36, 0.37),
    5.0: (0.35, 0.38, 0.39, 0.37, 0.38),
    10.0: (0.37, 0.39, 0.39, 0.38, 0.38),
    20.0: (0.37, 0.38, 0.38, 0.38, 0.38),
    30.0: (0.37, 0.38, 0.38, 0.38, 0.38),
    40.0: (0.37, 0.38, 0.38, 0.37, 0.38),
}
PAPER: dict[tuple[str, str, str], Table] = {
    ("small", "train", "random"): TABLE_1,
    ("large", "test", "trained"): TABLE_2,
}
ALONE = {("small", "train"): (1.0, 0.72), ("large", "test"): (0.61, 0.40)}  # θ_A, g


@study("gradient-assignment", paper="1, Tables 1-2, Figures 1-2")
def gradient_assignment(run: Run, *, picks: tuple[str, ...] | None = None) -> Iterator[Row]:
    """Add α times what a LeNet learned to five random and five trained networks, at three scales."""
    facts: Row = {"seed": run.seed, "unit": "share right"}
    for scale, split, casts in scenes(Family.of(run), picks):
        nets = [cast.teacher(scale) for cast in casts]
        gs = [combine([(1.0, a), (-1.0, cast.zero)]) for a, cast in zip(nets, casts, strict=True)]
        known = ALONE.get((scale, split), (None, None)) if run.full else (None, None)
        for who, models, paper in zip(("θ_A", "g alone"), (nets, gs), known, strict=True):
            each = [share(model, *cast.judged(split)) for model, cast in zip(models, casts, strict=True)]
            yield {"what": f"{scale}, {split}: {who}", "paper": paper, "ours": mean(each), "each": each, **facts}
        for kind in casts[0].thetas:
            plays = [
                Play(cast.ways(cast.thetas[kind], cast.zero), g, cast.judged(split))
                for cast, g in zip(casts, gs, strict=True)
                if cast.thetas[kind]
            ]
            what, table = f"{scale}, {split}: {kind} θ_i + αg", PAPER.get((scale, split, kind), {})
            yield from curves(what, plays, table, facts, full=run.full)
