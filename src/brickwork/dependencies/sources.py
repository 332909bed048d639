"""Logits in files: .npy, and .npz with labels and class names."""

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brickwork.dependencies.gram import open_npy
from brickwork.errors import BadFile


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
