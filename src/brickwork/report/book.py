"""One page of many figures: cards with the key numbers, then the chapters. Opens from a file, without a network."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from brickwork.atomic import write_file
from brickwork.errors import RequestError
from brickwork.html_table import rows_table
from brickwork.report.drawing import Drawing
from brickwork.words import counted

ABOUT = "Made by brickwork. Everything on this page comes from the runs it names; nothing is loaded from a network."


@dataclass(frozen=True)
class Chapter:
    """A part of the page: what it is about in plain words, and its figures. One without a title stands for itself."""

    title: str
    about: str = ""
    figures: Sequence[Drawing] = field(default=(), repr=False)
    heading: bool = True  # or the title is in the links alone, because a figure says it itself

    @property
    def short(self) -> str:
        """The title up to its colon, for links and cards."""
        return self.title.partition(":")[0]


@dataclass(frozen=True)
class Book:
    """The page; the same chapters give the same bytes."""

    title: str
    chapters: Sequence[Chapter]
    about: str = ABOUT

    @property
    def drawings(self) -> list[Drawing]:
        return [figure for chapter in self.chapters for figure in chapter.figures]

    def html(self) -> str:
        """The whole page as text."""
        keys = _keys([chapter.title for chapter in self.chapters])
        chapters = [
            {"key": key, "of": c, "figures": [{"key": f"{key}-{k}", "of": f} for k, f in enumerate(c.figures)]}
            for key, c in zip(keys, self.chapters, strict=True)
        ]
        _group(chapters)
        return page(
            "page.html",
            title=self.title,
            about=[self.about] if self.about else [],
            chapters=chapters,
            sided=len(self.drawings) > 1,
        )

    def save(self, path: str | Path, *, force: bool = True) -> Path:
        """Write the page, whole or not at all."""
        path = Path(path)
        if path.suffix.lower() != ".html":
            raise RequestError(f"{path}: a report is written to a file that ends in .html.")
        return write_page(path, self.html(), force=force)


def gallery(title: str, drawings: Sequence[Drawing], about: str = "") -> Book:
    """Several drawings of one thing on one page, each with its own heading and numbers."""
    return Book(title, [Chapter(drawing.title, "", [drawing], heading=False) for drawing in drawings], about)


def page(template: str, **values: Any) -> str:
    """A page from a template of this folder; texts are escaped."""
    return _templates().get_template(template).render(values)


def write_page(path: Path, text: str, *, force: bool) -> Path:
    with write_file(path, force=force) as temporary:
        temporary.write_bytes(text.encode("utf-8", "replace"))
    return path


def asset(name: str) -> str:
    """The text of a file of this folder."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


@cache
def _templates() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.globals.update(asset=asset, counted=counted, table=rows_table)
    return environment


def _group(chapters: list[dict[str, Any]]) -> None:
    """Figures that follow each other with the same words get a common group; those are said once, above the first."""
    runs: list[list[dict[str, Any]]] = []
    last = ""
    for chapter in chapters:
        if chapter["of"].about or (chapter["of"].title and chapter["of"].heading):
            last = ""
        for figure in chapter["figures"]:
            if not figure["of"].about or figure["of"].about != last:
                runs.append([])
            runs[-1].append(figure)
            last = figure["of"].about
    for run in runs:
        if len(run) > 1:
            run[0]["opens"] = len(run)
            for figure in run:
                figure["group"] = f"{run[0]['key']}-about"


def _keys(titles: Sequence[str]) -> list[str]:
    """An address for every chapter, none twice.

    >>> _keys(["Which classes?", "Which classes!"])
    ['which-classes', 'which-classes-2']
    """
    keys: list[str] = []
    for title in titles:
        key = base = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "part"
        number = 1
        while key in keys:
            number += 1
            key = f"{base}-{number}"
        keys.append(key)
    return keys
