"""A study's rows drawn: what the paper reports and what was measured, on one scale."""

import math
import textwrap
from dataclasses import replace
from typing import Any

from brickwork.report.chart import BLUE, GRID, ORANGE, Axis, dot, heading
from brickwork.report.drawing import PALE, Drawing, Line, Text
from brickwork.report.front import Spot, draw_spots
from brickwork.report.ticks import round_ticks
from brickwork.words import counted

LEFT, TOP, STEP, WIDE = 14.0, 96.0, 24.0, 330.0  # as wide as a phone, the name of a row above its line
NAME, LETTERS = 14.0, 50  # of a line of a name: its height, and how many letters are sure to fit


def draw_study(result: dict[str, Any]) -> Drawing:
    """The rows of `brickwork study NAME --json`.

    >>> drawing = draw_study({"name": "n", "paper": "1", "rows": [{"what": "a", "paper": 50.0, "ours": 98.9}]})
    >>> drawing.title, drawing.rows
    ('Study n', (('a', '50', '98.9'),))
    """
    rows = [r for r in result["rows"] if _is_number(r.get("ours")) and r.get("goal") is None]
    values = [float(v) for r in rows for v in (r["ours"], r.get("paper")) if _is_number(v)]
    ticks = round_ticks(min(values, default=0.0), max(values, default=1.0))
    names = [textwrap.wrap(str(row["what"]), LETTERS, max_lines=3, placeholder=" …") or [""] for row in rows]
    axis, bottom = Axis(ticks[0], ticks[-1], LEFT, LEFT + WIDE), TOP + sum(STEP + NAME * len(name) for name in names)
    title = f"Study {result['name']}"
    marks = heading(title, f"paper {result['paper']}" if result.get("paper") else "")
    for value in ticks:
        marks.append(Line(axis(value), TOP - 10, axis(value), bottom, GRID))
        marks.append(Text(axis(value), TOP - 16, f"{value:.4g}", 11, "middle", colour=PALE))
    y = TOP - STEP + 10
    for row, name in zip(rows, names, strict=True):
        y, ours = y + STEP + NAME * len(name), float(row["ours"])
        tip = f"{row['what']}\nours {ours:.4g}"
        for k, line in enumerate(reversed(name)):
            marks.append(Text(4, y - 11 - NAME * k, line, 12, tip=str(row["what"])))
        marks.append(Line(axis.start, y, axis.end, y, GRID))
        if _is_number(row.get("paper")):
            paper = float(row["paper"])
            tip += f"\npaper {paper:.4g}"
            marks.append(Line(axis(paper), y, axis(ours), y, "#b8c0c8", 2))
            marks.append(dot(axis(paper), y, 12, ORANGE, tip, "paper"))
            marks.append(dot(axis(paper), y, 7, "#ffffff", tip, "paper"))  # which makes it a ring
        marks.append(dot(axis(ours), y, 10, BLUE, tip, "ours"))
    aims = any(r.get("goal") is not None for r in result["rows"])
    head = ("what", "paper", "ours", *(("goal", "met") if aims else ()))
    both = [r for r in rows if _is_number(r.get("paper"))]
    above = sum(float(r["ours"]) > float(r["paper"]) for r in both)
    so = (
        f"{above} of {counted(len(both), 'row')} with a number of the paper {'is' if above == 1 else 'are'} above it"
        if both
        else "No row has a number of the paper beside it"
    )
    note = " ".join(str(result.get("note") or "").split())
    about = (
        "To hold what was measured here against what the paper reports.\n"
        "A row is a line of the study's table: an orange ring is the paper's number, a blue square ours, all on the scale at "
        f"the top.\n{so}. {note}"
    ).strip()
    command = _command(result)
    size = (LEFT + WIDE + 22, bottom + 24)
    table = _table(result["rows"], head)
    return Drawing(title, *size, tuple(marks), about, head, table, command=command, part="studies")


def draw_sizes(result: dict[str, Any]) -> Drawing | None:
    """Accuracy against megabytes, of the rows that have both, the most tasks, and are no ablation; None: too few."""
    rows = [r for r in result["rows"] if r.get("unit") == "percent" and _is_number(r.get("mb")) and r["mb"] > 0]
    rows = [r for r in rows if not r.get("ablation")]
    most = max((r.get("tasks") or 0 for r in rows), default=0)
    rows = [r for r in rows if (r.get("tasks") or 0) == most]
    if len(rows) < 2:
        return None
    spots = [Spot(r["what"], r["mb"], r["ours"], f"{r['what']}\n{r['ours']:.4g} %\n{r['mb']:.4g} MB") for r in rows]
    title, head = f"Study {result['name']}: accuracy against megabytes", ("what", "ours", "mb_per_task", "mb")
    command, table = _command(result), _table(rows, head)
    return replace(draw_spots(spots), title=title, head=head, rows=table, command=command, part="studies")


def _command(result: dict[str, Any]) -> str:
    """What measures it again: of the study, or of its rows, a line each."""
    own = dict.fromkeys(str(row["command"]) for row in result["rows"] if row.get("command"))
    return str(result.get("command") or "\n".join(own) or f"brickwork study {result['name']}")


def _table(rows: list[dict[str, Any]], head: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(_cell(row.get(name)) for name in head) for row in rows)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:.4g}" if _is_number(value) else str(value)
