"""The page of a dependency map: complete, safe whatever the classes are called, the same twice, nothing loaded."""

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from brickwork.dependencies import DependencyMap, logit_gram
from brickwork.errors import BadData, RequestError, UnknownName
from brickwork.report.book import Book, Chapter
from brickwork.report.dependencies import draw_dependencies, map_figure
from brickwork.report.dependency_graph import MINUS, PLUS, best, choose_graph
from brickwork.report.drawing import text_width

SVG = "{http://www.w3.org/2000/svg}"
EVIL = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "a & b",
    '"quoted"\' onload=x',
    "{{data}} \\u003c",
    "crane",
    "crane",
    "line\u2028end \x07",
    "鶴",
    "a very long name of a class that nobody could ever have wanted to read",
]
VOID = {"meta", "input", "path", "rect", "circle"}  # not counted: never closed, or closed in two ways


def logits(classes, rows=300, seed=0):
    rng = np.random.default_rng(seed)
    inner = min(8, classes)
    return rng.normal(size=(rows, inner)) @ rng.normal(size=(inner, classes)) + 0.3 * rng.normal(size=(rows, classes))


def made(classes, names=None, **options):
    values = logits(classes)
    options = {"max_dependencies": 3} | options
    return DependencyMap.fit(values, values.argmax(1), names=names, **options)


def large():
    """1000 classes with 20 coefficients each and every column a map can have; no fit, so that it takes no time."""
    rng = np.random.default_rng(0)
    coef = np.zeros((1000, 1000))
    for t in range(1000):
        coef[t, rng.choice(np.delete(np.arange(1000), t), 20, replace=False)] = rng.normal(size=20)
    columns = {key: rng.random(1000) for key in made(4, bootstrap=2, null=19).columns}
    names = tuple(f"class_{k}_with_a_name" for k in range(1000))
    facts = {"within": True, "measured_on": "made rows", "settings": {}}
    return DependencyMap(names, names, coef, columns, facts, np.where(coef != 0, rng.random((1000, 1000)), 0))


@pytest.fixture(scope="module")
def between():
    values = logits(12)
    options = {"targets": values @ logits(5, 12), "target_names": list("vwxyz"), "max_dependencies": 3}
    return DependencyMap.fit(values, **options)


@pytest.fixture(scope="module")
def maps(between):
    some = made(10, [str(k) for k in range(10)], bootstrap=3, null=19)
    return {"digits": some, "odd": made(10, EVIL), "forty": made(40), "between": between, "large": large()}


class Reader(HTMLParser):
    """Every element that is opened is closed, and what the page would load."""

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.scripts, self.ids = [], [], 0, []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.loads += [found[key] for key in ("src", "href", "srcset", "data", "action") if key in found]
        self.loads += [tag] if tag in ("link", "iframe", "img", "object", "embed") else []
        self.scripts += tag == "script"
        self.ids += [found["id"]] if "id" in found else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag in VOID or self.open.pop() == tag


def stored(page):
    return json.loads(re.search(r'<script type="application/json" id="map">(.*?)</script>', page, re.S)[1])


@pytest.mark.parametrize("name", ["digits", "odd", "forty", "between", "large"])
def test_the_page_holds_the_map_and_loads_nothing(maps, name):
    found = maps[name]
    page = draw_dependencies(found).html()
    reader = Reader()
    reader.feed(page)
    assert page.startswith("<!doctype html>") and reader.open == [] and reader.loads == []
    assert reader.scripts == 2 and len(reader.ids) == len(set(reader.ids))
    assert "http:" not in page and "https:" not in page and "@import" not in page and "url(" not in page
    assert "{{" not in re.sub(r'id="map">.*?</script>', "", page) or name == "odd"
    data = stored(page)
    assert data["names"] == list(found.names) and data["targets"] == list(found.targets)
    coef = np.zeros_like(found.coef)
    for t, row in enumerate(data["links"]):
        coef[t, row[::2]] = row[1::2]
        assert np.all(np.diff(np.abs(row[1::2])) <= 0)
    np.testing.assert_allclose(coef, found.coef, rtol=1e-5)
    assert set(data["columns"]) == set(found.columns)
    for key, column in found.columns.items():
        kept = np.array(data["columns"][key], float)
        np.testing.assert_allclose(kept, np.where(np.isfinite(column), column, np.nan), rtol=1e-5)
    assert (data["often"] is None) == (found.frequency is None) and data["scatter"] is None
    again = DependencyMap(
        found.names, found.targets, found.coef, dict(reversed(found.columns.items())), found.facts, found.frequency
    )
    assert draw_dependencies(again).html() == page


def test_names_are_only_ever_text(maps):
    page = draw_dependencies(maps["odd"], classes=[0, 1, 2]).html()
    assert "alert(1)</script>" not in page and "<!--" not in page
    assert "&lt;/script&gt;" in page and "\\u003c/script\\u003e" in page
    assert "innerHTML" not in page and "document.write" not in page and "eval(" not in page
    ElementTree.fromstring(draw_dependencies(maps["odd"]).svg())  # the bell is no XML character
    assert "\x07" not in draw_dependencies(maps["odd"]).svg()


def test_a_thousand_classes_stay_small_and_readable(maps):
    found = maps["large"]
    plain = draw_dependencies(found)
    rng = np.random.default_rng(1)
    full = draw_dependencies(found, moments=logit_gram(rng.normal(size=(50, 1000))))
    assert len(plain.html().encode()) < 1_000_000 and len(full.html().encode()) < 1_500_000
    root = ElementTree.fromstring(plain.svg())
    arcs = [p for p in root.iter(f"{SVG}path") if p.get("class") == "t arc"]
    assert len(arcs) <= 96 and len(plain.svg()) < 100_000
    graph = choose_graph(found)
    assert list(graph.targets) == best(found, 10) and len(graph.bases) == len(set(graph.bases)) <= 96
    errors = found.columns["rel_error"]
    assert errors[list(graph.targets)].max() <= np.sort(errors)[9]


@pytest.mark.parametrize("name", ["digits", "odd", "forty", "between", "large"])
@pytest.mark.parametrize("classes", [(), (0,), (3, 1), tuple(range(5))])
def test_the_graph(maps, name, classes):
    found = maps[name]
    root = ElementTree.fromstring(draw_dependencies(found, classes=classes).svg())
    width, height = float(root.get("width")), float(root.get("height"))
    graph = choose_graph(found, classes)
    inside = {e.get("data-target") for e in root.iter(f"{SVG}text") if e.get("class") == "t target"}
    assert inside == {str(t) for t in graph.targets} and (not classes or set(graph.targets) == set(classes))
    widths, colours = {}, {}
    for arc in (p for p in root.iter(f"{SVG}path") if p.get("class") == "t arc"):
        link = int(arc.get("data-target")), int(arc.get("data-base"))
        widths[link], colours[link] = float(arc.get("stroke-width")), arc.get("stroke")
        assert f"{abs(found.coef[link]):.3f}·" in arc.find(f"{SVG}title").text
    assert set(widths) == set(graph.links) and all((colours[link] == PLUS) == (found.coef[link] > 0) for link in widths)
    assert set(colours.values()) <= {PLUS, MINUS}
    order = sorted(widths, key=lambda link: abs(found.coef[link]))
    assert [widths[link] for link in order] == sorted(widths.values())
    for text in root.iter(f"{SVG}text"):  # upright names stay in the frame
        if text.get("class") == "t base" and text.get("transform") is None:
            shown = (text.find(f"{SVG}title").tail or "").strip()
            wide, x, y = (text_width(shown, float(text.get("font-size"))), float(text.get("x")), float(text.get("y")))
            start = x - {"start": 0, "middle": wide / 2, "end": wide}[text.get("text-anchor", "start")]
            assert start >= 0 and start + wide <= width and 4 <= y <= height - 4


def test_correlations(maps, between):
    values = logits(10)
    data = draw_dependencies(maps["digits"], moments=logit_gram(values)).data
    seen, cross = data["scatter"], np.abs(logit_gram(values).cross)
    for t, row in enumerate(data["links"]):
        np.testing.assert_allclose(seen["links"][t], cross[t, row[::2]], rtol=1e-3)
        assert sum(seen["zeros"][t]) == 9 - len(row) // 2
    assert sum(seen["zero"]) == 90 - int((maps["digits"].coef != 0).sum()) and seen["rows"] == 300
    assert data["plain"] is True and "Conjecture 1" in draw_dependencies(maps["digits"]).html()
    moments = logit_gram(logits(12), logits(12) @ logits(5, 12))
    assert sum(draw_dependencies(between, moments=moments).data["scatter"]["zero"]) == 5 * 12 - 15


def test_classes_and_where_the_page_opens(maps):
    found = maps["digits"]
    assert draw_dependencies(found).data["start"] is None
    assert draw_dependencies(found, classes=["7"]).data["start"] == 7
    assert draw_dependencies(found, classes=["7", 2]).data["start"] is None
    assert "Every class is inside" in draw_dependencies(found).html()
    assert "The 10 of 40 classes with" in draw_dependencies(maps["forty"]).html()
    empty = DependencyMap(found.names, found.targets, 0 * found.coef, found.columns, found.facts)
    assert draw_dependencies(empty).data["links"] == [[]] * 10
    ElementTree.fromstring(draw_dependencies(empty).svg())


def test_saving_and_wrong_requests(maps, tmp_path):
    page = draw_dependencies(maps["digits"])
    assert page.save(tmp_path / "new" / "a.html").read_text(encoding="utf-8") == page.html()
    assert page.save(tmp_path / "new" / "a.SVG").read_text(encoding="utf-8") == page.svg()
    for name, message in (("a.png", "ends in '.png'"), ("a", "has no suffix")):
        with pytest.raises(RequestError, match=message):
            page.save(tmp_path / name)
    (tmp_path / "y.html").write_text("mine")
    with pytest.raises(RequestError, match="exists already"):
        page.save(tmp_path / "y.html", force=False)
    assert (tmp_path / "y.html").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "y.html"]
    with pytest.raises(RequestError, match="not a dict"):
        draw_dependencies({})
    with pytest.raises(UnknownName):
        draw_dependencies(maps["digits"], classes=["eleven"])
    with pytest.raises(RequestError, match="17 classes are too many"):
        draw_dependencies(maps["forty"], classes=range(17))
    with pytest.raises(BadData, match="the logits have 4 classes for 4 targets; the map has 10"):
        draw_dependencies(maps["digits"], moments=logit_gram(logits(4)))


def test_a_persons_way_through_the_page(maps, tmp_path, browser):
    """Search, click, sort, the address, tips, light and dark: in a real browser, from a file."""
    from playwright.sync_api import expect  # the page follows its address, which it hears of a moment later

    found = maps["digits"]
    path = draw_dependencies(found, moments=logit_gram(logits(10))).save(tmp_path / "map.html")
    with browser(path, viewport={"width": 1300, "height": 900}) as (tab, complaints):
        title = tab.locator("#panel h3")
        assert tab.locator("#panel h3").inner_text() == "Click or search a class"
        assert tab.locator("#multiples .small").count() == 10 and tab.locator("#table tbody tr").count() == 10
        bar = tab.locator("#multiples svg > rect").first
        assert bar.evaluate("node => getComputedStyle(node).fill") in ("rgb(0, 114, 178)", "rgb(213, 94, 0)")
        tab.locator("#search").fill("7")
        assert tab.locator("#matches li").first.inner_text().startswith("7")
        tab.locator("#search").press("Enter")
        expect(title).to_have_text("7")
        assert tab.url.endswith("#class=7")
        assert tab.locator("#matches").is_hidden() and tab.locator("#overview").is_hidden()
        assert tab.locator("#class svg").is_visible() and "≈" in tab.locator("#panel .equation").inner_text()
        tab.locator("#back").click()
        expect(tab.locator("#overview")).to_be_visible()
        tab.locator("#overview text.target").first.hover()
        assert tab.locator("#tip").inner_text().startswith(f"{found.targets[0]}: relative error")
        assert "dim" in tab.locator("#overview svg").get_attribute("class")
        tab.locator("#overview text.target").first.click()
        expect(title).to_have_text(found.targets[0])
        tab.locator("#table th", has_text="Class").first.click()
        assert tab.locator("#table tbody tr td").first.inner_text() == "0"
        tab.locator("#table tbody tr").nth(3).click()
        expect(title).to_have_text("3")
        paper = "getComputedStyle(document.body).backgroundColor"
        before = tab.evaluate(paper)
        tab.locator("#theme").click()
        assert tab.evaluate(paper) != before
        tab.set_viewport_size({"width": 390, "height": 800})
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        assert complaints == []


LOOK = """elements => elements.filter(e => e.getBoundingClientRect().width && !e.matches('.hit')).map(e => {
  const style = getComputedStyle(e), text = e.matches('text, tspan'), over = e.matches('rect + text');
  const line = !text && style.stroke !== 'none' && style.fill === 'none';
  return {kind: text ? 'text' : 'mark', paint: line ? style.stroke : style.fill,
    share: +(line ? style.strokeOpacity : style.fillOpacity), over,
    size: text ? parseFloat(style.fontSize) * e.closest('svg').getScreenCTM().a : 0};
})"""


def contrast(one, other):
    """Of WCAG 2: 1 to 21."""

    def light(colour):
        part = [c / 255 for c in colour]
        part = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in part]
        return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2] + 0.05

    first, second = sorted((light(one), light(other)))
    return second / first


@pytest.mark.parametrize("name", ["digits", "forty"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_and_letters_can_be_seen_on_a_phone(maps, tmp_path, browser, name, scheme):
    """Contrast of 3 for lines and nodes, 4.5 for letters, which are 11 pixels high; what is wider moves in its frame."""
    page = draw_dependencies(maps[name], moments=logit_gram(logits(len(maps[name].names))))
    path = page.save(tmp_path / "map.html")
    with browser(path, viewport={"width": 390, "height": 800}, color_scheme=scheme) as (tab, complaints):
        paper = colours(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        for picture in ("#overview", "#class", "#scatter"):
            if picture == "#class":
                tab.locator("#overview text.target").first.dispatch_event("click")
            moves = not (name == "digits" and picture == "#overview")  # a ring of a few classes fits as it is
            assert (
                tab.locator(f"{picture} .hint").is_visible()
                == bool(tab.locator(f"{picture} .picture.more").count())
                == moves
            )
            drawn = ("circle", "text", "tspan", "rect", "path.arc", "g:last-of-type > path")
            marks = tab.eval_on_selector_all(", ".join(f"{picture} svg {mark}" for mark in drawn), LOOK)
            assert len(marks) > 10
            for m in marks:
                paint = [m["share"] * a + (1 - m["share"]) * b for a, b in zip(colours(m["paint"]), paper, strict=True)]
                if m["over"]:  # letters on a plate of ink
                    assert contrast(paint, colours(tab.evaluate("getComputedStyle(document.body).color"))) >= 4.5
                    continue
                assert contrast(paint, paper) >= (4.5 if m["kind"] == "text" else 3), m
                assert m["kind"] == "mark" or m["size"] >= 11
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390 and complaints == []


def colours(text):
    return [float(value) for value in re.findall(r"[\d.]+", text)[:3]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_report_the_graph_can_be_seen_on_a_phone(maps, tmp_path, browser, scheme):
    path = Book("Mine", [Chapter("Map", "", [map_figure(maps["large"])])]).save(tmp_path / "p.html")
    with browser(path, viewport={"width": 390, "height": 800}, color_scheme=scheme) as (tab, complaints):
        paper = colours(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
        marks = tab.eval_on_selector_all("figure svg text, figure svg path, figure svg circle", LOOK)
        for m in marks:
            paint = [m["share"] * a + (1 - m["share"]) * b for a, b in zip(colours(m["paint"]), paper, strict=True)]
            assert contrast(paint, paper) >= (4.5 if m["kind"] == "text" else 3), m
            assert m["kind"] == "mark" or m["size"] >= 11
        assert len(marks) > 100 and complaints == []
