"""`brickwork demo`: the tour, every part once on embedded digits, and the page."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from brickwork.cli.common import (
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    SeedOption,
    emit,
    log,
    table,
)

#: what to try, and what it shows; the names written differ from those of the page's commands
NEXT = (
    ("info {a}", "layers, channel spaces, sizes"),
    ("disassemble {a} --data digits:A --classes 2,3 --out part", "the part of two digits"),
    ("routes {b} --data digits:B --classes 5,6 --out five-six.html", "which channels decide for them"),
    ("sweep {a} {b} --base {start} --data digits:A --data digits:B --out grid", "both added up, a table and heat maps"),
    ("depend show {map} --class 8", "a digit as a sum of others"),
    ("report {map} grid --out mine.html", "a page of your own"),
)


def command(
    out: Annotated[Path, typer.Option("--out", help="Folder for everything the tour makes.")] = Path("demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the training: to see that it runs.")] = False,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """The tour: every part of Brickwork once, on embedded digits, ending in a page that opens offline."""
    from brickwork.atomic import check_output, write_folder
    from brickwork.devices import pick
    from brickwork.tour.run import RESULT

    where = pick(str(device))
    check_output(out, force=force, owns=(RESULT,))

    from brickwork.tour import PARTS, take
    from brickwork.tour.stage import Stage

    with write_folder(out, force=force, owns=(RESULT,)) as folder:
        found = take(Stage(folder, out, seed, where, log, quick))
    seconds = found["seconds"]
    rows = [(name, words, f"{seconds[name]:.1f}") for name, words, _ in PARTS]
    told = table(["part", "what happened", "seconds"], rows)
    lines = [f"  {line}\n      {words}" for line, words in next_commands(out)]
    text = "\n".join([told, f"Next, with {out} being what was just made:", *how_to_reach(), *lines])
    emit(found, f"{text}\n\nThe page: {found['page']}", as_json=as_json)


def how_to_reach() -> list[str]:
    """What to type first where a shell would not find `brickwork`: after `make demo` it is in .venv alone."""
    activate = Path(sys.prefix) / "bin" / "activate"
    if shutil.which("brickwork") or not activate.exists():
        return []
    path = activate.relative_to(Path.cwd()) if activate.is_relative_to(Path.cwd()) else activate
    return [f"  source {shlex.quote(str(path))}", "      first of all: puts brickwork on this shell's path"]


def next_commands(folder: Path) -> list[tuple[str, str]]:
    """Commands to try after the tour, and what they show.

    >>> next_commands(Path("demo"))[0]
    ('brickwork info demo/a', 'layers, channel spaces, sizes')
    """
    made = {name: shlex.quote(str(folder / name)) for name in ("a", "b", "start", "map")}
    return [(f"brickwork {line.format(**made)}", words) for line, words in NEXT]
