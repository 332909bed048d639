"""Paper 5, Table 1, over all classes: each class's logit replaced by a few others', within a network and between two.

The paper shows six picked classes. Here every class is replaced in turn and the whole distribution is kept: its own
images right before and after, all images, relative errors. Three estimators side by side: the paper's, the
class-balanced one, and the decision-aware one. They are fitted on some images and measured on others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from brickwork.dependencies import CovLasso, DependencyMap, fit_map
from brickwork.dependencies.sources import shared_logits
from brickwork.errors import UnknownName
from brickwork.prediction import predict
from brickwork_lab.studies.registry import Row, Run, study
from brickwork_lab.studies.workshop import Workshop

NETWORKS = ("efficientnet_lite0", "efficientnet_lite2")
#: positive accuracy kept in the paper's Table 1, per cent, each of one picked class: R-50, and R-50 → Swin-T
PAPER = {"within": 100.0, "between": 97.9}
#: others a class may use, and the share of each class's images that is measured on
LIMITS = {"imagenet": (20, 0.4), "cifar100": (10, 0.5), "digits": (4, 0.5)}
ESTIMATORS: dict[str, dict[str, Any]] = {
    "plain": {"loss": "plain"},
    "plain, refitted": {"loss": "plain", "refit": True},
    "balanced": {"loss": "balanced", "refit": True},
    "balanced, greedy": {"loss": "balanced", "selection": "greedy"},
    "decision": {"loss": "decision", "selection": "greedy"},
}


@dataclass(frozen=True)
class Network:
    """Logits of one network; rows of all networks of a set are the same images."""

    name: str
    logits: np.ndarray


@study("dependency", paper="5, Table 1")
def dependency(
    run: Run, *, sets: tuple[str, ...] | None = None, archs: tuple[str, ...] | None = None, splits: int | None = None
) -> Iterator[Row]:
    """Replace every class's logit by a few others': accuracy kept, within one network and between two."""
    for source in sets or (("imagenet",) if run.full else ("digits",)):
        if source not in LIMITS:
            raise UnknownName("set of this study", source, LIMITS)
        shop = Workshop.of(run)
        found_in, labels, names = _networks(shop, source, archs)
        limit, holdout = LIMITS[source]
        draws = splits or (5 if run.full else 1)
        for title, features, targets, own in _pairs(found_in):
            for name, options in ESTIMATORS.items():
                began = time.process_time()
                found = [
                    fit_map(
                        features.logits,
                        labels,
                        targets=None if targets is None else targets.logits,
                        names=names,
                        holdout=holdout,
                        seed=run.seed + k,
                        model=CovLasso(max_dependencies=limit, own=own, **options),
                    )
                    for k in range(draws)
                ]
                row = _row(found, targets is not None)
                seconds = round((time.process_time() - began) / draws, 1)
                what = f"{source} {title}, {name}, at most {limit} others"
                yield {"what": what, **row, "cpu_seconds": seconds, "seed": run.seed}


def _pairs(networks: list[Network]) -> Iterator[tuple[str, Network, Network | None, bool]]:
    for network in networks:
        yield f"within {network.name}", network, None, False
    for f in networks:
        for g in networks:
            if f is not g:
                yield f"{f.name} → {g.name}", f, g, False
    f, g = networks[:2]
    yield f"{f.name} → {g.name} with the class itself", f, g, True


def _row(maps: list[DependencyMap], between: bool) -> Row:
    """Means over the splits; quantiles and shares over all classes of all splits."""
    found = [m.summary() for m in maps]
    kept = [100 * s["positive_after"] / s["positive_before"] for s in found]
    changes = [s["total_change_points"] for s in found]
    own = np.concatenate([m.columns["positive_after"] - m.columns["positive_before"] for m in maps])
    errors = np.concatenate([m.columns["rel_error"] for m in maps])
    all_changes = np.concatenate([100 * (m.columns["accuracy_after"] - m.columns["accuracy_before"]) for m in maps])
    proofs = np.concatenate([m.columns["kkt"] for m in maps])
    screening = maps[0].facts["screening"]
    row: Row = {
        "paper": PAPER["between" if between else "within"],
        "ours": round(float(np.mean(kept)), 2),
        "ours_range": [round(min(kept), 2), round(max(kept), 2)],
        "total_change": round(float(np.mean(changes)), 4),
        "total_change_range": [round(min(changes), 4), round(max(changes), 4)],
        "total_change_quantiles": _quantiles(all_changes),
        "positive_before": round(100 * float(np.mean([s["positive_before"] for s in found])), 2),
        "positive_after": round(100 * float(np.mean([s["positive_after"] for s in found])), 2),
        "classes_no_worse": round(100 * float(np.mean(own[~np.isnan(own)] >= 0)), 1),
        "rel_error_quantiles": _quantiles(errors),
        "dependencies": float(np.median([s["dependencies"] for s in found])),
        "kkt": None if np.isnan(proofs).any() else float(proofs.max()),
        "fitted_on": maps[0].facts["rows_fitted"],
        "measured_on": maps[0].facts["rows_measured"],
        "splits": len(maps),
    }
    if screening is not None:
        row["conjecture_1_violated"] = screening["conjecture_1"]["violated"]
        row["dependencies_in_all"] = screening["dependencies"]
    return row


def _quantiles(column: np.ndarray) -> list[float]:
    """10, 25, 50, 75 and 90 per cent."""
    return [round(float(v), 3) for v in np.nanquantile(column, [0.1, 0.25, 0.5, 0.75, 0.9])]


def _networks(
    shop: Workshop, source: str, archs: tuple[str, ...] | None
) -> tuple[list[Network], np.ndarray, list[str]]:
    if source == "imagenet":
        files = [shared_logits(name) for name in NETWORKS]
        assert files[0].labels is not None
        networks = [Network(n, f.logits.astype(np.float32)) for n, f in zip(NETWORKS, files, strict=True)]
        return networks, files[0].labels, list(files[0].names or ())
    images = shop.data(source)
    networks = []
    # logits of images the networks were trained on look like no other's: fitted and measured on test images
    for k, arch in enumerate(archs or (("lenet", "lenet") if source == "digits" else ("resnet18", "vgg16"))):
        own = replace(shop, seed=shop.seed + k, _nets={})  # two of one architecture start from different weights
        model = own.network(arch, source)
        networks.append(Network(f"{arch} {k + 1}", predict(model, images.test_images).numpy()))
    return networks, np.asarray(images.test_labels), list(images.classes)
