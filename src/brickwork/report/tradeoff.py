"""Budgets drawn: accuracy against the share of the parameters and against milliseconds."""

import json
from pathlib import Path
from typing import Any

from brickwork.bricks.tradeoff import FORMAT, Tradeoff, cells_of
from brickwork.errors import BadData
from brickwork.report.chart import BLUE, Axis, Panel, heading
from brickwork.report.drawing import Drawing
from brickwork.report.ticks import percent_levels, percent_range

LEFT, TOP, WIDE, HIGH, GAP = 60.0, 96.0, 270.0, 240.0, 80.0


def draw_tradeoff(result: Tradeoff) -> Drawing:
    """Two panels, a point per budget and one for the whole network."""
    return _draw(result.to_dict())


def read_tradeoff(file: Path) -> Drawing:
    """The picture of a tradeoff.json."""
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        if facts["format"] != FORMAT:
            raise ValueError(f"format {facts['format']!r}, not {FORMAT!r}")
        return _draw(facts)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise BadData(f"{file} is no table of budgets as compress writes it: {error}.") from error


def _draw(facts: dict[str, Any]) -> Drawing:
    rows = facts["rows"]
    known = [row for row in rows if row["accuracy"] is not None]
    low, high = percent_range([100 * row["accuracy"] for row in known] or [0.0, 100.0])
    judged_by = facts["judged_by"]
    title = f"{judged_by[:1].upper()}{judged_by[1:]} against size and time"  # mean IoU keeps its letters
    marks = heading(title, f"on {rows[0]['images']:,} images; time on {facts['latency']}")
    for number, (key, what, scale, form) in enumerate(
        (("parameters", "share of the parameters, %", 100.0, "{:.0f}"), ("ms", "ms per image", 1.0, "{:.3g}"))
    ):
        left = LEFT + number * (WIDE + GAP)
        values = [scale * row[key] for row in rows]
        panel = Panel(Axis(0, 1.05 * max(values), left, left + WIDE), Axis(low, high, TOP + HIGH, TOP))
        marks += [*panel.levels(percent_levels(low, high), "{:g}%"), panel.below(what)]
        marks += panel.ticks(sorted(float(form.format(value)) for value in values), room=24)
        points = [(scale * row[key], 100 * row["accuracy"], _tip(row)) for row in known]
        marks += panel.curve(sorted(points), BLUE, size=7)
    head, cells = cells_of(rows, judged_by)
    size = LEFT + 2 * WIDE + GAP + 20, TOP + HIGH + 60
    about = (
        "To choose how small the network may become.\n"
        "A square is one budget, at the right the whole network: up is better, left is smaller (first panel) or faster "
        f"(second).\n{_so(known)}"
    )
    table, cuts = tuple(tuple(row) for row in cells), (LEFT + WIDE + 20,)
    return Drawing(title, *size, tuple(marks), about, tuple(head), table, part="bricks", cuts=cuts)


def _so(known: list[dict[str, Any]]) -> str:
    """The smallest budget that loses no more than a point."""
    whole = next((row for row in known if row["budget"] is None), None)
    near = [row for row in known if whole and row is not whole and row["accuracy"] >= whole["accuracy"] - 0.01]
    if whole is None or not near:
        return "No budget of these stays within a point of the whole network."
    best = min(near, key=lambda row: float(row["parameters"]))
    return (
        f"Within a point of the whole network's {whole['accuracy']:.1%}: {best['parameters']:.0%} of the parameters with "
        f"{best['accuracy']:.1%} at {best['ms']:.3g} ms instead of {whole['ms']:.3g}."
    )


def _tip(row: dict[str, Any]) -> str:
    budget = "whole" if row["budget"] is None else f"budget {row['budget']:g}"
    return f"{budget}\n{row['accuracy']:.2%}\n{row['parameters']:.1%} of the parameters\n{row['ms']:.3f} ms"
