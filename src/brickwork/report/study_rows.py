"""A study's rows drawn: what the paper reports and what was measured, on one scale."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from brickwork.report.drawing import PALE, Drawing, Line, Mark, Rectangle, Text, shortened
from brickwork.report.front import Spot, draw_spots

GRID, RING, OURS = "#e3e6ea", "#d1661c", "#1f6fb4"
LEFT, TOP, STEP, WIDE = 470.0, 96.0, 22.0, 460.0


def draw_study(result: dict[str, Any]) -> Drawing:
    """The rows of `brickwork study NAME --json`.

    >>> drawing = draw_study({"name": "n", "paper": "1", "rows": [{"what": "a", "paper": 50.0, "ours": 98.9}]})
    >>> drawing.title, drawing.rows
    ('Study n', (('a', '50', '98.9'),))
    """
    rows = [r for r in result["rows"] if _number(r.get("ours")) and r.get("goal") is None]
    values = [float(v) for r in rows for v in (r["ours"], r.get("paper")) if _number(v)]
    ticks = round_ticks(min(values, default=0.0), max(values, default=1.0))
    low, high = ticks[0], ticks[-1]

    def across(value: float) -> float:
        return LEFT + WIDE * (value - low) / (high - low)

    told = f"Study {result['name']}"
    marks: list[Mark] = [Text(24, 34, told, 18, bold=True)]
    marks.append(Text(24, 58, f"paper {result['paper']}" if result.get("paper") else "", 12, colour=PALE))
    bottom = TOP + STEP * len(rows)
    for value in ticks:
        marks.append(Line(across(value), TOP - 10, across(value), bottom, GRID))
        marks.append(Text(across(value), TOP - 16, f"{value:.4g}", 11, "middle", colour=PALE))
    for number, row in enumerate(rows):
        y = TOP + STEP * (number + 0.5)
        paper = float(row["paper"]) if _number(row.get("paper")) else None
        ours = float(row["ours"])
        tip = f"{row['what']}\nours {ours:.4g}" + (f"\npaper {paper:.4g}" if paper is not None else "")
        marks.append(Text(LEFT - 14, y + 4, shortened(str(row["what"]), 11.5, LEFT - 34), 11.5, "end"))
        if paper is not None:
            marks.append(Line(across(paper), y, across(ours), y, "#b8c0c8", 2))
            marks += _ring(across(paper), y, tip)
        marks.append(Rectangle(across(ours) - 5, y - 5, 10, 10, OURS, tip, "ours"))
    aims = any(r.get("goal") is not None for r in result["rows"])
    names = ("what", "paper", "ours", *(("goal", "met") if aims else ()))
    lines = tuple(tuple(_told(r.get(n)) for n in names) for r in result["rows"])
    about = f"Ring: the paper; square: measured here. {result.get('note') or ''}".strip()
    command = str(result.get("command") or "")
    return Drawing(
        told, LEFT + WIDE + 60, bottom + 24, tuple(marks), about, names, lines, command=command, part="studies"
    )


def draw_sizes(result: dict[str, Any]) -> Drawing | None:
    """Accuracy against megabytes, of the rows that have both, the most tasks, and are no ablation; None: too few."""
    rows = [r for r in result["rows"] if r.get("unit") == "percent" and _number(r.get("mb")) and r["mb"] > 0]
    rows = [r for r in rows if not r.get("ablation")]
    most = max((r.get("tasks") or 0 for r in rows), default=0)
    rows = [r for r in rows if (r.get("tasks") or 0) == most]
    if len(rows) < 2:
        return None
    names = ("what", "ours", "mb_per_task", "mb")
    spots = [Spot(r["what"], r["mb"], r["ours"], f"{r['what']}\n{r['ours']:.4g} %\n{r['mb']:.4g} MB") for r in rows]
    lines = tuple(tuple(_told(r.get(n)) for n in names) for r in rows)
    title = f"Study {result['name']}: accuracy against megabytes"
    return replace(draw_spots(spots), title=title, head=names, rows=lines, part="studies")


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers, at most so many, the first at or below `low` and the last at or above `high`; 0 where it is near.

    >>> round_ticks(73.8, 95.6), round_ticks(3.0, 95.6), round_ticks(0.5, 0.5)
    ([70.0, 80.0, 90.0, 100.0], [0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    """
    if low > 0 and low < 0.4 * high:
        low = 0.0
    high = high if high > low else low + (abs(low) or 1.0)
    span = high - low
    for power in range(math.floor(math.log10(span)) - 1, math.floor(math.log10(span)) + 3):
        for step in (10.0**power, 2 * 10.0**power, 5 * 10.0**power):
            first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
            if last - first < most:
                return [round(k * step, 12) for k in range(first, last + 1)]
    raise AssertionError("a step of a hundred times the span has few ticks")


def _ring(x: float, y: float, tip: str) -> list[Mark]:
    """A square frame: the paper's value."""
    return [
        Rectangle(x - 6, y - 6, 12, 12, RING, tip, "paper"),
        Rectangle(x - 3.5, y - 3.5, 7, 7, "#ffffff", tip, "paper"),
    ]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _told(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:.4g}" if _number(value) else str(value)
