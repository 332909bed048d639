"""What to type after the tour."""

import shlex
import shutil
import sys
from pathlib import Path

#: what to try, and what it shows; the names written differ from those of the page's commands
NEXT = (
    ("info {a}", "layers, channel spaces, sizes"),
    ("disassemble {a} --data digits:A --classes 2,3 --out part", "the part of two digits"),
    ("routes {b} --data digits:B --classes 5,6 --out five-six.html", "which channels decide for them"),
    ("sweep {a} {b} --base {start} --data digits:A --data digits:B --out grid", "both added up, a table and heat maps"),
    ("depend show {map} --classes 8", "a digit as a sum of others"),
    ("report {map} grid --out mine.html", "a page of your own"),
    ("studio {demo}", "all of this by hand: classes of these networks onto a board, Build, compare, export"),
)


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
    made["demo"] = shlex.quote(str(folder))
    return [(f"brickwork {line.format(**made)}", words) for line, words in NEXT]
