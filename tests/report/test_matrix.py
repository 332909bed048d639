"""Methods × tasks: what is drawn, in which order, and which studies have nothing to draw."""

from brickwork.report.matrix import draw_matrix, draw_times
from brickwork.report.runs import draw_result

ROWS = [
    {"what": "poor", "ours": 30.0, "per_task": ["a", "b"], "a": 20.0, "b": 40.0, "seconds": 1.0, "labels": "none"},
    {"what": "alone", "ours": 90.0, "per_task": ["a", "b"], "a": 85.0, "b": 95.0, "labels": "all"},
    {"what": "good", "ours": 60.0, "per_task": ["a", "b"], "a": 50.0, "b": 70.0, "seconds": 9.0, "labels": "none"},
    {"what": "refused", "ours": None, "per_task": ["a", "b"], "refused": "too large"},
]


def test_rows_are_sorted_and_the_best_without_labels_is_named():
    drawing = draw_matrix({"name": "n", "rows": ROWS})
    assert drawing.head == ("what", "ours", "a", "b")
    assert [row[0] for row in drawing.rows] == ["alone", "good", "poor"]
    assert "The best without labels is good, 60.0 %" in drawing.about


def test_only_what_took_time_lies_on_the_front():
    drawing = draw_times({"name": "n", "rows": ROWS})
    assert [row[0] for row in drawing.rows] == ["poor", "good"]
    assert "Most accurate is good, 60.0 % at 9 s" in drawing.about and "megabytes" not in drawing.about
    assert draw_times({"name": "n", "rows": ROWS[:2]}) is None


def test_other_studies_have_no_matrix():
    plain = {"name": "n", "rows": [{"what": "a", "paper": 1.0, "ours": 2.0, "seconds": 3.0}]}
    assert draw_matrix(plain) is None and draw_times(plain) is None
    assert [drawing.title for drawing in draw_result(plain)] == ["Study n"]
    assert len(draw_result({"name": "n", "rows": ROWS})) == 3
