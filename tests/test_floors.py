"""The floors of docs/layout.md: what is imported lies below, eagerly or within a function; found by reading the imports."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "brickwork"
#: from the ground up; parts of one floor may know each other, but for the five methods
FLOORS = (
    "errors lazy words atomic html_table progress options results recipes origin outputs devices tensor_file ownership limits "
    "forward_fault copying",
    "data",
    "prediction",
    "zoo",
    "blueprint",
    "moments",
    "store",
    "training evaluation measures inspection model_options latency engine export",
    "bricks algebra transplant pools dependencies",
    "continual lora",
    "report",
    "studio tour",
    "cli",
)
METHODS = set(FLOORS[8].split())
FLOOR_OF = {part: number for number, parts in enumerate(FLOORS) for part in parts.split()}


def imported(path: Path) -> set[str]:
    """Which parts of brickwork a file imports anywhere: `from brickwork.data.spec import …` -> data."""
    package = ("brickwork", *path.relative_to(SOURCE).parent.parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*start, *([node.module] if node.module else [])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] == "brickwork" and len(parts) > 1:
                found.add(parts[1])
    return found


def files() -> list[tuple[str, Path]]:
    """Every source file with the part of brickwork it belongs to."""
    return [(p.relative_to(SOURCE).parts[0].removesuffix(".py"), p) for p in sorted(SOURCE.rglob("*.py"))]


def forbidden(part: str) -> set[str]:
    """The parts on floors above this one, and of the methods the other four."""
    if part in ("__init__", "__main__"):
        return set()
    above = {other for other, floor in FLOOR_OF.items() if floor > FLOOR_OF[part]}
    return above | (METHODS - {part} if part in METHODS else set())


def test_every_part_has_a_floor():
    parts = {part for part, _ in files()} - {"__init__", "__main__"}
    assert parts == set(FLOOR_OF)


@pytest.mark.parametrize(("part", "path"), [pytest.param(a, p, id=str(p.relative_to(SOURCE))) for a, p in files()])
def test_arrows(part, path):
    wrong = imported(path) & forbidden(part)
    assert not wrong, f"{path.relative_to(SOURCE)} must not import {', '.join(sorted(wrong))}"


def test_only_its_verbs_know_the_lab():
    """brickwork_lab reproduces papers and measures peers; the library does without it."""
    imports_lab = re.compile(r"^\s*(from|import) brickwork_lab\b", re.M)
    knows = {str(p.relative_to(SOURCE)) for _, p in files() if imports_lab.search(p.read_text(encoding="utf-8"))}
    assert knows == set()


def test_the_reader_sees_every_form_of_import(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    (tmp_path / "blueprint").mkdir()
    path = tmp_path / "blueprint" / "x.py"
    path.write_text(
        "import brickwork.algebra.merge\nfrom brickwork import bricks\n"
        "from brickwork.pools.codec import pack\n"
        "from . import labels\nfrom .. import report\nfrom ..cli.printing import log\n"
        "def f():\n    from brickwork.transplant import Net\n"
    )
    assert imported(path) >= {"algebra", "bricks", "pools", "blueprint", "report", "cli", "transplant"}
    assert {"algebra", "bricks"} <= imported(path) & forbidden("blueprint")
