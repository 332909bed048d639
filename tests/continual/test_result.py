"""Metrics by their formulas, and results that print, compare and go to JSON."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickwork.continual import Comparison, ContinualResult, metrics

NAN = float("nan")
MATRIX = np.array([[0.9, NAN, NAN], [0.8, 0.7, NAN], [0.6, 0.8, 1.0]])


def result(name, total, accuracy, own=10):
    matrix = np.where(np.tri(2, dtype=bool), accuracy, NAN)
    return ContinualResult(name, ("a", "b"), matrix, (own, own), (total - own, total), 1.5)


def test_the_formulas_by_hand():
    assert metrics.average_accuracy(MATRIX) == pytest.approx(0.8)
    assert metrics.forgetting(MATRIX) == pytest.approx(((0.9 - 0.6) + (0.7 - 0.8)) / 2)
    assert metrics.backward_transfer(MATRIX) == pytest.approx((-0.3 + 0.1) / 2)
    full = MATRIX.copy()
    full[0, 1], full[1, 2] = 0.5, 0.3
    assert metrics.forward_transfer(full, np.array([NAN, 0.25, 0.25])) == pytest.approx((0.25 + 0.05) / 2)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_what_never_changes_is_not_forgotten(values):
    count = len(values)
    matrix = np.where(np.tri(count, dtype=bool), np.array(values), NAN)
    assert metrics.average_accuracy(matrix) == pytest.approx(np.mean(values))
    for found in (metrics.forgetting(matrix), metrics.backward_transfer(matrix)):
        assert math.isnan(found) if count == 1 else found == 0


def test_a_network_that_came_late_has_no_forgetting():
    late = np.full((3, 3), NAN)
    late[2] = 0.5
    assert metrics.average_accuracy(late) == 0.5
    assert math.isnan(metrics.forgetting(late)) and math.isnan(metrics.backward_transfer(late))


def test_the_front():
    found = Comparison(
        "x",
        {
            r.method: r
            for r in (
                result("small", 100, 0.7),
                result("large", 900, 0.9),
                result("worse", 900, 0.8),
                result("same", 100, 0.7),
                result("middle", 300, 0.8),
            )
        },
    )
    assert found.front() == ["small", "large", "same", "middle"]


def test_results_print_and_go_to_json_and_csv():
    one = ContinualResult("<b>", ("a", "b", "c"), MATRIX, (5, 6, 7), (25, 31, 38), 2.0, np.array([NAN, 0.5, 0.5]))
    both = Comparison("three", {"<b>": one, "x": result("x", 50, 0.5)})
    assert (one.total_bytes, one.shared_bytes, one.bytes_per_task) == (38, 20, 6.0)
    told = json.loads(json.dumps(both.to_dict(), allow_nan=False))
    assert told["methods"]["<b>"]["matrix"][0] == [0.9, None, None]
    assert told["methods"]["<b>"]["forgetting"] == pytest.approx(0.1)
    rows = list(csv.DictReader(io.StringIO(both.csv())))
    assert [row["method"] for row in rows] == ["<b>", "x"] and rows[1]["forward_transfer"] == ""
    assert rows[0]["on_front"] == "True"
    text = str(both)
    assert "80.00" in text and "–" in text and len({len(line) for line in text.splitlines()[1:3]}) == 1
    assert "&lt;b&gt;" in both._repr_html_() and "<b>" not in both._repr_html_().replace("&lt;b&gt;", "")
    assert "average accuracy 80.00%" in str(one) and "backward transfer -10.00" in str(one)
    assert one.table()[1] == {"after": "b", "task": "a", "accuracy": 0.8, "bytes": 31} and len(one.table()) == 6
    assert one.plot().images[0].get_array().shape == (3, 3)
    axes = both.plot()
    assert axes.get_xscale() == "log" and len(axes.texts) == 2
