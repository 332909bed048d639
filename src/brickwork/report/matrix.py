"""A study of many methods on many tasks drawn: a matrix of accuracies, and accuracy against processor seconds."""

import math
from dataclasses import replace
from typing import Any

from brickwork.report.chart import heading
from brickwork.report.drawing import Drawing, Mark, Text, shortened, text_width
from brickwork.report.front import SECONDS, Spot, draw_spots
from brickwork.report.heat import cell, shade_bar

FONT, LONGEST, TOP, SIZE = 11.0, 230.0, 96.0, 56.0


def draw_matrix(result: dict[str, Any]) -> Drawing | None:
    """Methods × tasks of the rows that name their tasks (`per_task`), best average first; None: there are none.

    >>> rows = [{"what": "mean", "ours": 50.0, "per_task": ["a", "b"], "a": 40.0, "b": 60.0}]
    >>> draw_matrix({"name": "n", "rows": rows}).rows
    (('mean', '50', '40', '60'),)
    """
    rows = [row for row in result["rows"] if row.get("per_task") and row.get("ours") is not None]
    if not rows:
        return None
    rows = sorted(rows, key=lambda row: -row["ours"])
    tasks = list(dict.fromkeys(name for row in rows for name in row["per_task"]))
    columns = ["ours", *tasks]
    left = 20 + max(text_width(shortened(row["what"], FONT, LONGEST), FONT) for row in rows)
    title = f"Study {result['name']}: methods and tasks"
    marks: list[Mark] = heading(title, "per cent right on test images")
    for j, name in enumerate(columns):
        said = shortened("average" if name == "ours" else name, FONT, SIZE - 4)
        marks.append(Text(left + (j + 0.5) * SIZE, TOP - 8, said, FONT, "middle", tip=name))
    for i, row in enumerate(rows):
        y = TOP + i * 31
        marks.append(Text(left - 6, y + 19, shortened(row["what"], FONT, LONGEST), FONT, "end", tip=row["what"]))
        for j, name in enumerate(columns):
            value = float(row[name]) / 100 if row.get(name) is not None else math.nan
            tip = f"{row['what']}\n{'average' if name == 'ours' else name} {100 * value:.1f} %"
            marks += cell(left + j * SIZE + (SIZE - 31) / 2, y, 31, value, tip)
    bottom = TOP + len(rows) * 31
    marks += shade_bar(left, bottom + 18, ("0%", "50%", "100%"))
    best = next((row for row in rows if row.get("labels") == "none"), rows[0])
    about = (
        "To see which way of merging networks serves which task.\n"
        "A row is a method, a column a task; a light cell is a network that gets most images right. The first column is the "
        f"average, by which rows are sorted.\nThe best without labels is {best['what']}, {best['ours']:.1f} % on average."
    )
    table = tuple((row["what"], *(_cell(row.get(name)) for name in columns)) for row in rows)
    width = left + len(columns) * SIZE + 20
    command = str(result.get("command") or f"brickwork study {result['name']}")
    return Drawing(
        title,
        max(width, 360.0),
        bottom + 64,
        tuple(marks),
        about,
        ("what", *columns),
        table,
        command=command,
        part="studies",
    )


def draw_times(result: dict[str, Any]) -> Drawing | None:
    """Accuracy against processor seconds, of the rows of a matrix that have them; None: too few."""
    rows = [r for r in result["rows"] if r.get("per_task") and r.get("seconds") and r.get("ours") is not None]
    if len(rows) < 2:
        return None
    spots = [
        Spot(r["what"], r["seconds"], r["ours"], f"{r['what']}\n{r['ours']:.4g} %\n{r['seconds']:.3g} s") for r in rows
    ]
    head = ("what", "ours", "seconds", "grown_mb")
    table = tuple(tuple(_cell(row.get(name)) for name in head) for row in rows)
    title = f"Study {result['name']}: accuracy against seconds"
    command = str(result.get("command") or f"brickwork study {result['name']}")
    return replace(draw_spots(spots, SECONDS), title=title, head=head, rows=table, command=command, part="studies")


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, int | float) else str(value)
