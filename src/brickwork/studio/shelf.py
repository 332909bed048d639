"""The folder that a studio works in: which model folders are in it, its images, and no way out of either."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from torch import nn

from brickwork import data, store, zoo
from brickwork.bricks.brick import PROVENANCE
from brickwork.data import DataSpec
from brickwork.data.named import data_folder, known_names
from brickwork.errors import BrickworkError, RequestError
from brickwork.store.config import CONFIG, Config
from brickwork.store.folder import networks_of
from brickwork.transplant.folders import CONFIG as TRANSPLANT
from brickwork.zoo.external import factory_of
from brickwork.zoo.summary import parameters_of

DEEP, MOST = 3, 200  # folders below the shelf that are looked into, models that are listed
NAME = re.compile(r"[\w][\w.-]{0,63}")
WAIT, COUNTING = 3.0, 10.0  # seconds that a request, and a count, wait for other work
FILES, MUCH = 20_000, 1 << 29  # images, and bytes of arrays, that are read without being asked for
BUILT, DELETED = "built", ".deleted"


@dataclass(frozen=True)
class Shelf:
    """Every network that a page may name is a path below `root`; images may lie below `images` as well."""

    root: Path
    images: Path | None = None
    arch: tuple[str, ...] = ()  # package.module:factory, that whoever started the studio trusts
    busy: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)  # one network at a time
    waiting: list[int] = field(default_factory=list, repr=False, compare=False)  # threads that background work lets by
    _sizes: dict[tuple[str, str], int] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for one in self.arch:
            factory_of(one)  # refused at the start, not at the first network

    def models(self) -> list[dict[str, Any]]:
        """The model folders with their classes, and their parameters where those were counted before.

        One that cannot be read is listed with its fault.
        """
        rows: list[dict[str, Any]] = []
        for folder in self._folders():
            name = folder.relative_to(self.root).as_posix()
            try:
                self._refuse_unknown_code(folder)
                rows.append({"name": name, **self._facts(name, folder, store.read_config(folder))})
            except BrickworkError as error:
                rows.append({"name": name, "error": str(error)})
        return rows

    def _facts(self, name: str, folder: Path, config: Config) -> dict[str, Any]:
        found = sources(config.provenance)
        return {
            "arch": config.arch or " + ".join(part.arch or "?" for part in config.parts) or "?",
            "classes": config.classes or [],
            "parameters": self._sizes.get((name, config.weights.state_hash)),
            "bytes": weight_bytes(folder, config),
            "brick": isinstance(config.provenance.get(PROVENANCE), dict),
            "data": found[""][0] if len(found.get("", ())) == 1 else "",
            "sources": {name: specs[0] for name, specs in found.items() if name},
        }

    def _refuse_unknown_code(self, folder: Path) -> None:
        missing = [a for a in networks_of(folder) if a and zoo.needs_import(a) and a not in self.arch]
        if missing:
            raise RequestError(
                f"it is a {missing[0]}, code that a folder cannot name by itself; if you trust it, start the studio "
                f"with --arch {missing[0]}."
            )

    def model(self, name: str) -> Path:
        """The model folder of this name; anything else is refused."""
        folder = self._inside(name)
        if not _is_file(folder / CONFIG) or any(part[0] == "." for part in folder.relative_to(self._home()).parts):
            raise RequestError(f"{name!r} is no model folder of this shelf.")
        return folder

    def load(self, name: str, device: str = "cpu") -> nn.Module:
        """The network of this name."""
        return store.load(self.model(name), arch=list(self.arch), device=device)

    def check_classes(self, name: str, classes: Sequence[str]) -> None:
        """Refuse classes that a model does not know."""
        known = store.read_config(self.model(name)).classes or []
        missing = [one for one in classes if one not in known]
        if missing:
            raise RequestError(f"{name} has no class {missing[0]!r}; it knows {', '.join(known[:20])}.")

    def key(self, name: str) -> tuple[str, str]:
        """A model as it is now: its name and the hash of its weights."""
        return name, store.read_config(self.model(name)).weights.state_hash

    def parameters(self, name: str, model: nn.Module | None = None) -> int:
        """How many parameters a model has, as `brickwork info` counts them; its weights are read once."""
        key = self.key(name)
        if key not in self._sizes:
            with self.free(patient=True):
                self._sizes[key] = parameters_of(model if model is not None else self.load(name))
        return self._sizes[key]

    def bytes(self, name: str) -> int:
        """The size of a model's weights on disk."""
        folder = self.model(name)
        return weight_bytes(folder, store.read_config(folder))

    def new(self, name: str, among: str = BUILT) -> Path:
        """Where a model that is made goes."""
        if not NAME.fullmatch(name):
            raise RequestError(f"{name!r} is no name for a folder; use letters, digits, dots, - and _, at most 64.")
        path = f"{among}/{name}" if among else name
        folder = self._inside(path)
        if folder.exists():
            raise RequestError(f"{path} is there already; choose another name.")
        return folder

    def below(self, name: str) -> Path:
        """A path below the root; anything else is refused."""
        return self._inside(name)

    def relative(self, folder: Path) -> str:
        """The name of a folder or file below the root."""
        return folder.relative_to(self._home()).as_posix()

    def rename(self, name: str, to: str) -> str:
        """Give a model folder another name, beside where it was; the new one is returned."""
        with self.free():
            folder = self.model(name)
            parent = self.relative(folder.parent) if folder.parent != self._home() else ""
            there = self.new(to, parent)
            _move(folder, there)
        return self.relative(there)

    def delete(self, name: str) -> int:
        """Put a model folder aside, in a hidden folder of the root; `undelete` of the number brings it back."""
        with self.free():
            folder = self.model(name)
            number = max([*self.deleted(), -1]) + 1
            there = self._inside(f"{DELETED}/{number}/{self.relative(folder)}")
            _move(folder, there)
        return number

    def deleted(self) -> dict[int, str]:
        """What was deleted and can be brought back: number and name, the oldest first."""
        place, names = self._inside(DELETED), {}
        numbers = [int(p.name) for p in place.iterdir() if p.name.isdecimal()] if place.is_dir() else []
        for number in sorted(numbers):
            for at, folders, files in os.walk(place / str(number)):
                if CONFIG in files:
                    names[number] = Path(at).relative_to(place / str(number)).as_posix()
                    folders[:] = []
        return names

    def undelete(self, number: int) -> str:
        """Bring a deleted model folder back under its name."""
        with self.free():
            name = self.deleted().get(number)
            if name is None:
                raise RequestError(f"there is nothing deleted under the number {number}.")
            there = self._inside(name)
            if there.exists():
                raise RequestError(f"{name} is there already; rename it, and bring the deleted one back then.")
            _move(self._inside(f"{DELETED}/{number}/{name}"), there)
        return name

    def spec(self, text: str) -> DataSpec:
        """A data set by name, or images inside the shelf or below `images`."""
        spec = data.parse(text)
        if spec.source in known_names():
            return data.check(spec)
        if spec.source.startswith("hfds:"):
            raise RequestError("a studio reads no data sets from elsewhere; save the images inside its folder.")
        return data.check(replace(spec, source=str(self._images(spec.source))))

    def at_hand(self, text: str) -> DataSpec:
        """The same for work that nobody asked for: refused where images would be downloaded, or are very many."""
        spec = self.spec(text)
        if spec.source == "digits":
            return spec
        path = data_folder() / f"{spec.source}.npz" if spec.source in known_names() else Path(spec.source)
        if not _exists(path):
            raise RequestError(
                f"{spec.source} is not on this machine yet; it is fetched when something is built of it."
            )
        files = islice((name for _, _, names in os.walk(path) for name in names), FILES + 1)
        if sum(1 for _ in files) > FILES or path.stat().st_size > MUCH:
            raise RequestError(f"{spec.source} is large; nothing is read from it before something is built of it.")
        return spec

    def image_folders(self) -> list[str]:
        """Names of data sets and folders of images to offer; any other below the roots may be typed."""
        if self.images is None:
            return list(known_names())
        home = self.images.resolve()
        inner = sorted(p for p in home.iterdir() if p.name[0] != "." and (p.is_dir() or p.suffix == ".npz"))
        return [*known_names(), str(home), *map(str, inner[:50])]

    def _images(self, name: str) -> Path:
        """A path below one of the roots, where it is there in the first that has it; also as typed where the studio began."""
        homes = [self._home(), *([self.images.resolve()] if self.images else [])]
        paths = [_resolved(place, name) for place in (*homes, Path.cwd())]
        inside = [p for p in paths if any(p.is_relative_to(home) for home in homes) and p != self._home()]
        if not inside:
            roots = " or ".join(map(str, homes))
            raise RequestError(f"{name!r} is not inside {roots}; give a path below {'one' if self.images else 'it'}.")
        return next((path for path in inside if _exists(path)), inside[0])

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

    @contextmanager
    def free(self, *, patient: bool = False) -> Iterator[None]:
        """While no network is worked on; refused after some seconds, lest requests pile up behind a build."""
        self.waiting.append(threading.get_ident())
        try:
            if not self.busy.acquire(timeout=COUNTING if patient else WAIT):
                raise RequestError("a network is being worked on; wait until it is done, or cancel that first.")
        finally:
            self.waiting.remove(threading.get_ident())
        try:
            yield
        finally:
            self.busy.release()

    def _home(self) -> Path:
        return self.root.resolve()

    def _inside(self, name: str) -> Path:
        root = self._home()
        path = _resolved(root, name)
        if path == root or not path.is_relative_to(root):
            raise RequestError(f"{name!r} is not inside {root}; give a path below it.")
        return path


def sources(provenance: Mapping[str, Any]) -> dict[str, list[str]]:
    """The data that a network's record names: of single classes by their names where it has parts, of all of it under ''."""
    source, parts = provenance.get("data"), provenance.get("parts")
    found: dict[str, list[str]] = {}
    for one in source if isinstance(source, list) else [source]:
        if isinstance(one, str):
            found.setdefault("", []).append(one)
    for part in parts if isinstance(parts, list) else []:
        if isinstance(part, dict) and isinstance(part.get("data"), str) and isinstance(part.get("classes"), list):
            found |= {name: [part["data"]] for name in part["classes"] if isinstance(name, str)}
    return found


def weight_bytes(folder: Path, config: Config) -> int:
    """The size of a folder's weights; 0 where they are missing."""
    try:
        return (folder / config.weights.file).stat().st_size
    except OSError:
        return 0


def _resolved(root: Path, name: str) -> Path:
    if "\0" in name or len(name.encode("utf-8", "replace")) > 1000:
        raise RequestError(f"{name[:60]!r} is no path; it is too long, or has a zero in it.")
    try:
        return (root / name).resolve()
    except (OSError, ValueError) as error:
        raise RequestError(f"{name[:60]!r} is no path that can be opened.") from error


def _move(folder: Path, there: Path) -> None:
    try:
        there.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(there)
    except OSError as error:
        raise RequestError(f"{folder.name} cannot be moved: {error.strerror}.") from error


def _is_file(path: Path) -> bool:
    return _exists(path) and path.is_file()


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that is too long, or cannot be written
        return False
