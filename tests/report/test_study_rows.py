"""A study drawn: rows on one scale, goals in the table only, accuracy against megabytes where rows have both."""

from __future__ import annotations

from brickwork.report.drawing import Rectangle, Text
from brickwork.report.study_rows import draw_sizes, draw_study

ROWS = [
    {"what": "rates: x", "ours": 80.0, "mb": 1.0, "tasks": 2, "unit": "percent"},
    {"what": "whole", "ours": 95.0, "paper": 90.0, "mb": 800.0, "mb_per_task": 40.0, "tasks": 20, "unit": "percent"},
    {"what": "pool", "ours": 94.0, "mb": 4.0, "mb_per_task": 0.1, "tasks": 20, "unit": "percent"},
    {"what": "worse", "ours": 93.0, "mb": 5.0, "mb_per_task": 0.1, "tasks": 20, "unit": "percent"},
    {"what": "goal: ahead", "ours": -0.5, "goal": 0.0, "met": False},
]
STUDY = {"name": "n", "paper": "4", "rows": ROWS}


def test_goals_are_in_the_table_and_not_on_the_scale():
    drawing = draw_study(STUDY)
    told = [mark.text for mark in drawing.marks if isinstance(mark, Text)]
    assert "goal: ahead" not in told and {"80", "85", "90", "95"} <= set(told) and "-0.5" not in told
    assert drawing.head == ("what", "paper", "ours", "goal", "met")
    assert drawing.rows[-1] == ("goal: ahead", "", "-0.5", "0", "no")


def test_accuracy_against_megabytes_of_the_longest_runs():
    drawing = draw_sizes(STUDY)
    squares = {mark.tip.split("\n")[0]: mark.width for mark in drawing.marks if isinstance(mark, Rectangle)}
    assert squares == {"whole, on the front": 11.0, "pool, on the front": 11.0, "worse": 7.0}
    assert [row[0] for row in drawing.rows] == ["whole", "pool", "worse"]
    assert draw_sizes({"name": "n", "rows": [{"what": "a", "ours": 1.0}]}) is None
    ablated = {**STUDY, "rows": [*STUDY["rows"][:-1], {**STUDY["rows"][0], "what": "other start", "ablation": True}]}
    assert "other start" not in [row[0] for row in draw_sizes(ablated).rows]
