"""Paper 2, Figures 4 and 5 and Table 5: how deep to cut, by which derivative, above which threshold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from brickwork.blueprint.plan import trace
from brickwork.bricks.compression import compress
from brickwork.bricks.depth import layers_in_order
from brickwork.data.pixels import as_input
from brickwork.origin import origin_of
from brickwork.prediction import device_of
from brickwork_lab.studies.registry import Row, Run, study
from brickwork_lab.studies.workshop import Workshop, accuracy

#: derivative: (accuracy, share of the size that went), Table 5
DERIVATIVES: dict[str, tuple[float | None, float | None]] = {
    "frat": (91.34, 22.74),
    "frat-negative": (32.30, 36.54),
    "frat-absolute": (87.76, 29.80),
    "contribution": (None, None),
    "taylor": (None, None),
}
THRESHOLDS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)


@study("lego-ablation", paper="2, Figures 4, 5, Table 5")
def lego_ablation(run: Run, *, archs: tuple[str, ...] | None = None) -> Iterator[Row]:
    """Depth, derivative and threshold of a cut, alone and with the layers matched afterwards."""
    shop = Workshop.of(run)
    source = "cifar10:A" if run.full else "digits:A"
    for arch in shop.archs(archs, ("vgg16",)):
        net, half = shop.network(arch, source), shop.data(source)
        whole = accuracy(net, half)
        images = as_input(half.train_images[:2], origin_of(net).preprocessing, device_of(net))
        layers = layers_in_order(trace(net, images))
        # '0' of Figure 4 is the last layer
        depths = [(f"depth {len(layers) - k} ({path})", {"depth": path}) for k, path in enumerate(layers, 1)]
        trials: list[tuple[str, float | None, float | None, dict[str, Any]]] = [
            (what, None, None, options) for what, options in (depths if run.full else depths[:2])
        ]
        trials += [
            (f"derivative {name}", *(found if run.full else (None, None)), {"attribution": name})
            for name, found in DERIVATIVES.items()
        ]
        trials += [
            (f"threshold {factor:g} × mean", None, None, {"threshold": factor})
            for factor in (THRESHOLDS if run.full else (0.5, 1.0))
        ]
        for what, paper, gone, options in trials:
            chosen = {"attribution": "frat", "threshold": 1.0, "depth": 2, **options}
            cut = compress(net, half, repair="none", seed=run.seed, progress=run.progress, **chosen)
            matched = compress(net, half, repair="match", seed=run.seed, progress=run.progress, **chosen)
            yield (
                {
                    "what": f"{arch}, {what}",
                    "paper": paper,
                    "ours": accuracy(cut.model, half),
                    "matched": accuracy(matched.model, half),
                    "whole": whole,
                    "paper_gone": gone,
                    "gone": round(100 * (1 - cut.parameters), 2),
                    "flops": round(cut.macs, 4),
                    "seed": run.seed,
                }
            )
