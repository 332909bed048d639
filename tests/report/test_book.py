"""The page of a report: what is on it, the same bytes, and how it behaves in a real browser."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from brickwork.dependencies import DependencyMap
from brickwork.errors import BadData, RequestError
from brickwork.report.bars import Bar, draw_bars
from brickwork.report.book import Book, Chapter
from brickwork.report.drawing import Circle, Drawing, Line, Picture, Polygon, Rectangle, Text, text_width
from brickwork.report.figure_file import from_json, to_json
from brickwork.report.route_colours import SHARED, UNUSED
from brickwork.report.runs import report, save_figures

PNG = b"\x89PNG\r\n\x1a\n rest"
MARKS = (
    Rectangle(10, 10, 30, 20, "#1f6fb4", "cat\n97 %", "cats"),
    Rectangle(60, 10, 30, 20, "#d1661c", "dog\n95 %", "dogs"),
    Line(0, 0, 90, 60, "#e3e6ea", series="cats"),
    Line(0, 0, 90, 60, "#e3e6ea", bend=(5.0, 60.0), role="arc", keys=(("target", 3), ("base", 1))),
    Circle(40, 40, 3, "none", colour="#57606a"),
    Polygon(((0.0, 0.0), (1.0, 2.0), (3.0, 4.0)), "#ffffff"),
    Text(5, 70, "<b>& texts", 12, tip="a text"),
    Picture(1, 1, 2, 2, PNG),
)
FIGURE = Drawing(
    "Two animals",
    400,
    80,
    MARKS,
    "What to look for.",
    ("name", "value"),
    (("cat", "1,5"), ("dog", "2")),
    (("best of two", "97 %"),),
    "brickwork example --out x",
    "bricks",
)


def test_a_figure_comes_back_from_its_file(tmp_path):
    assert from_json(to_json(FIGURE)) == FIGURE
    FIGURE.save(tmp_path / "x.json")
    assert from_json((tmp_path / "x.json").read_text()) == FIGURE


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"kind": "another"}, "another kind"),
        ({"marks": [["rectangle", 0, 0, 1, 1, '"><script>alert(1)</script>', "", ""]]}, "colour"),
        ({"marks": [["rectangle", 0, float("inf"), 1, 1, "#fff", "", ""]]}, "y is inf"),
        ({"marks": [["script", "alert(1)"]]}, "script"),
        ({"marks": [["text", 0, 0, 5, 12, "start", False, "#fff", 0, "", ""]]}, "text is 5"),
        ({"marks": [["picture", 0, 0, 1, 1, "aGVsbG8="]]}, "PNG"),
        ({"marks": [["line", 0, 0, 1, 1, "#fff", 1, 1, "", [1]]]}, "bend is"),
        ({"marks": [["polygon", [[0, "1"]], "#fff", 1]]}, "points are"),
        ({"marks": [["circle", 0, 0, 1, "#fff", {"keys": [["a onload", 1]]}]]}, "the keys"),
        ({"marks": [["circle", 0, 0, 1, "#fff", {"keys": [["a", "1"]]}]]}, "the keys"),
        ({"cards": [["one"]]}, "card"),
        ({"width": 0}, "size"),
        ({"more": 1}, "more"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_no_figure_is_refused(change, word):
    with pytest.raises(BadData, match=word):
        from_json(json.dumps({**json.loads(to_json(FIGURE)), **change}))


def test_every_kind_of_mark_is_in_every_kind_of_file(tmp_path):
    drawing = dataclasses.replace(FIGURE, marks=MARKS[:-1])
    svg = drawing.svg()
    for element in (
        "<rect ",
        "<line ",
        '<path class="arc" data-target="3" data-base="1" ',
        "<circle ",
        "<polygon ",
        "<text ",
    ):
        assert element in svg
    with Image.open(drawing.save(tmp_path / "x.png")) as painted:
        assert painted.getpixel((2 * 25, 2 * 20)) == (0x1F, 0x6F, 0xB4)
        assert painted.getpixel((2 * 43, 2 * 40)) != (255, 255, 255)  # the outline of the circle
        near = {painted.getpixel((2 * 20 + dx, 2 * 31 + dy)) for dx in range(-20, 8) for dy in range(-8, 9)}
        assert (0xE3, 0xE6, 0xEA) in near  # the curve, well below the straight line


def test_panels_stand_alone_on_a_page_and_together_in_a_file():
    drawing = dataclasses.replace(FIGURE, marks=MARKS[:-1], cuts=(50.0,))
    assert from_json(to_json(drawing)) == drawing
    first, second = drawing.svg(inline=True).split("</svg>")[:2]
    assert 'viewBox="0 0 50 80"' in first and "cat" in first and "dog" not in first
    assert 'viewBox="50 0 350 80"' in second and "dog" in second and "cat" not in second
    assert drawing.svg().count("<svg") == 1 and drawing.least == 321  # letters of 12 pixels, in a panel of 350
    with pytest.raises(BadData, match="cuts"):
        from_json(to_json(dataclasses.replace(drawing, cuts=(500.0,))))


def test_three_lines_of_words_answer_three_questions():
    page = Book("Mine", [Chapter("A", "", [dataclasses.replace(FIGURE, about="Why.\nThis.\nThen.")])]).html()
    assert "<b>What for</b> Why." in page and "<b>What you see</b> This." in page and "<b>So what</b> Then." in page


def test_names_cannot_write_into_the_page():
    evil = '"><script>alert(1)</script>'
    marks = (Rectangle(0, 0, 1, 1, "#fff", evil, evil), Text(0, 0, evil, tip=evil))
    page = Book(
        evil, [Chapter(evil, evil, [Drawing(evil, 9, 9, marks, evil, (evil,), ((evil,),), ((evil, evil),), evil)])]
    )
    assert "<script>alert" not in page.html()


def test_the_page_has_every_part_and_the_same_bytes():
    book = Book("Mine", [Chapter("Animals", "About them.", [FIGURE]), Chapter("Animals", "", [FIGURE])])
    text = book.html()
    assert text == book.html()
    assert text.count('id="animals"') == 1 and text.count('id="animals-2"') == 1
    for word in ("About them.", "What to look for.", "brickwork example --out x", "97 %", "best of two", "1,5"):
        assert word in text


def test_words_that_figures_share_are_said_once():
    one, two = (dataclasses.replace(FIGURE, title=name, about="Same words.") for name in ("One", "Two"))
    quiet = dataclasses.replace(FIGURE, about="")
    chapters = [Chapter("A", "", [one, two]), Chapter("B", "", [FIGURE, quiet, quiet], heading=False)]
    text = Book("Mine", [*chapters, Chapter("C", "", [one], heading=False), Chapter("D", "", [two])]).html()
    assert text.count("Same words.") == 3  # once for One and Two, then a heading stands between
    assert text.index("The next 2 pictures. Same words.") < text.index('aria-label="One"')
    assert text.count('<p id="a-0-about">') == 1 and text.count(' aria-describedby="a-0-about"') == 2
    assert text.count("<figcaption>Same words.") == 2 and text.count("What to look for.") == 1


def test_what_a_report_is_made_of(tmp_path):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(200, 4))
    logits[:, 3] = logits[:, 0] - logits[:, 1]
    names = ["cat", "dog", "owl", "fox"]
    DependencyMap.fit(logits, logits.argmax(1), names=names, max_dependencies=2).save(tmp_path / "map")
    (tmp_path / "run").mkdir()
    save_figures(tmp_path / "run", [FIGURE, dataclasses.replace(FIGURE, part="", title="Another")])
    rows = [{"what": "a row", "paper": 50.5, "ours": 98.9}, {"what": "without", "paper": None, "ours": 1.0}]
    (tmp_path / "study.json").write_text(json.dumps({"name": "assemble", "paper": "2", "rows": rows}))
    shutil.copytree(tmp_path / "map", tmp_path / "run" / "pets")  # whatever it is called: a run shows the maps in it
    inside = report([tmp_path / "run"]).chapters
    assert [chapter.title.split(":")[0] for chapter in inside] == ["Bricks", "Dependencies", "Another"]
    assert inside[1].figures[0].command == f"brickwork depend show {tmp_path / 'run' / 'pets'}"
    shutil.rmtree(tmp_path / "run" / "pets")
    book = report([tmp_path / "study.json", tmp_path / "run", tmp_path / "map"])
    titles = [chapter.title.split(":")[0] for chapter in book.chapters]
    assert titles == ["Bricks", "Dependencies", "Studies", "Another"]
    assert "fox" in book.html() and "a row" in book.html()


@pytest.mark.parametrize("name", ["nothing-there", "folder", "text.json", "other.json", "broken.json"])
def test_what_is_no_run_is_refused_by_name(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.json").write_text("[1, 2]")
    (tmp_path / "other.json").write_text('{"name": "x", "rows": []}')
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(BadData, match=name):
        report([tmp_path / name])


def test_a_report_of_nothing_and_to_another_suffix(tmp_path):
    with pytest.raises(RequestError, match="at least one"):
        report([])
    with pytest.raises(RequestError, match=r"\.html"):
        Book("x", []).save(tmp_path / "x.pdf")
    assert not list(tmp_path.iterdir())


def test_in_a_browser(tmp_path, browser):
    page = Book("Mine", [Chapter("Animals", "", [dataclasses.replace(FIGURE, marks=MARKS[:-1])])]).save(
        tmp_path / "p.html"
    )
    with browser(page, viewport={"width": 1200, "height": 800}) as (tab, complaints):
        assert not complaints
        tab.hover("rect[data-tip^=cat]")
        assert tab.inner_text("#tip") == "cat\n97 %" and tab.is_visible("#tip")

        tab.fill("#search", "DOG")
        assert tab.inner_text("#count") == "1"
        assert tab.eval_on_selector(".found", "m => m.dataset.tip") == "dog\n95 %"
        tab.fill("#search", "")
        assert not tab.query_selector_all(".found, .faded")

        tab.click(".series button:has-text('cats')")
        assert not tab.is_visible("rect[data-tip^=cat]") and tab.is_visible("rect[data-tip^=dog]")
        tab.click(".series button:has-text('cats')")
        assert tab.is_visible("rect[data-tip^=cat]")

        tab.focus("figure svg")
        tab.keyboard.press("ArrowRight")
        tab.keyboard.press("ArrowRight")
        assert tab.inner_text("#tip") == "dog\n95 %"

        tab.click("summary")
        with tab.expect_download() as download:
            tab.click("button[data-csv]")
        assert download.value.path().read_text() == 'name,value\ncat,"1,5"\ndog,2\n'

        before = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        tab.click("#theme")
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != before
        assert not complaints


def test_on_a_phone_nothing_but_pictures_scrolls_sideways(tmp_path, browser):
    wide = dataclasses.replace(FIGURE, width=1400.0, marks=MARKS[:-1])
    page = Book("Mine", [Chapter("Animals", "x " * 200, [wide])]).save(tmp_path / "p.html")
    with browser(page, viewport={"width": 380, "height": 700}) as (tab, complaints):
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth") and not complaints
        assert tab.query_selector(".picture.more:not(.less)")  # it fades where it goes on
        assert "sideways" in tab.inner_text(".hint") and tab.is_visible(".hint")
        assert tab.eval_on_selector(".picture", "p => getComputedStyle(p).borderLeftWidth") == "1px"
        tab.eval_on_selector(".picture", "p => { p.scrollLeft = 40; }")
        tab.wait_for_selector(".picture.more.less")
        tab.eval_on_selector(".picture", "p => { p.scrollLeft = p.scrollWidth; }")
        tab.wait_for_selector(".picture.less:not(.more)")
        tab.set_viewport_size({"width": 2000, "height": 700})
        tab.wait_for_selector(".picture:not(.more):not(.less)")
        assert not tab.is_visible(".hint") and not complaints


def test_on_paper_a_wide_picture_is_whole(tmp_path, browser):
    wide = dataclasses.replace(FIGURE, width=1400.0, marks=MARKS[:-1])
    page = Book("Mine", [Chapter("Animals", "", [wide])]).save(tmp_path / "p.html")
    with browser(page, viewport={"width": 680, "height": 900}) as (tab, complaints):
        ends = "document.querySelector('.picture svg').getBoundingClientRect().right"
        assert tab.evaluate(ends) > 680
        tab.emulate_media(media="print")
        assert tab.evaluate(ends) <= 680 and not tab.is_visible(".hint") and not complaints


def test_on_a_dark_page_shared_channels_stand_out_and_unused_ones_do_not(tmp_path, browser):
    marks = (Rectangle(0, 0, 9, 9, SHARED, "shared"), Rectangle(9, 0, 9, 9, UNUSED, "unused"))
    page = Book("Mine", [Chapter("", "", [dataclasses.replace(FIGURE, marks=marks)])]).save(tmp_path / "p.html")

    def brightness(tab, name, paint="fill"):
        return sum(map(int, re.findall(r"\d+", tab.eval_on_selector(name, f"m => getComputedStyle(m).{paint}"))))

    for scheme, order in (("light", ["shared", "unused", "paper"]), ("dark", ["paper", "unused", "shared"])):
        with browser(page, viewport={"width": 900, "height": 700}, color_scheme=scheme) as (tab, complaints):
            found = {name: brightness(tab, f"rect[data-tip={name}]") for name in ("shared", "unused")}
            found["paper"] = brightness(tab, "body", "backgroundColor")
        assert sorted(found, key=found.get) == order and not complaints


def test_bars_fit_a_phone_with_their_numbers():
    figure = draw_bars("Right", [Bar("whole", 0.99, "99 %", 2), Bar("a brick " * 20, 0.98, "98 % of all of them")])
    assert figure.width <= 376
    for mark in figure.marks:
        if isinstance(mark, Text):
            wide = text_width(mark.text, mark.size)
            left = mark.x - wide if mark.anchor == "end" else mark.x
            assert left >= 0 and left + wide <= figure.width
