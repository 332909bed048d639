"""A new network beside those it comes from: accuracy, confusions, size, time, images with both answers."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from brickwork.data.images import ImageData
from brickwork.evaluation import evaluate_data
from brickwork.latency import latency
from brickwork.origin import origin_of
from brickwork.prediction import input_of, predict
from brickwork.zoo.summary import parameters_of

MATRIX = 20  # classes of a confusion matrix that is shown
SHOWN, LOOKED_AT, SIDE = 8, 200, 64  # images that are shown, of how many, and their height in pixels


@dataclass(frozen=True)
class Parent:
    """A network that went into another, and the classes that were taken of it."""

    name: str
    model: nn.Module
    classes: tuple[str, ...]
    bytes: int
    images: tuple[ImageData, ...]  # that it is judged on


def compared(result: nn.Module, parents: Sequence[Parent], sets: Sequence[ImageData]) -> dict[str, Any]:
    """The result on the test images of sets, and each parent on its own, asked among the classes taken of it alone.

    among_all: how good a parent is among all its classes; with one class taken there is no other way to ask.
    """
    classes = tuple(origin_of(result).classes or ())
    example = next(some[:1] for images in sets for some in (images.test_images, images.train_images) if len(some))
    rows = [{"name": "", **judged(result, sets, classes), **_cost(result, example)}]
    for parent in parents:
        among_all = judged(parent.model, parent.images, origin_of(parent.model).classes or parent.classes)
        own = judged(parent.model, parent.images, parent.classes)
        if len(parent.classes) == 1:  # it would always be right
            own |= {"accuracy": None, "per_class": {parent.classes[0]: among_all["per_class"][parent.classes[0]]}}
        facts = {"name": parent.name, "among_all": among_all["accuracy"], "bytes": parent.bytes}
        rows.append({**own, **_cost(parent.model, example), **facts})
    return {"networks": rows, "samples": _samples(result, parents)}


def judged(model: nn.Module, sets: Sequence[ImageData], classes: Sequence[str]) -> dict[str, Any]:
    """Accuracy, in all and per class, and confusions among some classes of a model, on the test images of sets."""
    confusion = np.zeros((len(classes), len(classes)), int)
    for images in sets:
        if len(images.test_labels):
            confusion += np.array(evaluate_data(model, images, restrict=",".join(classes)).confusion)
    counts = confusion.sum(1)
    shares = [float(hit / n) if n else None for hit, n in zip(confusion.diagonal(), counts, strict=True)]
    return {
        "classes": list(classes),
        "images": int(counts.sum()),
        "accuracy": float(confusion.trace() / counts.sum()) if counts.sum() else None,
        "per_class": dict(zip(classes, shares, strict=True)),
        **_confused(confusion, classes),
    }


def _confused(confusion: np.ndarray, classes: Sequence[str]) -> dict[str, Any]:
    """The matrix where a page can show it, else the commonest mistakes: how often, the true class, the answer."""
    if len(classes) <= MATRIX:
        return {"confusion": confusion.tolist()}
    wrong = confusion - np.diag(confusion.diagonal())
    worst = [divmod(int(k), len(classes)) for k in np.argsort(-wrong, axis=None)[:10]]
    return {"mistakes": [[int(wrong[i, j]), classes[i], classes[j]] for i, j in worst if wrong[i, j]]}


def _cost(model: nn.Module, example: Any) -> dict[str, Any]:
    seconds = latency(model, input_of(model, example), repeat=11, warm_up=2)
    return {"parameters": parameters_of(model), "ms": 1000 * seconds}


def _samples(result: nn.Module, parents: Sequence[Parent]) -> list[dict[str, Any]]:
    """Test images with the answers of the result and of the parents judged on them; those first on which they differ."""
    groups: dict[int, list[Parent]] = {}
    for parent in parents:
        groups.setdefault(id(parent.images[0]), []).append(parent)
    rows: list[tuple[bool, dict[str, Any]]] = []
    for group in groups.values():
        images = group[0].images[0]
        if not len(images.test_labels):
            continue
        chosen = np.sort(np.random.default_rng(0).permutation(len(images.test_labels))[:LOOKED_AT])
        raw = images.test_images[chosen]
        new = _answers(result, raw)
        old = {parent.name: _answers(parent.model, raw) for parent in group}
        alike = [all(own[k] == new[k] for own in old.values()) for k in range(len(chosen))]
        for k in sorted(range(len(chosen)), key=alike.__getitem__)[: -(-SHOWN // len(groups))]:
            truth = images.classes[int(images.test_labels[chosen[k]])]
            answers = [["", new[k]], *([name, own[k]] for name, own in old.items())]
            rows.append((alike[k], {"image": thumbnail(raw[k]), "truth": truth, "answers": answers}))
    return [row for _, row in sorted(rows, key=lambda row: row[0])][:SHOWN]


def _answers(model: nn.Module, raw: Any) -> list[str]:
    known = origin_of(model).classes or ()
    return [known[k] for k in torch.argmax(predict(model, raw), 1).tolist()]


def thumbnail(raw: Any, side: int = SIDE) -> str:
    """An image (H, W, C) uint8 as an address that holds it."""
    array = np.asarray(raw)
    image = Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
    image = image.resize((max(1, round(side * image.width / image.height)), side), Image.Resampling.BILINEAR)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
