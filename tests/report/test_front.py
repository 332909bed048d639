"""Accuracy against megabytes: nothing lies outside the frame or on another, whatever the numbers are."""

import itertools

import pytest

from brickwork.report.drawing import Line, Rectangle, Text, text_width
from brickwork.report.front import HIGH, LEFT, TOP, Spot, best_of, draw_spots


def spots(*numbers):
    return [
        Spot(f"method {k}, of a long name", mb, percent, f"method {k}\n") for k, (mb, percent) in enumerate(numbers)
    ]


CROWD = [(6.9, 94 + k / 10) for k in range(12)]


NEAR = [(3.7, 94.9), (3.7, 94.4), (6.1, 95.0), (6.9, 95.1), (6.9, 94.7), (6.9, 94.6), (23.7, 95.6), (24, 95.0)]
PAGE = [*NEAR, (27.5, 95.1), (42.7, 96.9), (43.8, 95.2), (107, 95.4), (853, 95.2), (28.4, 93.1), (6.3, 92.9)]


def names_of(drawing):
    return [m for m in drawing.marks if isinstance(m, Text) and m.size == 12]


def box_of(text):
    wide = text_width(text.text, 12)
    left = text.x - {"start": 0, "middle": wide / 2, "end": wide}[text.anchor]
    return left, text.y - 10, left + wide, text.y + 3


def apart(a, b):
    return a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


@pytest.mark.parametrize(
    "numbers", [[(3, 95), (5, 32)], CROWD, [*CROWD, (40, 2)], [(1, 100), (900, 100)], [(2, 0)], PAGE]
)
def test_names_keep_to_the_frame_and_off_each_other(numbers):
    drawing = draw_spots(spots(*numbers))
    boxes = [box_of(text) for text in names_of(drawing)]
    squares = [m for m in drawing.marks if isinstance(m, Rectangle)]
    assert boxes and all(
        b[0] >= LEFT and b[2] <= drawing.width and b[1] >= TOP - 14 and b[3] <= TOP + HIGH for b in boxes
    )
    assert len(squares) == len(numbers)
    points = [(m.x, m.y, m.x + m.width, m.y + m.height) for m in squares]
    assert all(apart(a, b) for a, b in itertools.combinations(boxes, 2))
    assert all(apart(a, b) for a, b in itertools.product(boxes, points))
    leaders = [m for m in drawing.marks if isinstance(m, Line) and m.width == 0.8]
    for m, share in itertools.product(leaders, (k / 50 for k in range(51))):
        x, y = m.x1 + share * (m.x2 - m.x1), m.y1 + share * (m.y2 - m.y1)
        inside = (b for b in [*boxes, *points] if b[0] + 0.1 < x < b[2] - 0.1 and b[1] + 0.1 < y < b[3] - 0.1)
        assert not list(inside)
        assert ((m.x1 - m.x2) ** 2 + (m.y1 - m.y2) ** 2) ** 0.5 < 100


def test_names_of_the_front_are_there_whatever_else_is():
    made = spots(*PAGE)
    told = " ".join(text.text for text in names_of(draw_spots(made)))
    assert len(best_of(made)) == 5 and all(f"{name.split(',')[0]}," in told for name in best_of(made))


@pytest.mark.parametrize("width", [1100, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser_no_name_lies_on_another_or_on_a_square(tmp_path, browser, width, scheme):
    page = draw_spots(spots(*PAGE)).save(tmp_path / "p.html")
    with browser(page, viewport={"width": width, "height": 800}, color_scheme=scheme) as (tab, complaints):
        edges = "all => all.map(e => e.getBoundingClientRect()).map(b => [b.left, b.top, b.right, b.bottom])"
        names = tab.eval_on_selector_all('svg text[font-size="12"]', edges)
        squares = tab.eval_on_selector_all("svg rect[data-tip]", edges)
        high = tab.eval_on_selector('svg text[font-size="12"]', "t => t.getCTM().a * 12")
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth") and not complaints
    assert len(squares) == len(PAGE) and len(names) > len(PAGE) / 2 and high >= 11
    # boxes of letters have empty room above and below them
    tight = [(a, b + 0.12 * (d - b), c, d - 0.12 * (d - b)) for a, b, c, d in names]
    assert all(apart(a, b) for a, b in itertools.combinations(tight, 2))
    assert all(apart(a, b) for a, b in itertools.product(tight, squares))


def test_one_far_below_is_on_the_lower_edge_with_its_number():
    drawing = draw_spots(spots((1, 95), (2, 94), (3, 93.5), (4, 93), (5, 32)))
    texts = [m.text for m in drawing.marks if isinstance(m, Text)]
    assert any(text.endswith("32.0% ↓") for text in texts) and "90%" in texts and "30%" not in texts
    lowest = max((m for m in drawing.marks if isinstance(m, Rectangle)), key=lambda m: m.y)
    assert abs(lowest.y + lowest.height / 2 - TOP - HIGH) < 1e-6


def test_names_keep_off_the_line_of_the_front():
    drawing = draw_spots(spots((0.07, 99.1), (0.5, 99.5), (0.1, 96)))
    lines = [m for m in drawing.marks if isinstance(m, Line) and m.width == 1.5]
    names = names_of(drawing)
    assert len(lines) == 1 and sum(name.text.startswith("method") for name in names) == 3
    line = lines[0]
    for left, top, right, bottom in map(box_of, names):
        for x in (left + k * (right - left) / 20 for k in range(21)):
            if line.x1 <= x <= line.x2:
                y = line.y1 + (line.y2 - line.y1) * (x - line.x1) / (line.x2 - line.x1)
                assert not top < y < bottom
