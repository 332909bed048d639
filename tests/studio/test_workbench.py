"""The workbench around the board: own architectures, comparison, jobs, merge."""

from __future__ import annotations

import shlex
import threading
import time

import numpy as np
import pytest
from workbench import TOKEN, ask, finished, part, refused

import brickwork
from brickwork import data, store, zoo
from brickwork.errors import RequestError
from brickwork.studio.shelf import Shelf

# ---- own architectures and images


def test_a_network_of_ones_own_is_a_card_like_others(port, shelf):
    listed = {m["name"]: m for m in ask(port, "/api/models")[1]}
    assert listed["mine"]["classes"] == list("01234") and listed["mine"]["bytes"] > 1000
    status, card = ask(port, "/api/card?model=mine")
    assert status == 200 and card["parameters"] == 8 * 9 + 8 + 128 * 5 + 5, card
    assert card["accuracy"] is None and card["pictures"] == []  # its record names no images
    card = ask(port, "/api/card?model=a")[1]
    assert card["accuracy"] > 0.8 and card["of"] == 180 and card["ms"] > 0
    assert [name for name, _ in card["pictures"]] == list("01234") and "png" in card["pictures"][0][1][:20]
    without = {m["name"]: m for m in Shelf(shelf.root).models()}
    assert "--arch studio_own_net:net" in without["mine"]["error"] and "error" not in without["a"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--arch", "no_such_module:net"], "cannot import"),
        (["--arch", "studio_own_net:nothing"], "nothing"),
        (["--data", "no-such-folder"], "is no folder"),
    ],
)
def test_a_studio_that_cannot_be_is_refused_at_the_start(place, run, options, told):
    code, out, err = run("studio", place / "models", *options)
    assert code == 2 and out.count("http") <= 1 and told in err and "Traceback" not in err


def test_images_lie_below_one_of_two_roots(shelf, place, monkeypatch):
    pics = place / "pics"
    assert shelf.spec(str(pics)).source == str(pics) and shelf.spec("train").source == str(pics / "train")
    assert shelf.spec(f"{pics / 'train'}:0,1").classes == "0,1"
    monkeypatch.chdir(place)
    assert shelf.spec("pics/train").source == str(pics / "train")  # as whoever started the studio would type it
    for wrong in (str(place), str(place / "secret"), "../secret", "/etc", "train/../../secret"):
        with pytest.raises(RequestError, match="not inside"):
            shelf.spec(wrong)
    (pics / "out").symlink_to(place / "secret")
    try:
        with pytest.raises(RequestError, match="not inside"):
            shelf.spec(str(pics / "out"))
    finally:
        (pics / "out").unlink()


# ---- the board


def test_the_same_class_of_two_networks_is_told_by_their_names(port):
    board = {"parts": [part("a", ["0", "1"], "digits:A"), part("mine", ["1"], "digits:A")], "name": "double"}
    status, told = ask(port, "/api/size", board)
    assert status == 200 and told["twice"] == ["a and mine both bring class '1'; take it off one of them."]
    assert told["bytes"] < 200_000 and told["parameters"] < told["of"]
    refused(ask(port, "/api/build", board), "a and mine both bring class '1'")


def test_the_board_is_kept_by_the_server(port):
    merging = {"models": ["a", ""], "data": ["digits:A", ""], "method": "linear", "weights": [0.4, 0.6], "name": "m"}
    adding = {"model": "a", "data": "more", "base": "", "name": "grown"}
    board = {"parts": [part("a", ["0"], "", polish=0.0)], "name": "later", "judge": "digits", "verb": "merge"}
    board |= {"merge": merging, "add": adding}
    board |= {"forget": {"model": "a", "classes": ["3"], "data": "digits:A", "name": "without"}}
    assert ask(port, "/api/board", board)[0] == 200
    assert ask(port, "/api/state")[1]["board"] == board
    for wrong in ({"parts": 3}, {"parts": [part("a", [], "")]}, {"more": 1}, {"name": "x" * 600}):
        refused(ask(port, "/api/board", wrong))
    assert ask(port, "/api/state")[1]["board"] == board


def test_a_build_stands_beside_its_parents_and_can_be_made_again_by_hand(port, place, run, monkeypatch):
    parts = [part("a", ["0", "1"], "digits:A"), part("b", ["7"], "digits:B"), part("mine", ["3"], "train")]
    job = finished(port, ask(port, "/api/build", {"parts": parts, "name": "beside"}))
    assert job["state"] == "done", job
    result = job["result"]
    new, *parents = result["networks"]
    assert [n["name"] for n in (new, *parents)] == ["built/beside", "a", "b", "mine"]
    assert new["classes"] == ["0", "1", "7", "3"] and np.array(new["confusion"]).shape == (4, 4)
    assert new["images"] == sum(n["images"] for n in parents) == np.array(new["confusion"]).sum()
    assert new["accuracy"] == pytest.approx(np.trace(new["confusion"]) / new["images"]) and result["accuracy"] > 0.6
    images = data.load("digits:A", size=16, channels=1)
    whole = brickwork.eval(brickwork.load(place / "models" / "a"), images, restrict="0,1", split="test")
    assert parents[0]["accuracy"] == whole.accuracy and parents[0]["per_class"] == whole.per_class
    assert parents[1]["accuracy"] is None and parents[1]["among_all"] > 0.8  # among one class it is always right
    assert all(n["bytes"] > 1000 and n["ms"] > 0 and n["parameters"] > 500 for n in (new, *parents))
    assert 0 < len(result["samples"]) <= 8 and result["samples"][0]["image"].startswith("data:image/png;base64,")
    listed = {m["name"]: m for m in ask(port, "/api/models")[1]}["built/beside"]
    assert listed["data"] == "" and listed["sources"] == {
        "0": "digits:A",
        "1": "digits:A",
        "7": "digits:B",
        "3": "train",
    }
    card = ask(port, "/api/card?model=built/beside")[1]
    assert card["accuracy"] > 0.6 and {name for name, _ in card["pictures"]} == set("0173")
    made = store.read_config(place / "models" / "built" / "beside").weights.state_hash
    for name, step in (("typed", "commands"), ("python", "python")):
        text = result[step].replace("built/beside", f"built/{name}").replace("parts/beside", f"parts/{name}")
        if step == "python":
            exec(compile(text, "studio", "exec"), {})
        else:
            for line in text.splitlines():
                code, _, err = run(*shlex.split(line)[1:])
                assert code == 0, (line, err)
        assert store.read_config(place / "models" / "built" / name).weights.state_hash == made


def test_a_polished_build_and_a_judge_that_has_some_of_the_classes(port):
    parts = [part("a", ["0", "1"], "digits:A", polish=0.01), part("b", ["7", "8"], "digits:B")]
    job = finished(port, ask(port, "/api/build", {"parts": parts, "name": "judged", "judge": "test"}))
    assert job["state"] == "done", job
    new, first, second = job["result"]["networks"]
    assert new["images"] == first["images"] > 0 and second["images"] == 0 and second["accuracy"] is None
    assert new["per_class"]["7"] is None and new["per_class"]["0"] is not None
    assert "--polish 0.01" in job["result"]["commands"]


def test_merged_networks_stand_beside_their_parents(port, place, run):
    asked = {"models": ["a", "again"], "data": ["digits:A", "digits:A"], "method": "match", "name": "merged"}
    job = finished(port, ask(port, "/api/merge", asked))
    assert job["state"] == "done", job
    new, *parents = job["result"]["networks"]
    assert (
        new["images"] == parents[0]["images"] == parents[1]["images"] and new["parameters"] == parents[0]["parameters"]
    )
    assert new["accuracy"] > 0.8
    line = job["result"]["commands"].splitlines()[0].replace("built/merged", "built/merged-typed")
    assert run(*shlex.split(line)[1:])[0] == 0
    hashes = {store.read_config(place / "models" / "built" / n).weights.state_hash for n in ("merged", "merged-typed")}
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"models": ["a", "b"]}, "do not have the same classes"),
        ({"models": ["a", "a"]}, "twice"),
        ({"models": ["a", "../secret"]}, "not inside"),
        ({"models": ["a"]}, "models"),
        ({"data": ["digits:A", "/etc"]}, "not inside"),
        ({"data": ["digits:A"] * 3}, "name images of each"),
        ({"method": "magic"}, "method"),
        ({"name": "../x"}, "no name for a folder"),
        ({"name": "\0"}, "name"),
    ],
)
def test_what_cannot_be_merged_is_refused(port, change, told):
    asked = {"models": ["a", "again"], "data": ["digits:A", "digits:A"], "name": "no", **change}
    refused(ask(port, "/api/merge", asked), told)


def test_architectures_that_differ_are_refused_by_the_merge(port):
    asked = {"models": ["a", "mine"], "data": ["digits:A", "digits:A"], "name": "no"}
    job = finished(port, ask(port, "/api/merge", asked))
    assert job["state"] == "failed" and "\n" not in job["error"] and "Error" not in job["error"].split(":")[0]


# ---- jobs


def test_a_cancelled_build_leaves_nothing(port, place, held, monkeypatch):
    """Others are refused with a sentence meanwhile, or answered; nobody waits for its end."""
    from brickwork.studio import shelf as shelves

    monkeypatch.setattr(shelves, "COUNTING", 0.1)
    monkeypatch.setattr(shelves, "WAIT", 0.1)
    brickwork.save(zoo.build("lenet", num_classes=2, in_channels=1, seed=0), place / "models" / "uncounted")
    begun, go = held
    parts = [part("a", ["0"], "digits:A"), part("b", ["7"], "digits:B")]
    job = ask(port, "/api/build", {"parts": parts, "name": "dropped"})[1]
    waiting = ask(port, "/api/build", {"parts": parts, "name": "waiting"})[1]
    assert begun.wait(30)
    refused(ask(port, "/api/rename", {"model": "a", "to": "z"}), "being worked on")
    refused(ask(port, "/api/delete", {"model": "a"}), "being worked on")
    refused(ask(port, "/api/card?model=uncounted"), "being worked on")
    assert ask(port, "/api/state")[0] == 200
    for one in (waiting, job):
        assert ask(port, f"/api/jobs/{one['job']}/cancel", {})[1]["cancelled"]
    go.set()
    assert finished(port, (200, job))["state"] == finished(port, (200, waiting))["state"] == "cancelled"
    assert not (place / "models" / "built" / "dropped").exists()
    refused(ask(port, f"/api/jobs/{job['job']}/cancel", {}), "nothing to cancel")
    history = ask(port, "/api/jobs")[1]
    assert [(j["title"], j["state"]) for j in history[:2]] == [("waiting", "cancelled"), ("dropped", "cancelled")]
    for path in ("/api/jobs/99999/cancel", "/api/jobs/-1/cancel", "/api/jobs/x/cancel"):
        refused(ask(port, path, {}))


def test_a_studio_that_ends_does_not_wait_for_what_is_in_line(place, serve, held):
    begun, go = held
    with serve(place / "models", TOKEN) as port:
        for name in ("end1", "end2"):
            ask(port, "/api/build", {"parts": [part("a", ["0"], "digits:A")], "name": name})
        assert begun.wait(30)
    go.set()
    time.sleep(0.5)
    assert not any((place / "models" / "built" / name).exists() for name in ("end1", "end2"))


def test_jobs_that_wait_and_are_remembered_are_bounded():
    from brickwork.studio import jobs

    many, go = jobs.Jobs(), threading.Event()
    started = [many.start("build", str(k), lambda say: go.wait(30) and {}) for k in range(jobs.MOST + 1)]
    assert started[-1] is None and None not in started[:-1]
    go.set()
    while not started[-2].over:
        time.sleep(0.01)
    for k in range(jobs.KEPT + 5):
        one = many.start("build", str(k), lambda say: {})
        while not one.over:
            time.sleep(0.001)
    assert len(many.summaries()) <= jobs.KEPT + 1 and many.summaries()[0]["title"] == str(k)
