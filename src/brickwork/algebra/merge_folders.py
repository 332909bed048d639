"""Model folders merged on images: loaded, compared, merged, and judged on the test images of every data set.

A search over the numbers of a merge that is told to choose on test images gets half of them; the other half judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from brickwork import data as data_sets
from brickwork import store
from brickwork.algebra.agreement import refuse_differences
from brickwork.algebra.data_methods import find
from brickwork.algebra.inputs import refuse_other_sizes
from brickwork.algebra.options import MergeOptions, MergeSearchOptions
from brickwork.algebra.searching import search_merge
from brickwork.algebra.states import shapes_of
from brickwork.algebra.with_data import merge_on
from brickwork.data.images import ImageData, drawn_images, hold_out
from brickwork.devices import DeviceLike
from brickwork.errors import BadData
from brickwork.origin import origin_of
from brickwork.outputs import accuracy_of, in_rows
from brickwork.prediction import predict


@dataclass(frozen=True)
class MergeTask:
    """How to merge: the method with its own options, and which images it looks at."""

    method: str
    weights: Sequence[float] | None
    options: dict[str, Any]
    split: str
    images: int
    seed: int
    search: MergeSearchOptions | None = None
    merging: MergeOptions = field(default_factory=MergeOptions)  # of a search


def merge_folders(
    models: Sequence[Path],
    base: Path | None,
    specs: Sequence[Any],
    task: MergeTask,
    *,
    arch: Any = None,
    device: DeviceLike = "cpu",
) -> tuple[nn.Module, dict[str, Any]]:
    """The merged network, and where it comes from: folders by hash, data, accuracy on the test images."""
    folders = [*models, *([base] if base else [])]
    hashes = {str(folder): store.read_config(folder).weights.state_hash for folder in folders}
    loaded = [store.load(folder, arch=arch, device=device) for folder in folders]
    nets = loaded[: len(models)]
    named = zip(folders, loaded, strict=True)
    refuse_differences(shapes_of({str(folder): net for folder, net in named}))
    refuse_other_sizes([origin_of(net).preprocessing for net in nets], models)
    sets = [_load(nets[0], spec, task.split, task.seed) for spec in specs]
    labels = find(task.method).needs_labels or task.search is not None
    choosing = sets
    if task.search is not None and task.split == "test":
        choosing, sets = ([_half(one, k) for one in sets] for k in range(2))
    given = [_some(nets, one, task, labels) for one in choosing]
    origin = loaded[-1] if base else None
    if task.search is None:
        merged = merge_on(nets, given, task.method, base=origin, weights=task.weights, **task.options)
    else:
        said: dict[str, Any] = {**task.options, **({} if task.weights is None else {"weights": task.weights})}
        found = search_merge(nets, given, task.method, base=origin, options=task.merging, searching=task.search, **said)
        assert found.model is not None
        merged = found.model
    judged = {str(spec): _accuracy(nets, merged, one) for spec, one in zip(specs, sets, strict=True)}
    return merged, {
        "models": {str(m): hashes[str(m)] for m in models},
        **({"base": {str(base): hashes[str(base)]}} if base else {}),
        "data": [str(spec) for spec in specs],
        "split": task.split,
        "seed": task.seed,
        "test_accuracy": judged,
    }


def _half(one: ImageData, number: int) -> ImageData:
    """One of two halves of the test images, of every class."""
    part = hold_out(one.test_labels, 0.5)[number]
    return replace(one, test_images=one.test_images[part], test_labels=one.test_labels[part], test_masks=None)


def _load(model: nn.Module, spec: Any, split: str, seed: int) -> ImageData:
    origin = origin_of(model)
    if origin.preprocessing is not None:
        return data_sets.load_for(origin.preprocessing, spec, seed=seed, split=split)
    size, channels = None, None
    if origin.input_shape is not None and len(origin.input_shape) == 3:
        channels, *sides = origin.input_shape
        size = (sides[0], sides[1])
    return data_sets.load(spec, seed=seed, split=split, size=size, channels=channels)


def _some(nets: Sequence[nn.Module], one: ImageData, task: MergeTask, labels: bool) -> Any:
    """At most `count` images of a set, drawn with the seed; with their labels as numbers of outputs if wanted."""
    raw, answers, _ = one.split(task.split)
    if len(raw) == 0:
        raise BadData(f"{one.name} has no {task.split} images; choose another `split` or `data`.")
    if not labels:
        return drawn_images(raw, task.images, task.seed)
    outputs = _outputs(nets, one)
    if outputs is None:
        raise BadData(
            f"the classes of {one.name} are neither those of a model nor among the first model's; select classes, as in "
            f"{one.name.split(':')[0]}:0-4."
        )
    return drawn_images(raw, task.images, task.seed), drawn_images(outputs[answers], task.images, task.seed)


def _outputs(nets: Sequence[nn.Module], one: ImageData) -> np.ndarray | None:
    """Which output stands for each class of a data set: that of its name; None where no model says.

    Where the classes are just those of one of the models, its own order is right for all: they share their outputs.
    """
    known = [origin_of(net).classes for net in nets]
    if known[0] is None or one.classes in known:
        return np.arange(len(one.classes))
    if set(one.classes) <= set(known[0]):
        return np.array([known[0].index(name) for name in one.classes])
    return None


def _accuracy(nets: Sequence[nn.Module], merged: nn.Module, one: ImageData) -> float | None:
    """On the test images, prepared as the merged network prepares them; None without any."""
    outputs = _outputs(nets, one)
    if outputs is None or len(one.test_images) == 0:
        return None
    logits = in_rows(predict(merged, one.test_images))
    return None if logits.shape[1] == 1 else accuracy_of(logits, outputs[one.test_labels])
