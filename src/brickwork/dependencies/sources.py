"""Logits in files: .npy, and .npz with labels and class names; and where shared ones are looked for."""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brickwork.dependencies.gram import open_npy
from brickwork.errors import BadFile

SHARED = "imagenet_logits"  # the folder of real logits, below $BRICKWORK_DATA or beside the source tree


@dataclass(frozen=True, eq=False)
class LogitFile:
    """What a file of logits holds."""

    logits: np.ndarray  # (rows, classes); a memory map for a .npy
    labels: np.ndarray | None = None
    names: tuple[str, ...] | None = None


def read_logits(path: str | os.PathLike[str]) -> LogitFile:
    """A .npy of logits (kept on disk), or a .npz with `logits` and perhaps `labels` and `classes`."""
    path = Path(path)
    if path.suffix == ".npy":
        return LogitFile(open_npy(path))
    if path.suffix != ".npz" or not path.is_file():
        raise BadFile(f"{path} is no file of logits; give a .npy (rows, classes) or a .npz with 'logits'.")
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            if "logits" not in file:
                raise BadFile(f"{path} holds {', '.join(file.files) or 'nothing'}, but no array called 'logits'.")
            labels = file["labels"].astype(np.int64) if "labels" in file else None
            names = tuple(map(str, file["classes"])) if "classes" in file else None
            return LogitFile(file["logits"], labels, names)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
        raise BadFile(
            f"{path} cannot be read as an .npz: {error}. It may have been cut short; copy it again."
        ) from error


def shared_logits(name: str) -> LogitFile:
    """Real logits of one of the two ImageNet networks: efficientnet_lite0 or efficientnet_lite2."""
    given = os.environ.get("BRICKWORK_DATA")
    places = [Path(given) / SHARED] if given else []
    places.append(Path(__file__).resolve().parents[4] / "shared" / "data" / SHARED)
    for place in places:
        if (place / f"{name}.npz").is_file():
            return read_logits(place / f"{name}.npz")
    looked = " and ".join(str(place / f"{name}.npz") for place in places)
    raise BadFile(
        f"the logits of {name} are not there (looked for {looked}); put {SHARED}/{name}.npz into the folder that "
        "$BRICKWORK_DATA names."
    )
