"""The page of a comparison and that of a pool: every number is on it, it loads nothing, and it is the same twice."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from brickwork import zoo
from brickwork.continual import Comparison, ContinualResult
from brickwork.errors import RequestError
from brickwork.pools import KernelPool
from brickwork.report.continual import draw_comparison, draw_front
from brickwork.report.drawing import Drawing, Picture, Polygon, Rectangle
from brickwork.report.pools import draw_kernels, draw_overlap, draw_pool, draw_selection, overlap, selection_rates

NAN = float("nan")
VOID = {"meta", "rect", "line", "polygon", "image", "input"}


class Reader(HTMLParser):
    """Every element that is opened is closed, and what the page would load."""

    def __init__(self):
        super().__init__()
        self.open, self.loads = [], []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.loads += [found[key] for key in ("src", "href") if not found.get(key, "#").startswith(("#", "data:"))]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag in VOID or self.open.pop() == tag


def checked(page):
    reader = Reader()
    reader.feed(page)
    assert page.startswith("<!doctype html>") and reader.open == [] and reader.loads == []
    assert "://" not in page and "@import" not in page and "url(" not in page
    assert "prefers-color-scheme:dark" in page and 'content="light dark"' in page
    return page


def result(name, total, accuracy):
    matrix = np.where(np.tri(3, dtype=bool), accuracy, NAN)
    own = total // 10
    return ContinualResult(name, ("a", "b", "c"), matrix, (own,) * 3, tuple(total - own * k for k in (2, 1, 0)), 1.0)


@pytest.fixture(scope="module")
def comparison():
    late = replace(result("joint", 3000000, 0.99), matrix=np.array([[NAN] * 3, [NAN] * 3, [0.9, 0.8, 0.7]]))
    some = [result("finetune", 9000000, 0.91), result("<probe>", 40000, 0.72), result("worse", 50000, 0.71), late]
    return Comparison("digits & more", {r.method: r for r in some})


def test_the_page_of_a_comparison(comparison):
    page = checked(draw_comparison(comparison).html())
    assert draw_comparison(comparison).html() == page
    for told in (
        "average accuracy 91.00%",
        "8.583 MB in all",
        "&lt;probe&gt;, on the front",
        "digits &amp; more",
        "a after c",
        "no network yet",
        "after task 3",
    ):
        assert told in page
    assert "<probe>" not in page


def test_the_front_is_drawn_where_the_numbers_are(comparison):
    drawing = draw_front(comparison)
    spots = {m.tip.split("\n")[0].split(",")[0]: m for m in drawing.marks if isinstance(m, Rectangle) and m.tip}
    assert spots["<probe>"].x < spots["worse"].x < spots["joint"].x < spots["finetune"].x
    assert spots["finetune"].y < spots["joint"].y < spots["<probe>"].y < spots["worse"].y
    assert spots["<probe>"].width > spots["worse"].width  # on the front, and not
    assert [row[-1] for row in drawing.rows] == ["yes", "yes", "", "yes"]
    assert dict(drawing.cards)["most accurate"] == "finetune: 91.0%" and drawing.part == "pools"


@pytest.fixture(scope="module")
def pool():
    model = zoo.build("resnet8", num_classes=3, in_channels=1, width=4, seed=0)
    return KernelPool.cluster([model], size=24, seed=0)


@pytest.fixture(scope="module")
def tasks(pool):
    draw = torch.Generator().manual_seed(0)
    made = {}
    for k, share in enumerate((0.0, 0.25, 1.0, 0.5, 0.5, 0.5)):
        codes = {
            name: torch.where(torch.rand(len(c), generator=draw) < share, (c + 1) % len(pool.layers[name]), c).int()
            for name, c in pool.base.codes.items()
        }
        made[f"task <{k}>"] = replace(pool.base, codes=codes, reference=pool.base)
    return made


def test_selection_rates_are_shares(pool, tasks):
    for name, rate in selection_rates(pool, tasks["task <1>"]).items():
        assert len(rate) == len(pool.layers[name]) and rate.sum() == pytest.approx(1)
        assert rate[3] == pytest.approx(float((tasks["task <1>"].codes[name] == 3).double().mean()))
    with pytest.raises(RequestError, match="another pool"):
        selection_rates(pool, replace(tasks["task <1>"], pool="0" * 64))


def test_histograms_have_a_panel_for_every_layer(pool, tasks):
    drawing = draw_selection(pool, "task <1>", tasks["task <1>"])
    assert sum(isinstance(mark, Polygon) for mark in drawing.marks) == len(pool.layers) == len(drawing.rows)
    tops = [min(y for _, y in m.points) for m in drawing.marks if isinstance(m, Polygon)]
    assert len(set(tops)) == -(-len(tops) // 4)  # in every row of panels the tallest bar reaches the top
    ElementTree.fromstring(drawing.svg())


def test_overlap(pool, tasks):
    assert overlap(tasks["task <0>"], tasks["task <0>"]) == 1
    assert overlap(tasks["task <0>"], tasks["task <2>"]) == 0
    assert overlap(tasks["task <0>"], tasks["task <1>"]) == pytest.approx(0.75, abs=0.05)
    drawing = draw_overlap(pool, tasks, dict.fromkeys(tasks, 1234))
    assert [row[2] for row in drawing.rows][:3:2] == ["0.00%", "100.00%"] and drawing.rows[0][3] == "1,234"


def test_kernels_are_pictures_of_the_codebook(pool):
    drawing = draw_kernels(pool)
    pictures = [mark for mark in drawing.marks if isinstance(mark, Picture)]
    assert len(pictures) == len(pool.layers)
    name, book = next(iter(pool.layers.items()))
    with Image.open(io.BytesIO(pictures[0].png)) as sheet:
        pixels = np.asarray(sheet).astype(int)
    value = book.float().numpy().reshape(-1, 3, 3)
    top = np.unravel_index(np.abs(value).argmax(), value.shape)
    red, _, blue = pixels[top[1], top[0] * 4 + top[2]]
    assert (red > blue) == (value[top] > 0), name
    assert (pixels[:, 3] == 128).all()  # between two kernels


def test_the_page_of_a_pool_and_its_pictures(pool, tasks, tmp_path):
    page = checked(draw_pool(pool, tasks, title="<Pool>").html())
    assert "&lt;Pool&gt;" in page and "6 tasks. Histograms are of the first 5." in page
    assert len(re.findall(r"<section", page)) == 5 + 2
    assert page.count("The next 5 pictures. To see whether a task") == page.count("Across: the index") == 1
    assert draw_pool(pool, tasks, title="<Pool>").html() == page
    checked(draw_pool(pool, {}).html())  # a pool without tasks has kernels still
    for suffix in (".png", ".svg"):
        assert draw_selection(pool, "x", tasks["task <1>"]).save(tmp_path / f"a{suffix}").stat().st_size > 1000
        assert draw_kernels(pool).save(tmp_path / f"b{suffix}").stat().st_size > 1000


def test_a_picture_is_painted_sharply():
    buffer = io.BytesIO()
    Image.fromarray(np.array([[[255, 0, 0], [0, 0, 255]]], np.uint8)).save(buffer, "PNG")
    drawing = Drawing("x", 20, 10, (Picture(0, 0, 20, 10, buffer.getvalue()),))
    with Image.open(io.BytesIO(drawing.png(scale=1))) as painted:
        assert painted.getpixel((9, 5)) == (255, 0, 0) and painted.getpixel((10, 5)) == (0, 0, 255)
