"""Logits of two ImageNet networks, where a user has them: one file per network below the folder of data sets."""

from __future__ import annotations

from pathlib import Path

from brickwork.data.named import data_folder
from brickwork.dependencies.sources import LogitFile, read_logits
from brickwork.errors import BadFile

NETWORKS = ("efficientnet_lite0", "efficientnet_lite2")
FOLDER = "imagenet_logits"


def logits_of(name: str) -> LogitFile:
    """Logits, labels and class names of one of the two networks on the same images."""
    if not has_logits(name):
        raise BadFile(missing(name))
    return read_logits(_path(name))


def has_logits(name: str) -> bool:
    return _path(name).is_file()


def missing(name: str) -> str:
    """The sentence for somebody who has no such file."""
    return (
        f"the logits of {name} are not at {_path(name)}; put {FOLDER}/{name}.npz (logits, labels, classes) into the "
        "folder that $BRICKWORK_DATA names."
    )


def _path(name: str) -> Path:
    return data_folder() / FOLDER / f"{name}.npz"
