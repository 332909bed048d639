"""The parameters that several commands share: each is worded and checked once."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import brickwork
from brickwork import store
from brickwork.atomic import check_file, check_output
from brickwork.cli.command import Argument
from brickwork.cli.printing import typed_line
from brickwork.errors import BrickworkError, RequestError
from brickwork.options import MOST_SEED, Options, Setting, one_of, option

if TYPE_CHECKING:
    from torch import nn

    from brickwork.report.drawing import Drawing

ARCH = "package.module:factory, for folders of an architecture of your own; repeatable, where parts have several."
DEVICE = "Where to compute: auto, cpu, cuda, cuda:N or mps."
FORCE = "Replace the output if it is there already."


def check_data(spec: str | tuple[str, ...], given: Mapping[str, Any]) -> Any:
    if isinstance(spec, tuple):
        return tuple(check_data(one, given) for one in spec)
    return brickwork.data.check(spec, size=given.get("size"))


check_data.reads_images = True  # type: ignore[attr-defined]


def _device(name: str, given: Mapping[str, Any]) -> Any:
    from brickwork.devices import pick

    return pick(name)


def _folder(*marks: str) -> Any:
    """Refuse an output folder that cannot be written; `marks`: files by which one of ours is known."""

    def check(path: Path, given: Mapping[str, Any]) -> Path:
        check_output(path, force=bool(given.get("force")), owns=marks)
        return path

    return check


def _file(*endings: str) -> Any:
    """Refuse an output file that cannot be written; endings: how its name may end, none for those of pictures."""

    def check(path: Path, given: Mapping[str, Any]) -> Path:
        if not endings:
            from brickwork.report.drawing import check_suffix

            check_suffix(path)
        elif path.suffix.lower() not in endings:
            raise RequestError(f"`out` is {path}; it must end in {one_of(endings)}.")
        check_file(path, force=bool(given.get("force")))
        return path

    return check


def check_models(path: Path | tuple[Path, ...], given: Mapping[str, Any]) -> Any:
    paths = path if isinstance(path, tuple) else (path,)
    for one in paths:
        store.read_config(one)
    _check_archs(paths, given)
    return path


def _check_archs(paths: tuple[Path, ...], given: Mapping[str, Any]) -> None:
    """Refuse an --arch that no network of the request is of, before anything is loaded."""
    from brickwork.store.folder import networks_of

    if not given.get("arch"):
        return
    others = [p for value in given.values() for p in (value if isinstance(value, tuple) else (value,))]
    named: set[str | None] = set()
    for folder in {*paths, *(p for p in others if isinstance(p, Path) and (p / "config.json").is_file())}:
        with contextlib.suppress(BrickworkError):  # not a model folder: an output that is to be replaced
            named.update(networks_of(folder))
    for arch in given["arch"] if isinstance(given["arch"], tuple) else ():
        if None not in named and arch not in named:
            holds = " and a ".join(sorted(repr(name) for name in named))
            raise RequestError(
                f"{', '.join(map(str, paths))} holds a {holds}, not a {arch!r}; mend `arch`, or leave it out."
            )


class Reading(Options):
    """How folders are read and replaced."""

    arch: tuple[str, ...] | None = option(default=None, metavar="FACTORY", help=ARCH)
    force: bool = option(default=False, help=FORCE)

    @property
    def where(self) -> Any:
        """The device, checked to be usable."""
        return "cpu"

    def load(self, folder: Path, device: Any = None) -> nn.Module:
        """The network of a model folder, on a device other than that asked for where one is given."""
        return store.load(folder, arch=self.arch, device=device or self.where)

    def net(self, folder: Path) -> Any:
        """The transplant net of a folder, likewise."""
        return brickwork.TransplantNet.load(folder, arch=self.arch, device=self.where)

    def save(self, model: nn.Module, out: Path, command: str, **facts: Any) -> None:
        """Write a model folder with what the command knows of it; facts that are None are left out."""
        known = {name: value for name, value in facts.items() if value is not None}
        store.save(model, out, force=self.force, provenance={"command": command, **known})

    def draw(self, drawing: Drawing, out: Path) -> None:
        """Write a picture that says which line made it."""
        replace(drawing, command=typed_line()).save(out, force=self.force)


class Running(Reading):
    """Where a command computes, too."""

    device: str = option(default="auto", help=DEVICE, check=_device)

    @property
    def where(self) -> Any:
        return _device(self.device, {})


def out_folder(help: str, *marks: str) -> Any:
    """The annotation of an output folder."""
    return Annotated[Path, Setting(help, metavar="FOLDER", check=_folder(*marks))]


def out_file(help: str, *endings: str) -> Any:
    """The annotation of an output file; endings: how its name may end, none for those of pictures."""
    return Annotated[Path, Setting(help, metavar="FILE", check=_file(*endings))]


ModelFolder = Annotated[Path, Argument("A model folder.", "MODEL", check=check_models)]
BrickFolders = Annotated[
    tuple[Path, ...], Argument("Folders written by disassemble or compress.", "BRICK...", check=check_models)
]
OutFolder = Annotated[Path, Setting("Folder to write.", metavar="FOLDER", check=_folder("config.json"))]
Data = Annotated[str, Setting("Images: digits:A, cifar10@100, a folder, an .npz, hfds:NAME, …", check=check_data)]
OptionalData = Annotated[str | None, Setting("Images: digits:A, cifar10, a folder, an .npz, …", check=check_data)]
OutPicture = out_file("Picture to write: .svg, .png, .html, or .json for report.")
Arch = Annotated[tuple[str, ...] | None, Setting(ARCH, metavar="FACTORY")]
ArchArguments = Annotated[
    dict[str, Any] | None, Setting("Argument of the architecture, e.g. --arg stem=imagenet; repeatable.")
]
Device = Annotated[str, Setting(DEVICE, check=_device)]
Force = Annotated[bool, Setting(FORCE)]
ImageSize = Annotated[
    int | None, Setting("Height and width of the images.", at_least=1, default_text="the architecture's")
]
Seed = Annotated[int, Setting("Seed of every random number.", at_least=0, at_most=MOST_SEED)]


def optional(annotation: Any) -> Any:
    """The same parameter where it may be left out."""
    return Annotated[annotation.__origin__ | None, annotation.__metadata__[0]]


def data_option(help: str, *, several: bool = False) -> Any:
    """A parameter that names images, said in other words."""
    return Annotated[tuple[str, ...] if several else str, Setting(help, check=check_data)]
