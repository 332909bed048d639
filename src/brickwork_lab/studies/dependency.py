"""Paper 5, Table 1, over all classes: each class's logit replaced by a few others', within a network and between two.

The paper shows six picked classes. Here every class is replaced in turn and the whole distribution is kept: its own
images right before and after, all images, relative errors. Three estimators side by side: the paper's, the
class-balanced one, and the decision-aware one. They are fitted on some images and measured on others.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from brickwork.dependencies import DependencyMap
from brickwork.dependencies.mapping import fit_map
from brickwork.prediction import predict
from brickwork_lab import imagenet
from brickwork_lab.judging import mean
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, check_names, study

#: positive accuracy kept in the paper's Table 1, per cent, each of one picked class of ImageNet: of ResNet-18, the one
#: network that is here too, and least and most within its four networks and between two of them
PAPER = {"resnet18": 85.7}
PAPER_RANGE = {"within": (85.7, 102.2), "between": (94.0, 97.9)}
#: how many others a class may use, and the share of each class's images that is measured on
LIMITS = {"imagenet": (20, 0.4), "cifar100": (10, 0.5), "digits": (4, 0.5)}
ESTIMATORS: dict[str, dict[str, Any]] = {
    "plain": {"loss": "plain"},
    "plain, refitted": {"loss": "plain", "refit": True},
    "balanced": {"loss": "balanced", "refit": True},
    "balanced, greedy": {"loss": "balanced", "selection": "greedy"},
    "decision": {"loss": "decision", "selection": "greedy"},
}


Networks = dict[str, np.ndarray]  # logits by the network's name; the rows of all are the same images


@study("dependency", paper="5, Table 1")
def dependency(lab: Lab, *, sets: Names = None, archs: Names = None, splits: int | None = None) -> Iterator[Row]:
    """Replace every class's logit by a few others': accuracy kept, within one network and between two."""
    sets = sets or (("imagenet",) if lab.full else ("digits",))
    check_names("set of this study", sets, LIMITS)
    draws = splits or (5 if lab.full else 1)
    for source in sets:
        networks, labels, names = _networks(lab, source, archs)
        limit, holdout = LIMITS[source]
        for title, features, targets, own in _pairs(networks):
            for name, options in ESTIMATORS.items():
                began = time.process_time()
                common: dict[str, Any] = {"targets": targets, "names": names, "holdout": holdout}
                common |= {"max_dependencies": limit, "own": own, **options}
                maps = [fit_map(features, labels, seed=lab.seed + k, **common) for k in range(draws)]
                row = _row(maps, targets is not None)
                if targets is None and title.split()[1] in PAPER:
                    row |= {"paper": PAPER[title.split()[1]], "paper_range": None}
                seconds = round((time.process_time() - began) / draws, 1)
                what = f"{source} {title}, {name}, at most {limit} others"
                yield {"what": what, **row, "cpu_seconds": seconds, "seed": lab.seed}


def _pairs(networks: Networks) -> Iterator[tuple[str, np.ndarray, np.ndarray | None, bool]]:
    for name, logits in networks.items():
        yield f"within {name}", logits, None, False
    pairs = [(f, g) for f in networks for g in networks if f != g]
    for f, g in pairs:
        yield f"{f} → {g}", networks[f], networks[g], False
    f, g = pairs[0]
    yield f"{f} → {g} with the class itself", networks[f], networks[g], True


def _row(maps: list[DependencyMap], between: bool) -> Row:
    """Means over the splits; quantiles and shares over all classes of all splits."""
    summaries = [m.summary() for m in maps]
    columns = {name: np.concatenate([m.columns[name] for m in maps]) for name in maps[0].columns}
    positive = {f"positive_{w}": [s[f"positive_{w}"] for s in summaries] for w in ("before", "after")}
    kept = [100 * s["positive_after"] / s["positive_before"] for s in summaries]
    changes = [s["total_change_points"] for s in summaries]
    own = columns["positive_after"] - columns["positive_before"]
    screening = maps[0].facts["screening"]
    row: Row = {
        "paper": None,
        "paper_range": list(PAPER_RANGE["between" if between else "within"]),
        "ours": mean(kept),
        "ours_range": [round(min(kept), 2), round(max(kept), 2)],
        "total_change": mean(changes, 4),
        "total_change_range": [round(min(changes), 4), round(max(changes), 4)],
        "total_change_quantiles": _quantiles(100 * (columns["accuracy_after"] - columns["accuracy_before"])),
        **{name: round(100 * float(np.mean(values)), 2) for name, values in positive.items()},
        "classes_no_worse": round(100 * float(np.mean(own[~np.isnan(own)] >= 0)), 1),
        "rel_error_quantiles": _quantiles(columns["rel_error"]),
        "dependencies": float(np.median([s["dependencies"] for s in summaries])),
        "kkt": None if np.isnan(columns["kkt"]).any() else float(columns["kkt"].max()),
        **{f"{part}_on": maps[0].facts[f"rows_{part}"] for part in ("fitted", "measured")},
        "splits": len(maps),
    }
    if screening is not None:
        row["conjecture_1_violated"] = screening["conjecture_1"]["violated"]
        row["dependencies_in_all"] = screening["dependencies"]
    return row


def _quantiles(column: np.ndarray) -> list[float]:
    """10, 25, 50, 75 and 90 per cent."""
    return [round(float(v), 3) for v in np.nanquantile(column, [0.1, 0.25, 0.5, 0.75, 0.9])]


def _networks(lab: Lab, source: str, archs: Names) -> tuple[Networks, np.ndarray, list[str]]:
    if source == "imagenet":
        files = {name: imagenet.logits_of(name) for name in imagenet.NETWORKS}
        first = files[imagenet.NETWORKS[0]]
        assert first.labels is not None
        return {n: f.logits.astype(np.float32) for n, f in files.items()}, first.labels, list(first.names or ())
    images = lab.data(source)
    networks = {}
    # logits of images the networks were trained on look like no other's: fitted and measured on test images
    for k, arch in enumerate(archs or (("lenet", "lenet") if source == "digits" else ("resnet18", "vgg16"))):
        model = lab.reseeded(k).network(arch, source)  # two of one architecture start from different weights
        networks[f"{arch} {k + 1}"] = predict(model, images.test_images).numpy()
    return networks, np.asarray(images.test_labels), list(images.classes)
