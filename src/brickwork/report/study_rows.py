"""A study's rows drawn: what the paper reports and what was measured, on one scale."""

import math
from dataclasses import replace
from typing import Any

from brickwork.report.chart import BLUE, GRID, ORANGE, Axis, dot, heading
from brickwork.report.drawing import PALE, Drawing, Line, Text, shortened
from brickwork.report.front import Spot, draw_spots
from brickwork.report.ticks import round_ticks

LEFT, TOP, STEP, WIDE = 470.0, 96.0, 22.0, 460.0


def draw_study(result: dict[str, Any]) -> Drawing:
    """The rows of `brickwork study NAME --json`.

    >>> drawing = draw_study({"name": "n", "paper": "1", "rows": [{"what": "a", "paper": 50.0, "ours": 98.9}]})
    >>> drawing.title, drawing.rows
    ('Study n', (('a', '50', '98.9'),))
    """
    rows = [r for r in result["rows"] if _is_number(r.get("ours")) and r.get("goal") is None]
    values = [float(v) for r in rows for v in (r["ours"], r.get("paper")) if _is_number(v)]
    ticks = round_ticks(min(values, default=0.0), max(values, default=1.0))
    axis, bottom = Axis(ticks[0], ticks[-1], LEFT, LEFT + WIDE), TOP + STEP * len(rows)
    title = f"Study {result['name']}"
    marks = heading(title, f"paper {result['paper']}" if result.get("paper") else "")
    for value in ticks:
        marks.append(Line(axis(value), TOP - 10, axis(value), bottom, GRID))
        marks.append(Text(axis(value), TOP - 16, f"{value:.4g}", 11, "middle", colour=PALE))
    for number, row in enumerate(rows):
        y, ours = TOP + STEP * (number + 0.5), float(row["ours"])
        tip = f"{row['what']}\nours {ours:.4g}"
        marks.append(Text(LEFT - 14, y + 4, shortened(str(row["what"]), 11.5, LEFT - 34), 11.5, "end"))
        if _is_number(row.get("paper")):
            paper = float(row["paper"])
            tip += f"\npaper {paper:.4g}"
            marks.append(Line(axis(paper), y, axis(ours), y, "#b8c0c8", 2))
            marks.append(dot(axis(paper), y, 12, ORANGE, tip, "paper"))
            marks.append(dot(axis(paper), y, 7, "#ffffff", tip, "paper"))  # which makes it a ring
        marks.append(dot(axis(ours), y, 10, BLUE, tip, "ours"))
    aims = any(r.get("goal") is not None for r in result["rows"])
    head = ("what", "paper", "ours", *(("goal", "met") if aims else ()))
    about = f"Ring: the paper; square: measured here. {result.get('note') or ''}".strip()
    command, size = str(result.get("command") or ""), (LEFT + WIDE + 60, bottom + 24)
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
    return replace(draw_spots(spots), title=title, head=head, rows=_table(rows, head), part="studies")


def _table(rows: list[dict[str, Any]], head: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(_cell(row.get(name)) for name in head) for row in rows)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:.4g}" if _is_number(value) else str(value)
