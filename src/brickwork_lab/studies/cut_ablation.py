"""Paper 2, Figures 4 and 5, Table 5: depth, derivative and threshold of a cut, one factor at a time."""

from collections.abc import Iterator
from typing import Any

from brickwork.blueprint.plan import trace
from brickwork.bricks.compression import compress as shrink
from brickwork.bricks.depth import layers_in_order
from brickwork.data.pixels import as_input
from brickwork.devices import device_of
from brickwork.origin import origin_of
from brickwork_lab.judging import accuracy
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, study

#: derivative: (accuracy, share of the size that went), Table 5
DERIVATIVES: dict[str, Any] = {"frat": (91.34, 22.74), "frat-negative": (32.30, 36.54), "frat-absolute": (87.76, 29.80)}
DERIVATIVES |= {"contribution": None, "taylor": None}  # not in the paper
THRESHOLDS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)


@study("lego-ablation", paper="2, Figures 4, 5, Table 5")
def lego_ablation(lab: Lab, *, archs: Names = None) -> Iterator[Row]:
    """Depth, derivative and threshold of a cut, alone and with the layers matched afterwards."""
    source = "cifar10:A" if lab.full else "digits:A"
    for arch in lab.archs(archs, ("vgg16",)):
        net, half = lab.network(arch, source), lab.data(source)
        whole = accuracy(net, half)
        images = as_input(half.train_images[:2], origin_of(net).preprocessing, device_of(net))
        layers = layers_in_order(trace(net, images))
        # '0' of Figure 4 is the last layer
        depths = [(f"depth {len(layers) - k} ({path})", path) for k, path in enumerate(layers, 1)]
        trials: dict[str, dict[str, Any]] = {
            **{what: {"depth": path} for what, path in (depths if lab.full else depths[:2])},
            **{f"derivative {name}": {"attribution": name} for name in DERIVATIVES},
            **{f"threshold {t:g} × mean": {"threshold": t} for t in (THRESHOLDS if lab.full else (0.5, 1.0))},
        }
        for what, options in trials.items():
            settings = {"attribution": "frat", "threshold": 1.0, "depth": 2, **options}
            settings |= {"seed": lab.seed, "progress": lab.progress}
            known = DERIVATIVES.get(options.get("attribution", "")) if lab.full else None
            paper, gone = known or (None, None)
            plain, matched = (shrink(net, half, repair=repair, **settings) for repair in ("none", "match"))
            row: Row = {"what": f"{arch}, {what}", "paper": paper, "ours": accuracy(plain.model, half)}
            row |= {"matched": accuracy(matched.model, half), "whole": whole, "paper_gone": gone}
            row |= {"gone": round(100 * (1 - plain.parameters), 2), "flops": round(plain.macs, 4)}
            yield {**row, "seed": lab.seed}
