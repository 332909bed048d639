"""The picture of routes: well-formed, complete, the same bytes twice, nothing outside its frame."""

import io
import re
from xml.etree import ElementTree

import pytest
from PIL import Image

from brickwork.bricks.options import RoutesOptions
from brickwork.bricks.route_sets import RouteLayer, Routes
from brickwork.errors import RequestError
from brickwork.report import Drawing, draw_routes
from brickwork.report.drawing import Line, Polygon, Rectangle, Text, text_width
from brickwork.report.route_colours import OWN, SHARED, UNUSED, Scheme

SVG = "{http://www.w3.org/2000/svg}"
LENET = (("conv1", 6), ("conv2", 16), ("fc1", 120), ("fc2", 84))
VGG = tuple((f"features.{i}", 64 * min(8, 1 + i)) for i in range(13))
RESNET = tuple((f"layer{1 + i // 10}.{i % 10}.conv", 256 + 64 * i) for i in range(40))


def made(layers, names=("deer", "airplane"), known=10):
    """Routes with a known pattern: class k is on the channels whose number leaves k or k+1 when divided by 5."""
    columns = [RouteLayer("input", "input", 3, dict.fromkeys(names, (0, 1, 2)))]
    for name, size in layers:
        on = {n: tuple(c for c in range(size) if c % 5 in (k % 5, (k + 1) % 5)) for k, n in enumerate(names)}
        scores = {n: tuple(2.0 + c / size if c in on[n] else 0.1 for c in range(size)) for n in names}
        columns.append(RouteLayer(name, "layer", size, on, scores, (name,), (columns[-1].name,)))
    own = {n: (k,) for k, n in enumerate(names)}
    columns.append(RouteLayer("classes", "classes", known, own, reads=(columns[-1].name,)))
    about = RoutesOptions(scored=200)
    return Routes(tuple(names), tuple(columns), "lenet", dict.fromkeys(names, 100), about)


CASES = {
    "lenet": made(LENET),
    "one": made(LENET, ("deer",)),
    "three": made(LENET, ("deer", "airplane", "cat")),
    "ten": made(LENET, tuple("0123456789")),
    "odd names": made(LENET, ("<&\"'>", "a very long name of a class that nobody could ever have wanted to read")),
    "vgg": made(VGG),
    "vgg, ten": made(VGG, tuple("0123456789")),
    "resnet": made(RESNET, known=1000),
}


@pytest.fixture(params=CASES, scope="module")
def case(request):
    return CASES[request.param], draw_routes(CASES[request.param])


def cells(drawing):
    return [m for m in drawing.marks if isinstance(m, Rectangle) and m.tip]


def test_svg_is_xml_and_the_same_twice(case):
    routes, drawing = case
    root = ElementTree.fromstring(drawing.svg())
    assert root.tag == f"{SVG}svg" and root.find(f"{SVG}title").text == routes.title()
    assert draw_routes(routes).svg() == drawing.svg()
    assert len(drawing.svg()) < 150_000
    texts = {text.text or "" for text in root.iter(f"{SVG}text")} | {t.tail for t in root.iter(f"{SVG}title")}
    assert routes.title()[:10] in " ".join(filter(None, texts))


def test_nothing_leaves_the_frame_and_no_texts_overlap(case):
    _, drawing = case
    boxes = []
    for mark in drawing.marks:
        if isinstance(mark, Rectangle):
            xs, ys = (mark.x, mark.x + mark.width), (mark.y, mark.y + mark.height)
        elif isinstance(mark, Line):
            xs, ys = (mark.x1, mark.x2), (mark.y1, mark.y2)
        elif isinstance(mark, Polygon):
            xs, ys = zip(*mark.points, strict=True)
        else:
            xs, ys = _extent(mark)
            if not mark.turn:
                boxes.append((xs[0], ys[0], xs[1], ys[1], mark.text))
        assert min(xs) >= 0 and max(xs) <= drawing.width and min(ys) >= 0 and max(ys) <= drawing.height, mark
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
            assert apart, (a, b)


def _extent(text: Text):
    wide = text_width(text.text, text.size)
    if text.turn:  # rises to the right
        return (text.x, text.x + 0.79 * wide), (text.y - 0.62 * wide - text.size, text.y)
    start = text.x - {"start": 0, "middle": wide / 2, "end": wide}[text.anchor]
    return (start, start + wide), (text.y - 0.8 * text.size, text.y + 0.2 * text.size)


def test_every_channel_of_a_small_network_is_a_cell():
    routes, drawing = CASES["lenet"], draw_routes(CASES["lenet"])
    root = ElementTree.fromstring(drawing.svg())
    tips = [rect for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    assert len(tips) == sum(layer.size for layer in routes.layers) == 3 + 6 + 16 + 120 + 84 + 10
    shared = {f"fc1, channel {k}" for k in routes.shared("fc1", "deer", "airplane")}
    dark = {m.tip.split("\n")[0] for m in cells(drawing) if m.fill == SHARED and m.tip.startswith("fc1,")}
    assert dark == shared and len(dark) == 24
    counts = [sum(m.fill == colour for m in cells(drawing)) for colour in (OWN[0], SHARED, OWN[1], UNUSED)]
    wanted = [Scheme(routes).counts(layer) for layer in routes.layers]
    assert counts == [sum(column) for column in zip(*wanted, strict=True)]
    lines = [m for m in drawing.marks if isinstance(m, Line)]
    assert 0 < len(lines) <= 2 * 60 * (len(routes.layers) - 1)
    texts = [m.text for m in drawing.marks if isinstance(m, Text)]
    assert "33% shared" in texts and "24 of 72" in texts and "deer" in texts


def test_bars_of_a_wide_network():
    routes = CASES["vgg"]
    drawing = draw_routes(routes)
    column = [m for m in cells(drawing) if m.tip.startswith("features.12\n")]
    assert [m.fill for m in column] == [OWN[0], SHARED, OWN[1], UNUSED]
    counts = Scheme(routes).counts(routes.layer("features.12"))
    assert sum(counts) == 512 and [f": {n} of 512 " in m.tip for n, m in zip(counts, column, strict=True)] == [True] * 4
    total = sum(m.height for m in column)
    assert [m.height / total for m in column] == pytest.approx([n / 512 for n in counts])
    assert draw_routes(CASES["lenet"], style="bars").marks != draw_routes(CASES["lenet"]).marks
    rows = {m.y for m in cells(draw_routes(CASES["resnet"])) if m.fill == SHARED and "input" not in m.tip}
    assert len(rows) >= 2  # 42 columns do not fit beside each other


@pytest.mark.parametrize(("count", "labels"), [(7, ["of 3", "of 4–6"]), (100, ["of 3–50", "of 51–99"])])
def test_groups_of_many_classes(count, labels):
    scheme = Scheme(made(LENET, tuple(map(str, range(count))), known=count))
    assert [group.label for group in scheme.groups[2:4]] == labels
    users = [tuple(map(str, range(n))) for n in range(count + 1)]
    found = [scheme.of(u) for u in users]
    assert found[0] == 5 and found[1:] == sorted(found[1:]) and set(found) == set(range(6))


def test_png_opens_at_the_right_size():
    drawing = draw_routes(made(LENET[:2]))
    small, large = drawing.png(scale=1), drawing.png()
    for content, scale in ((small, 1), (large, 2)):
        image = Image.open(io.BytesIO(content))
        assert image.format == "PNG" and image.size == (round(drawing.width * scale), round(drawing.height * scale))
    cell = next(m for m in cells(drawing) if m.fill == SHARED)
    centre = (round(cell.x + cell.width / 2), round(cell.y + cell.height / 2))
    assert "#{:02x}{:02x}{:02x}".format(*Image.open(io.BytesIO(small)).getpixel(centre)) == SHARED
    assert drawing.png(scale=1) == small
    Image.open(io.BytesIO(draw_routes(CASES["vgg"]).png(scale=0.5))).load()


def test_the_page_needs_nothing_else():
    page = draw_routes(CASES["odd names"]).html()
    assert "http:" not in page and "https:" not in page and "<link" not in page and " src=" not in page
    assert page.count("<svg ") == 1 and "&lt;&amp;&quot;" in page and "only <&" not in page
    assert len(re.findall("<tr>", page)) == 1 + len(CASES["odd names"].layers)
    assert "<td>33.3%</td>" in page


def test_saving_by_suffix(tmp_path):
    drawing = draw_routes(made((("fc", 8),)))
    for name, start in (("a.svg", b"<svg "), ("b.PNG", b"\x89PNG"), ("c/d.html", b"<!doctype html>")):
        path = drawing.save(tmp_path / name)
        assert path.read_bytes().startswith(start)
        assert drawing.save(path).read_bytes() == path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.svg", "b.PNG", "c"]


def test_wrong_requests(tmp_path):
    drawing = draw_routes(CASES["one"])
    for name, message in (("a.gif", "ends in '.gif'"), ("a", "has no suffix")):
        with pytest.raises(RequestError, match=message):
            drawing.save(tmp_path / name)
    (tmp_path / "x.svg").mkdir()
    with pytest.raises(RequestError, match="is a folder"):
        drawing.save(tmp_path / "x.svg")
    (tmp_path / "y.svg").write_text("mine")
    with pytest.raises(RequestError, match="exists already"):
        drawing.save(tmp_path / "y.svg", force=False)
    assert (tmp_path / "y.svg").read_text() == "mine"
    with pytest.raises(RequestError, match="style is 'pie'; it must be auto, cells, bars"):
        draw_routes(CASES["one"], style="pie")
    with pytest.raises(RequestError, match="not possible"):
        Drawing("x", 1e5, 1e5, ()).png()
    with pytest.raises(RequestError, match="not possible"):
        drawing.png(scale=0)
