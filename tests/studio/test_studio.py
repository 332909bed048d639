"""The studio: who may ask, what may be named, and a person's way from two networks to a new one."""

from __future__ import annotations

import io
import json
import time
import urllib.error
import urllib.request
import zipfile
from dataclasses import replace

import pytest
import torch

import brickwork
from brickwork import data, store, zoo
from brickwork.blueprint import join, trace
from brickwork.blueprint.parts import rescale_input
from brickwork.errors import BadData, RequestError
from brickwork.studio.shelf import Shelf
from brickwork.training import train

uvicorn = pytest.importorskip("uvicorn", reason="the extra [studio] is not installed")
TOKEN = "a-token"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shelf")
    for seed, half in enumerate("AB"):
        images = data.load(f"digits:{half}", size=16, channels=1)
        model = zoo.build("lenet", num_classes=5, in_channels=1, seed=seed)
        train(
            model,
            images.train_images,
            images.train_labels,
            epochs=3,
            classes=images.classes,
            device="cpu",
            progress=False,
        )
        store.save(model, folder / half.lower(), provenance={"data": f"digits:{half}"})
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text("{")
    (folder.parent / "secret").mkdir(exist_ok=True)
    (folder.parent / "secret" / "config.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def address(root, serve):
    with serve(root, TOKEN) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(autouse=True)
def an_empty_board(address):
    """The server keeps the board from one page to the next."""
    assert ask(address, "/api/board", {})[0] == 200


def ask(address, path, body=None, token=TOKEN, host=None):
    """Status and answer."""
    headers = {"X-Token": token, "Content-Type": "application/json", **({"Host": host} if host else {})}
    request = urllib.request.Request(address + path, None if body is None else json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def board(*parts, name="new", **more):
    made = [{"model": m, "classes": c, "data": d, "budget": 0.5} for m, c, d in parts]
    return {"parts": made, "name": name, **more}


@pytest.mark.parametrize("path", ["/", "/api/models", "/api/card?model=a", "/api/jobs/0", "/api/download?model=a"])
def test_nothing_is_said_without_the_token(address, path):
    assert ask(address, path, token="")[0] == ask(address, path, token="wrong")[0] == 403


def test_another_name_for_this_machine_is_refused(address):
    assert ask(address, "/api/models", host="evil.example")[0] == 403


def test_models_are_listed_and_a_broken_one_says_so(address):
    found = {m["name"]: m for m in json.loads(ask(address, "/api/models")[1])}
    assert found["a"]["classes"] == list("01234") and found["b"]["data"] == "digits:B"
    assert "error" in found["broken"] and "secret" not in found


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (board(("a", ["7"], "digits:A")), "no class '7'"),
        (board(("../secret", ["0"], "digits:A")), "not inside"),
        (board(("/etc", ["0"], "digits:A")), "not inside"),
        (board(("nothing", ["0"], "digits:A")), "no model folder"),
        (board(("a", ["0"], "digits:A"), name="../out"), "no name for a folder"),
        (board(("a", ["0"], "digits:A"), name="../../x"), "no name for a folder"),
        (board(("a", ["0"], "/etc")), "not inside"),
        (board(("a", ["0"], "../secret")), "not inside"),
        (board(("a", ["0"], "hfds:user/set")), "elsewhere"),
        (board(("a", ["0"], "no-such-set")), "no-such-set"),
        (board(("a", [], "digits:A")), "classes"),
        (board(), "parts"),
        ({**board(("a", ["0"], "digits:A")), "shell": "rm"}, "shell"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_built_is_refused_before_anything_is_done(address, root, made, told):
    status, answer = ask(address, "/api/build", made)
    assert status == 422 and told in answer.decode()
    assert not (root / "built").exists() or "new" not in [p.name for p in (root / "built").iterdir()]


@pytest.mark.parametrize("name", ["../secret", "/etc", ".", "", "a/../../secret"])
def test_downloads_stay_inside(address, name):
    assert ask(address, f"/api/download?model={name}")[0] == 422


def test_a_link_does_not_lead_out(root):
    (root / "link").symlink_to(root.parent / "secret")
    try:
        with pytest.raises(RequestError, match="not inside"):
            Shelf(root).model("link")
    finally:
        (root / "link").unlink()


def test_a_build_fails_with_a_sentence(address):
    status, answer = ask(address, "/api/build", board(("a", ["0"], "digits:B"), name="wrong"))
    assert status == 200
    job = json.loads(answer)["job"]
    while (found := json.loads(ask(address, f"/api/jobs/{job}")[1]))["state"] == "running":
        time.sleep(0.05)
    assert found["state"] == "failed" and "does not know '5'" in found["error"]


def test_a_persons_way_to_a_new_network(address, root, browser):
    with browser(f"{address}/?token={TOKEN}", viewport={"width": 1200, "height": 900}) as (tab, complaints):
        tab.wait_for_selector("[data-model=a] .chip")
        tab.drag_and_drop("[data-model=a] .chip:has-text('0')", "#drop")
        tab.drag_and_drop("[data-model=b] .chip:has-text('7')", "#drop")
        tab.click("[data-model=a] .chip:has-text('1')")
        # a function to wait for is eval, which the page forbids
        tab.wait_for_selector("#size:has-text('classes 0, 1, 7')")
        assert "25 % of the networks" in tab.inner_text("#size")
        images = tab.input_value("[data-part=b] input:not([type=range])")
        tab.fill("[data-part=b] input:not([type=range])", "")
        assert tab.is_disabled("#build") and "Name images of b above" in tab.inner_text("#why")
        tab.fill("[data-part=b] input:not([type=range])", images)
        assert tab.is_enabled("#build") and tab.inner_text("#why") == ""
        tab.fill("#name", "three")
        tab.click("#build")
        tab.wait_for_selector("#accuracy", timeout=120_000)
        assert float(tab.inner_text("#accuracy").split()[0]) > 90
        assert tab.query_selector("#routes svg") is not None and tab.inner_text("#error") == ""
        with tab.expect_download() as download:
            tab.click("#download")
        archive = zipfile.ZipFile(io.BytesIO(download.value.path().read_bytes()))
        assert {"three/config.json", "three/model.safetensors"} <= set(archive.namelist())
        tab.wait_for_selector("[data-model='built/three']")
        assert not complaints
    model = brickwork.load(root / "built" / "three")
    assert model.brickwork_origin.classes == ("0", "1", "7")
    assert model(torch.zeros(1, 1, 16, 16)).shape == (1, 3)


def built(tab, name):
    """Two classes of one network, and what came of them."""
    tab.click("[data-model=a] .chip:has-text('0')")
    tab.click("[data-model=a] .chip:has-text('1')")
    tab.fill("#name", name)
    tab.click("#build")
    tab.wait_for_selector("#accuracy", timeout=120_000)


def test_what_a_cut_left_whole_is_told(address, browser, monkeypatch):
    """The board's slider asks for a share that a network with tied widths cannot have."""
    from brickwork.studio import build

    cut = build.disassemble
    monkeypatch.setattr(build, "disassemble", lambda *a, **k: replace(cut(*a, **k), note="left whole: conv1"))
    with browser(f"{address}/?token={TOKEN}", viewport={"width": 1200, "height": 900}) as (tab, complaints):
        built(tab, "noted")
        assert tab.inner_text("#result .note") == "a: left whole: conv1" and not complaints


def test_a_network_without_a_picture_of_its_routes_is_built_all_the_same(address, root, browser, monkeypatch):
    from brickwork.studio import build

    def unsure(*args, **options):
        raise BadData("frat scores only images the model is sure of.")

    monkeypatch.setattr(build, "routes", unsure)
    with browser(f"{address}/?token={TOKEN}", viewport={"width": 1200, "height": 900}) as (tab, complaints):
        built(tab, "unseen")
        assert "No picture of the routes in the part of a: frat scores" in tab.inner_text("#result .note")
        assert tab.query_selector("#download") is not None and not complaints
    assert (root / "built" / "unseen").is_dir()


def test_an_answer_that_comes_late_is_passed_over(address, browser):
    """Three classes are put onto the board; the server answers the second question after the third."""
    with browser(f"{address}/?token={TOKEN}", viewport={"width": 1200, "height": 900}) as (tab, complaints):
        tab.wait_for_selector("[data-model=a] .chip")
        held = []
        tab.route("**/api/size*", lambda route: held.append(route))
        for name in "012":
            tab.click(f"[data-model=a] .chip:has-text('{name}')")
            while len(held) < int(name) + 1:
                tab.wait_for_timeout(20)
        for route in (held[0], held[2]):
            route.continue_()
        tab.wait_for_selector("#size:has-text('classes 0, 1, 2')")
        with tab.expect_response("**/api/size*"):
            held[1].continue_()
        tab.wait_for_timeout(100)
        assert "classes 0, 1, 2" in tab.inner_text("#size") and not complaints


@pytest.fixture(scope="module")
def sized(tmp_path_factory):
    """A network with batch norms, and one that was cut, rescaled and joined: each has buffers of its own."""
    folder = tmp_path_factory.mktemp("sized")
    net = zoo.build("resnet8", num_classes=3, in_channels=1, width=4, seed=0)
    brickwork.save(net, folder / "net")
    example = torch.zeros(1, 1, 32, 32)
    small = trace(net, example).select(net, {"classes": [0, 2]})
    parts = [rescale_input(small, [2.0], [1.0]), zoo.build("resnet8", num_classes=3, in_channels=1, width=4)]
    brickwork.save(join(parts, example), folder / "joined")
    return folder


@pytest.mark.parametrize("name", ["net", "joined"])
def test_a_network_is_as_large_as_info_says(sized, run, name):
    code, told, _ = run("info", sized / name, "--json")
    told, shelf = json.loads(told), Shelf(sized)
    assert code == 0 and told["buffers"] > 0
    assert {m["name"]: m["parameters"] for m in shelf.models()}[name] is None
    assert shelf.parameters(name) == told["parameters"]
    assert {m["name"]: m["parameters"] for m in shelf.models()}[name] == told["parameters"]


def test_a_network_that_was_saved_again_is_counted_again(tmp_path):
    shelf = Shelf(tmp_path)
    for width in (4, 8):
        net = zoo.build("resnet8", num_classes=3, in_channels=1, width=width, seed=0)
        brickwork.save(net, tmp_path / "net", force=True)
        assert shelf.parameters("net") == sum(p.numel() for p in net.parameters())


def test_the_page_tells_the_size(address, browser):
    size = sum(t.numel() for t in zoo.build("lenet", num_classes=5, in_channels=1).parameters())
    with browser(f"{address}/?token={TOKEN}") as (tab, complaints):
        tab.wait_for_selector(f"[data-model=a] small:has-text('lenet, {size:,} parameters')")
        assert not complaints


def test_halves_of_networks_in_a_transplant_net_are_no_networks(tmp_path):
    part = tmp_path / "net" / "categories" / "cat"
    brickwork.save(zoo.build("lenet", num_classes=2, seed=0), part)
    assert [m["name"] for m in Shelf(tmp_path).models()] == ["net/categories/cat"]
    (tmp_path / "net" / "transplant.json").write_text("{}")
    assert Shelf(tmp_path).models() == []


def test_on_a_phone_the_board_is_one_step_away(address, browser):
    """However long the list is: by a tap, and by the first tab of a keyboard that keeps its place among the chips."""
    page = f"{address}/?token={TOKEN}"
    with browser(page, viewport={"width": 390, "height": 500}) as (tab, complaints):
        seen = "i => { const y = document.querySelector(i).getBoundingClientRect().top; return y >= 0 && y < innerHeight; }"
        tab.wait_for_selector("[data-model=a] .chip")
        assert not tab.evaluate(seen, "#board") and tab.is_visible("#way")
        tab.click("[data-model=a] .chip:has-text('0')")
        assert tab.inner_text("#held") == "On the board: 0"
        tab.click("#way")
        assert tab.evaluate(seen, "#board") and tab.evaluate("document.activeElement.id") == "drop"
        tab.wait_for_selector("#way:has-text('Back to the networks')")
        tab.click("#way")
        assert tab.evaluate(seen, "#shelf") and not tab.evaluate(seen, "#board")
        assert tab.evaluate("document.documentElement.scrollWidth") == 390
        tab.reload()
        tab.wait_for_selector("[data-model=a] .chip.used")
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.id") == "way"
        tab.keyboard.press("Tab")
        at = "[document.activeElement.closest('[data-model]').dataset.model, document.activeElement.textContent]"
        for pressed in ("false", "true"):  # it was on the board before the page was opened again
            tab.keyboard.press("Enter")
            assert tab.evaluate(at) == ["a", "0"] and tab.get_attribute(".chip:focus", "aria-pressed") == pressed
        tab.keyboard.press("Tab")
        assert tab.evaluate(at) == ["a", "1"]
        assert not complaints


def test_on_a_wide_screen_the_way_to_the_board_is_for_the_keyboard(address, browser):
    with browser(f"{address}/?token={TOKEN}", viewport={"width": 1200, "height": 500}) as (tab, complaints):
        tab.wait_for_selector("[data-model=a] .chip")
        hidden = "getComputedStyle(document.getElementById('jump')).clipPath"
        assert tab.evaluate(hidden) == "inset(50%)"
        tab.keyboard.press("Tab")
        assert tab.evaluate(hidden) == "none" and tab.evaluate("document.activeElement.id") == "way"
        tab.keyboard.press("Enter")
        assert tab.evaluate("document.activeElement.id") == "drop" and not complaints
