"""Logits in files: .npy, and .npz with labels and class names."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brickwork.dependencies.gram import open_npy
from brickwork.errors import BadFile
from brickwork.limits import read_npz


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
    arrays = read_npz(path)
    if "logits" not in arrays:
        raise BadFile(f"{path} holds {', '.join(arrays) or 'nothing'}, but no array called 'logits'.")
    try:
        labels = arrays["labels"].astype(np.int64) if "labels" in arrays else None
        names = tuple(map(str, arrays["classes"])) if "classes" in arrays else None
    except (ValueError, TypeError) as error:
        raise BadFile(f"{path} holds labels or classes that cannot be read: {error}.") from error
    return LogitFile(arrays["logits"], labels, names)
