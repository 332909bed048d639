"""The folder that a studio works in: which model folders are in it, and no way out of it."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from brickwork import data, store
from brickwork.bricks.brick import PROVENANCE
from brickwork.data import DataSpec
from brickwork.data.named import known_names
from brickwork.errors import BrickworkError, RequestError
from brickwork.store.config import CONFIG, Config
from brickwork.transplant.folders import CONFIG as TRANSPLANT
from brickwork.zoo.summary import parameters_of

DEEP, MOST = 3, 200  # folders below the shelf that are looked into, models that are listed
NAME = re.compile(r"[\w][\w.-]{0,63}")
BUILT = "built"


@dataclass(frozen=True)
class Shelf:
    """Everything that a page may name is a path below `root`."""

    root: Path
    busy: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)  # one network at a time
    _sizes: dict[tuple[str, str], int] = field(default_factory=dict, repr=False, compare=False)

    def models(self) -> list[dict[str, Any]]:
        """The model folders with their classes, and their parameters where those were counted before.

        One that cannot be read is listed with its fault.
        """
        rows: list[dict[str, Any]] = []
        for folder in self._folders():
            name = folder.relative_to(self.root).as_posix()
            try:
                rows.append({"name": name, **self._facts(name, store.read_config(folder))})
            except BrickworkError as error:
                rows.append({"name": name, "error": str(error)})
        return rows

    def _facts(self, name: str, config: Config) -> dict[str, Any]:
        source = config.provenance.get("data")
        return {
            "arch": config.arch or " + ".join(part.arch or "?" for part in config.parts) or "?",
            "classes": config.classes or [],
            "parameters": self._sizes.get((name, config.weights.state_hash)),
            "brick": isinstance(config.provenance.get(PROVENANCE), dict),
            "data": source if isinstance(source, str) else "",
        }

    def model(self, name: str) -> Path:
        """The model folder of this name; anything else is refused."""
        folder = self._inside(name)
        if not _is_file(folder / CONFIG):
            raise RequestError(f"{name!r} is no model folder of this shelf.")
        return folder

    def parameters(self, name: str) -> int:
        """How many parameters a model has, as `brickwork info` counts them; its weights are read once."""
        folder = self.model(name)
        key = name, store.read_config(folder).weights.state_hash
        if key not in self._sizes:
            with self.busy:
                self._sizes[key] = parameters_of(store.load(folder))
        return self._sizes[key]

    def new(self, name: str) -> Path:
        """Where a model that is built goes."""
        if not NAME.fullmatch(name):
            raise RequestError(f"{name!r} is no name for a folder; use letters, digits, dots, - and _, at most 64.")
        folder = self._inside(f"{BUILT}/{name}")
        if folder.exists():
            raise RequestError(f"{BUILT}/{name} is there already; choose another name.")
        return folder

    def spec(self, text: str) -> DataSpec:
        """A data set by name, or images inside the shelf."""
        spec = data.parse(text)
        if spec.source in known_names():
            return data.check(spec)
        if spec.source.startswith("hfds:"):
            raise RequestError("a studio reads no data sets from elsewhere; save the images inside its folder.")
        return data.check(replace(spec, source=str(self._inside(spec.source))))

    def _folders(self) -> list[Path]:
        models = []
        for place, folders, files in os.walk(self.root):
            deep = len(Path(place).relative_to(self.root).parts)
            folders[:] = sorted(f for f in folders if not f.startswith(".")) if deep < DEEP else []
            if TRANSPLANT in files:  # its parts are halves of networks, no networks
                folders[:] = []
            elif CONFIG in files and place != str(self.root):
                models.append(Path(place))
                folders[:] = []
        return models[:MOST]

    def _inside(self, name: str) -> Path:
        root = self.root.resolve()
        if "\0" in name or len(name.encode("utf-8", "replace")) > 1000:
            raise RequestError(f"{name[:60]!r} is no path; it is too long, or has a zero in it.")
        try:
            path = (root / name).resolve()
        except (OSError, ValueError) as error:
            raise RequestError(f"{name[:60]!r} is no path that can be opened.") from error
        if path == root or not path.is_relative_to(root):
            raise RequestError(f"{name!r} is not inside {root}; give a path below it.")
        return path


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or cannot be written
        return False
