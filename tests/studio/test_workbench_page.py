"""The workbench in a browser: from an upload to an exported network, reloads, names."""

from __future__ import annotations

import zipfile
from dataclasses import replace

from safetensors.torch import save

import brickwork
from brickwork import data, zoo
from brickwork.origin import attach, origin_of
from brickwork.training import train

# ---- a person's way


def test_from_an_upload_to_an_exported_network(page, place, browser):
    """A wrong upload, a right one, a double class, build, compare, export; nothing scrolls sideways on a dark phone."""
    net = zoo.build("studio_own_net:net", seed=5)
    images = data.load("digits:B", size=16, channels=1)
    pixels, labels = images.train_images, images.train_labels
    train(net, pixels, labels, epochs=2, classes=images.classes, device="cpu", progress=False)
    prepared = net.brickwork_origin.preprocessing
    weights = save({name: value.contiguous() for name, value in net.state_dict().items()})
    with browser(page, viewport={"width": 1300, "height": 900}) as (tab, complaints):
        tab.click("#import summary")
        tab.fill("#import [name=name]", "sent")
        tab.fill("#import [name=arch]", "studio_own_net:net")
        tab.fill("#import [name=classes]", ",".join(images.classes))
        tab.fill("#import [name=mean]", str(prepared.mean[0]))
        tab.fill("#import [name=std]", str(prepared.std[0]))
        tab.fill("#import [name=size]", "16")
        for name, content, told in (
            ("net.onnx", weights, "ONNX files cannot be imported"),
            ("net.zip", weights, "Choose a .safetensors or .pth"),
            ("net.safetensors", b"nonsense", "the file"),
            ("net.safetensors", weights, "imported/sent is there"),
        ):
            file = {"name": name, "mimeType": "application/octet-stream", "buffer": content}
            tab.set_input_files("#import [type=file]", file)
            tab.click("#import button[type=submit]")
            tab.wait_for_selector(f"#imported:has-text('{told}')")
        complaints[:] = [line for line in complaints if "422" not in line]  # the browser's own word on the wrong one
        tab.click("[data-model='imported/sent'] .chip:has-text('7')")
        tab.click("[data-model='b'] .chip:has-text('7')")
        tab.wait_for_selector("#twice:has-text(\"imported/sent and b both bring class '7'\")")
        assert tab.is_disabled("#build") and len(tab.query_selector_all("[data-part] .chip.twice")) == 2
        tab.click("[data-part='b'] .chip:has-text('7')")
        assert tab.inner_text("#twice") == ""
        tab.click("[data-model='a'] .chip:has-text('0')")
        tab.click("[data-model='a'] .chip:has-text('1')")
        tab.fill("[data-part='imported/sent'] input:not([type=range])", "digits:B")
        tab.wait_for_selector("#size:has-text(' kB')")
        tab.fill("#name", "way")
        tab.click("#build")
        tab.wait_for_selector("#accuracy", timeout=120_000)
        assert tab.inner_text("#compared thead").strip().split("\t") == ["built/way (new)", "imported/sent", "a"]
        assert tab.query_selector("#confusion .hit") and tab.query_selector("#samples img")
        assert "brickwork assemble" in tab.text_content("#commands")
        tab.click("#export-torch")
        tab.wait_for_selector("#result a.exported", timeout=120_000)
        with tab.expect_download() as download:
            tab.click("#result a.exported")
        assert "built-way/network.py" in zipfile.ZipFile(download.value.path()).namelist()
        assert not complaints and tab.inner_text("#error") == ""
    with browser(page, viewport={"width": 390, "height": 800}, color_scheme="dark") as (tab, complaints):
        tab.wait_for_selector("#accuracy")  # the last result is there again
        for summary in tab.query_selector_all("summary"):
            summary.click()
        assert tab.evaluate("document.documentElement.scrollWidth") == 390
        tab.click("#verb-merge")
        assert tab.evaluate("document.documentElement.scrollWidth") == 390 and not complaints


def test_a_reload_in_the_middle_and_a_cancelled_build(page, held, browser):
    begun, go = held
    with browser(page, viewport={"width": 1300, "height": 900}) as (tab, complaints):
        tab.click("[data-model='a'] .chip:has-text('0')")
        tab.fill("#name", "middle")
        tab.click("#build")
        assert begun.wait(30)
        tab.wait_for_selector("#running .cancel")
        tab.reload()
        tab.wait_for_selector("[data-part='a'] .chip:has-text('0')")  # the board, its name and the build are there
        assert tab.input_value("#name") == "middle"
        tab.wait_for_selector("#running li:has-text('cutting 0 out of a')")
        tab.click("#running .cancel")
        tab.wait_for_selector("#running li:has-text('cancelling')")
        go.set()
        tab.wait_for_selector("#jobs li.cancelled:has-text('middle')")
        assert not complaints


def test_a_reload_before_the_server_knows_loses_nothing(page, browser):
    with browser(page, viewport={"width": 1300, "height": 900}) as (tab, complaints):
        tab.wait_for_selector("[data-model='a'] .pictures img")
        tab.route("**/api/board", lambda route: route.abort())
        tab.click("[data-model='a'] .chip:has-text('0')")
        tab.fill("#name", "unsaved")
        tab.reload()
        tab.wait_for_selector("[data-part='a'] .chip:has-text('0')")
        assert tab.input_value("#name") == "unsaved"
        tab.unroute("**/api/board")
        with tab.expect_response("**/api/board"):
            tab.fill("#name", "known")
        assert all("ERR_FAILED" in line for line in complaints)  # the browser's own word on what was cut off
    with browser(page, viewport={"width": 1300, "height": 900}) as (tab, complaints):  # another tab: the server's
        tab.wait_for_selector("[data-part='a'] .chip:has-text('0')")
        assert tab.input_value("#name") == "known" and not complaints


def test_one_class_of_a_thousand_is_found_by_its_name(page, place, browser):
    net = zoo.build("lenet", num_classes=1000, in_channels=1, seed=0)
    attach(net, replace(origin_of(net), classes=tuple(f"kind {k}" for k in range(1000))))
    brickwork.save(net, place / "models" / "thousand")
    with browser(page, viewport={"width": 1300, "height": 900}) as (tab, complaints):
        tab.wait_for_selector("[data-model=thousand] small:has-text('940 more')")
        tab.fill("[data-model=thousand] .sought", "KIND 77")
        assert len(tab.query_selector_all("[data-model=thousand] .chip")) == 11
        tab.click("[data-model=thousand] .chip:text-is('kind 777')")
        tab.wait_for_selector("#size:has-text('classes kind 777')")
        assert not complaints


def test_rename_delete_undo_and_try_on_the_page(page, place, browser):
    brickwork.save(zoo.build("lenet", num_classes=2, in_channels=1, seed=0), place / "models" / "spare")
    with browser(page, viewport={"width": 1300, "height": 900}) as (tab, complaints):
        tab.click("[data-model='spare'] .more summary")
        tab.click("[data-model='spare'] .rename")
        tab.fill("[data-model='spare'] .more form input", "other")
        tab.keyboard.press("Enter")
        tab.click("[data-model='other'] .more summary")
        tab.click("[data-model='other'] .delete")
        tab.wait_for_selector("[data-model='other']", state="detached")
        tab.click("#deleted p:has-text('other was deleted') .undo")
        tab.wait_for_selector("[data-model='other']")
        tab.set_input_files("#try input", next((place / "pics" / "test" / "0").iterdir()))
        for name in ("a", "again", "mine"):
            tab.wait_for_selector(f"#try tr:has(th:text-is('{name}')) .best")
        assert not complaints


def test_curves_and_verbs_on_the_page(page, place, browser):
    """What may be expected of a part, a cell of the map by the keyboard, a new class; a reload keeps the forms."""
    with browser(page, viewport={"width": 1300, "height": 900}) as (tab, complaints):
        tab.wait_for_selector("[data-model='a'] .pictures img")
        for name in "01":
            tab.click(f"[data-model='a'] .chip:has-text('{name}')")
        tab.wait_for_selector("[data-part='a'] .curve circle:nth-of-type(6)", state="attached", timeout=60_000)
        assert " % right, whole " in tab.inner_text("[data-part='a'] .budget")
        tab.wait_for_selector("#size:has-text('ms an image')")
        tab.click("#verb-merge")
        tab.select_option("[aria-label='First network']", "a")
        tab.select_option("[aria-label='Second network']", "again")
        tab.click("#ask-map")
        tab.wait_for_selector("#map [tabindex='0']", timeout=60_000)
        tab.focus("#map [data-cell='2,2']")
        for key in ("ArrowRight", "ArrowDown", "Enter"):
            tab.keyboard.press(key)
        tab.wait_for_selector("#merge:has-text('α = 0.6, β = 0.2')")
        tab.click("#verb-add")
        tab.select_option("[aria-label='Network to add to']", "b")
        tab.fill("[aria-label='Images of the new classes']", str(place / "pics" / "train" / "3"))
        tab.fill("#adding [aria-label='Images of the classes it knows']", "digits:B")
        tab.reload()  # at once: what the server has not been told yet is kept by the tab
        tab.wait_for_selector("#verb-add[aria-pressed=true]")
        assert tab.input_value("[aria-label='Images of the new classes']").endswith("train/3")
        assert tab.input_value("#adding [aria-label='Images of the classes it knows']") == "digits:B"
        tab.click("#add")
        tab.wait_for_selector("#result h2:has-text('built/grown')", timeout=60_000)
        assert tab.inner_text("#compared thead").strip().split("\t") == ["built/grown (new)", "b"]
        tab.click("#verb-merge")
        assert "α = 0.6, β = 0.2" in tab.inner_text("#merge") and tab.is_visible("#map [aria-pressed=true]")
        tab.drag_and_drop("[data-model='a'] .chip:has-text('3')", "#board")  # a class leads back to the board
        tab.wait_for_selector("[data-part='a'] .chip:has-text('3')")
        assert not complaints and tab.inner_text("#error") == ""
