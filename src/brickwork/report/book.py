"""One page of many figures: cards with the key numbers, then a chapter a part. Opens from a file, without a network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Protocol

from brickwork.atomic import write_file
from brickwork.errors import RequestError
from brickwork.words import counted

ABOUT = "Made by brickwork. Everything on this page comes from the runs it names; nothing is loaded from a network."


class Figure(Protocol):
    """What a chapter shows: a Drawing, or anything with its numbers."""

    @property
    def title(self) -> str: ...
    @property
    def width(self) -> float: ...
    @property
    def about(self) -> str: ...
    @property
    def head(self) -> tuple[str, ...]: ...
    @property
    def rows(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def cards(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def command(self) -> str: ...
    def svg(self, *, inline: bool = False) -> str: ...


@dataclass(frozen=True)
class Chapter:
    """A part of the page: what it is about in plain words, and its figures. One without a title stands for itself."""

    title: str
    about: str = ""
    figures: Sequence[Figure] = field(default=(), repr=False)
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

    def html(self) -> str:
        """The whole page as text."""
        keys = _keys([chapter.title for chapter in self.chapters])
        marked = [(key, chapter) for key, chapter in zip(keys, self.chapters, strict=True)]
        cards = "".join(_card(key, c, *card) for key, c in marked for f in c.figures for card in f.cards)
        groups = _groups(marked)
        return framed(
            self.title,
            [self.about] if self.about else [],
            f'<div class="cards">{cards}</div>\n' + "\n".join(_chapter(key, c, groups) for key, c in marked),
            links="".join(f'<a href="#{key}">{escape(c.short)}</a>' for key, c in marked if c.title),
        )

    def save(self, path: str | Path, *, force: bool = True) -> Path:
        """Write the page, whole or not at all."""
        path = Path(path)
        if path.suffix.lower() != ".html":
            raise RequestError(f"{path}: a report is written to a file that ends in .html.")
        with write_file(path, force=force) as temporary:
            temporary.write_bytes(self.html().encode("utf-8", "replace"))
        return path


def framed(
    title: str, about: Sequence[str], body: str, *, links: str = "", tools: str = "", style: str = "", script: str = ""
) -> str:
    """A whole page around a body of HTML: heading, bar with links and search, tips, light and dark, print.

    tools: HTML for the bar; style, script: what this page has beside the common ones, a scope of its own for its names.
    """
    parts = {
        "title": escape(title),
        "about": "".join(f"<p>{escape(line)}</p>" for line in about),
        "links": links,
        "tools": tools,
        "body": body,
        "style": part("book.css") + part("drawing.css") + style,
        "script": part("book.js") + (f"{{\n{script}}}\n" if script else ""),
    }
    return fill("book.html", parts)


def fill(name: str, parts: Mapping[str, str]) -> str:
    """A file of this folder with its {{marks}} filled in; what is filled in is not looked through again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], part(name))


def part(name: str) -> str:
    """The text of a file of this folder."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


Groups = dict[str, tuple[str, int]]  # address of a figure: that of its group's words, and how many it opens


def _groups(chapters: Sequence[tuple[str, Chapter]]) -> Groups:
    """Figures that follow each other with the same words; those are said once, above the first."""
    runs: list[list[str]] = []
    last = ""
    for key, chapter in chapters:
        if chapter.about or (chapter.title and chapter.heading):
            last = ""
        for k, figure in enumerate(chapter.figures):
            if not figure.about or figure.about != last:
                runs.append([])
            runs[-1].append(f"{key}-{k}")
            last = figure.about
    return {key: (f"{run[0]}-about", len(run) if key == run[0] else 0) for run in runs if len(run) > 1 for key in run}


def _chapter(key: str, chapter: Chapter, groups: Groups) -> str:
    about = f"<p>{escape(chapter.about)}</p>\n" if chapter.about else ""
    figures = "\n".join(_figure(f"{key}-{k}", figure, groups) for k, figure in enumerate(chapter.figures))
    title = f"<h2>{escape(chapter.title)}</h2>\n" if chapter.title and chapter.heading else ""
    return f'<section id="{key}">\n{title}{about}{figures}</section>'


def _figure(key: str, figure: Figure, groups: Groups) -> str:
    wide = f"{figure.width * 1.2:.0f}"
    least = f"{min(figure.width, 760):.0f}"  # below this a phone scrolls the picture instead of shrinking it
    picture = (
        '<p class="hint">↔ wider than the screen: move the picture sideways</p>\n'
        f'<div class="picture" style="max-width:{wide}px"><div style="min-width:{least}px">'
        f"{figure.svg(inline=True)}</div></div>\n"
    )
    about = f"<figcaption>{escape(figure.about)}</figcaption>\n" if figure.about else ""
    common, described = "", ""
    if key in groups:
        group, opens = groups[key]
        if opens:
            common = f'<p id="{group}">The next {opens} pictures. {escape(figure.about)}</p>\n'
        about, described = "", f' aria-describedby="{group}"'
    command = (
        f'<div class="command"><code>{escape(figure.command)}</code><button type="button" data-copy>Copy</button></div>\n'
        if figure.command
        else ""
    )
    inside = f"{picture}{about}{command}{_table(key, figure)}"
    return f'{common}<figure id="{key}" aria-label="{escape(figure.title)}"{described}>\n{inside}</figure>'


def _table(key: str, figure: Figure) -> str:
    if not figure.head:
        return ""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in figure.head)
    rows = "\n".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>" for row in figure.rows)
    return (
        f"<details><summary>The numbers ({counted(len(figure.rows), 'row')})</summary>"
        f'<button type="button" data-csv="{key}.csv">Download as CSV</button>\n<div class="numbers"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div></details>\n"
    )


def _card(key: str, chapter: Chapter, label: str, value: str) -> str:
    return (
        f'<a class="card" href="#{key}"><span class="of">{escape(chapter.short)}</span>'
        f"<b>{escape(value)}</b><span>{escape(label)}</span></a>"
    )


def _keys(titles: Sequence[str]) -> list[str]:
    """An address for every chapter, none twice.

    >>> _keys(["Which classes?", "Which classes!"])
    ['which-classes', 'which-classes-2']
    """
    found: list[str] = []
    for title in titles:
        key = base = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "part"
        number = 1
        while key in found:
            number += 1
            key = f"{base}-{number}"
        found.append(key)
    return found
