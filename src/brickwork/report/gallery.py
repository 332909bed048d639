"""Several drawings on one page that opens from a file, without a network, and follows the reader's light or dark screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from brickwork.atomic import write_file
from brickwork.report.drawing import PALE, Drawing, check_suffix
from brickwork.report.page import SCRIPT, STYLE

GRID = "#e3e6ea"
#: what a drawing paints in its own colours for paper; on a dark screen these are exchanged, the data's colours stay
DARK = f"""
h1{{font-size:24px;margin:0 24px 4px}}h2{{font-size:19px;margin:40px 24px 2px}}nav{{margin:6px 24px;font-size:14px}}
nav a{{margin-right:16px;color:inherit}}details{{margin:8px 24px}}summary{{cursor:pointer;font-size:14px}}
@media(prefers-color-scheme:dark){{
body{{background:#14181d;color:#e6edf3}}p{{color:#9aa4af}}th,td{{border-bottom-color:#30363d}}
tbody tr:hover{{background:#1f252c}}
svg{{fill:#e6edf3}}svg>rect:first-of-type{{fill:#14181d}}svg text:not([fill]){{fill:#e6edf3}}
svg text[fill="{PALE}"]{{fill:#9aa4af}}svg line[stroke="{GRID}"]{{stroke:#30363d}}rect.t:hover{{stroke:#fff}}
svg rect[fill="{GRID}"]{{fill:#30363d}}
#tip{{background:#e6edf3;color:#14181d}}}}
"""


@dataclass(frozen=True)
class Gallery:
    """Drawings in their order, each with its own heading and numbers."""

    title: str
    about: str = ""
    drawings: Sequence[Drawing] = field(default=(), repr=False)

    def html(self) -> str:
        """The whole page as text; the same drawings give the same bytes."""
        links = "".join(f'<a href="#figure-{k}">{escape(d.title)}</a>' for k, d in enumerate(self.drawings))
        body = "\n".join(_section(k, drawing) for k, drawing in enumerate(self.drawings))
        about = f"<p>{escape(self.about)}</p>\n" if self.about else ""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            f"<title>{escape(self.title)}</title>\n<style>{STYLE}{DARK}</style></head>\n<body>\n"
            f"<h1>{escape(self.title)}</h1>\n{about}<nav>{links}</nav>\n{body}\n"
            f'<div id="tip"></div>\n<script>{SCRIPT}</script>\n</body></html>\n'
        )

    def save(self, path: str | Path, *, force: bool = True) -> Path:
        """Write the page (.html), or a gallery of one drawing as .svg or .png, whole or not at all."""
        path = Path(path)
        if check_suffix(path) != ".html" and len(self.drawings) == 1:
            return self.drawings[0].save(path, force=force)
        with write_file(path, force=force) as temporary:
            temporary.write_bytes(self.html().encode())
        return path


def _section(number: int, drawing: Drawing) -> str:
    picture = (
        f'<div class="picture" style="max-width:{drawing.width * 1.2:.0f}px">{drawing.svg(inline=True)}</div>'
    )
    about = f"<p>{escape(drawing.about)}</p>\n" if drawing.about else ""
    table = ""
    if drawing.head:
        head = "".join(f"<th>{escape(cell)}</th>" for cell in drawing.head)
        rows = "\n".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in drawing.rows
        )
        table = (
            f'<details><summary>The numbers</summary><div class="numbers"><table>\n<thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{rows}\n</tbody></table></div></details>\n"
        )
    return f'<section id="figure-{number}">\n{picture}{about}{table}</section>'
