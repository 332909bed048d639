"""Several drawings of one thing on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from brickwork.report.book import Book, Chapter
from brickwork.report.drawing import Drawing, check_suffix

GRID = "#e3e6ea"


@dataclass(frozen=True)
class Gallery:
    """Drawings in their order, each with its own heading and numbers."""

    title: str
    about: str = ""
    drawings: Sequence[Drawing] = field(default=(), repr=False)

    def html(self) -> str:
        """The whole page as text; the same drawings give the same bytes."""
        return self._book().html()

    def save(self, path: str | Path, *, force: bool = True) -> Path:
        """Write the page (.html), or a gallery of one drawing as .svg, .png or .json, whole or not at all."""
        if check_suffix(path) != ".html" and len(self.drawings) == 1:
            return self.drawings[0].save(path, force=force)
        return self._book().save(path, force=force)

    def _book(self) -> Book:
        return Book(self.title, [Chapter(d.title, "", [d], heading=False) for d in self.drawings], self.about)
