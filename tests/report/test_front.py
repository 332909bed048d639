"""Accuracy against megabytes: nothing lies outside the frame or on another, whatever the numbers are."""

import itertools

import pytest

from brickwork.report.drawing import Line, Rectangle, Text, text_width
from brickwork.report.front import HIGH, LEFT, TOP, Spot, draw_spots


def spots(*numbers):
    return [
        Spot(f"method {k}, of a long name", mb, percent, f"method {k}\n")
        for k, (mb, percent) in enumerate(numbers)
    ]


CROWD = [(6.9, 94 + k / 10) for k in range(12)]


@pytest.mark.parametrize(
    "numbers", [[(3, 95), (5, 32)], CROWD, [*CROWD, (40, 2)], [(1, 100), (900, 100)], [(2, 0)]]
)
def test_names_keep_to_the_frame_and_off_each_other(numbers):
    drawing = draw_spots(spots(*numbers))
    names = [m for m in drawing.marks if isinstance(m, Text) and m.text.startswith("method")]
    boxes = [(t.x, t.y - 10, t.x + text_width(t.text, 12), t.y + 3) for t in names]
    assert boxes and all(
        b[0] >= LEFT and b[2] <= drawing.width and b[1] >= TOP - 14 and b[3] <= TOP + HIGH for b in boxes
    )
    for a, b in itertools.combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    assert sum(isinstance(m, Rectangle) for m in drawing.marks) == len(numbers)


def test_one_far_below_is_on_the_lower_edge_with_its_number():
    drawing = draw_spots(spots((1, 95), (2, 94), (3, 93.5), (4, 93), (5, 32)))
    texts = [m.text for m in drawing.marks if isinstance(m, Text)]
    assert any(text.endswith("32.0% ↓") for text in texts) and "90%" in texts and "30%" not in texts
    lowest = max((m for m in drawing.marks if isinstance(m, Rectangle)), key=lambda m: m.y)
    assert abs(lowest.y + lowest.height / 2 - TOP - HIGH) < 1e-6


def test_names_keep_off_the_line_of_the_front():
    drawing = draw_spots(spots((0.07, 99.1), (0.5, 99.5), (0.1, 96)))
    lines = [m for m in drawing.marks if isinstance(m, Line) and m.width == 1.5]
    names = [m for m in drawing.marks if isinstance(m, Text) and m.text.startswith("method")]
    assert len(lines) == 1 and len(names) == 3
    line = lines[0]
    for t in names:
        for x in (t.x + k * text_width(t.text, 12) / 20 for k in range(21)):
            if line.x1 <= x <= line.x2:
                y = line.y1 + (line.y2 - line.y1) * (x - line.x1) / (line.x2 - line.x1)
                assert not t.y - 10 < y < t.y + 3
