"""The workbench beyond the board: cards, curves, the map of weighted sums, new classes, uploads of .pth."""

from __future__ import annotations

import io
import pickle
import shlex
import shutil
import time

import pytest
import torch
from workbench import ask, finished, part, query, refused

import brickwork
from brickwork import store, zoo


def curve(port, **asked):
    """Asked for until it is there, as a page does."""
    until = time.monotonic() + 60
    while not (answer := ask(port, "/api/curve", asked))[1].get("done") and answer[0] == 200:
        assert time.monotonic() < until, answer
        time.sleep(0.05)
    return answer


def test_the_curve_of_a_part_says_what_a_build_gives(port):
    asked = {"model": "a", "classes": ["0", "3"], "data": "digits:A"}
    status, told = curve(port, **asked)
    assert status == 200 and told["error"] is None and told["by"] == "accuracy"
    assert [row["budget"] for row in told["rows"]] == [0.05, 0.1, 0.25, 0.5, 0.75, 1.0]
    assert all(0.4 < row["accuracy"] <= 1 and row["ms"] > 0 for row in told["rows"])
    again = ask(port, "/api/curve", asked)[1]
    assert again == told  # kept, not measured again: the times are the same
    built = finished(port, ask(port, "/api/build", {"parts": [part("a", ["0", "3"], "digits:A")], "name": "as-told"}))
    assert built["result"]["accuracy"] == told["rows"][3]["accuracy"]
    refused(ask(port, "/api/curve", asked | {"classes": ["8"]}), "no class '8'")
    refused(ask(port, "/api/curve", asked | {"data": "/etc"}), "not inside")
    refused(ask(port, "/api/curve", asked | {"model": "../secret"}), "not inside")
    assert curve(port, **asked | {"data": "digits:B"})[1]["error"].startswith("the model does not know '5'")


def test_nothing_is_fetched_or_read_at_length_unasked(port, shelf, place, monkeypatch, tmp_path):
    """A card and a curve are begun by the page itself."""
    from brickwork.studio import shelf as shelves

    monkeypatch.setenv("BRICKWORK_DATA", str(tmp_path))
    net = zoo.build("lenet", num_classes=10, seed=0)
    store.save(net, place / "models" / "far", provenance={"data": "cifar10", "test_accuracy": 0.5})
    card = ask(port, "/api/card?model=far")[1]
    assert (card["accuracy"], card["of"], card["pictures"]) == (0.5, 0, [])
    asked = {"model": "a", "classes": ["0", "1"], "data": "cifar10"}
    refused(ask(port, "/api/curve", asked), "not on this machine yet")
    monkeypatch.setattr(shelves, "FILES", 3)
    refused(ask(port, "/api/curve", asked | {"data": "train"}), "is large")
    assert curve(port, **asked | {"data": "train", "large": True})[1]["error"] is None
    assert not list(tmp_path.iterdir())


def test_a_build_comes_before_curves_and_nobody_waits_for_one_that_nobody_asks_for(port, held, monkeypatch):
    from brickwork.studio import curve as curves

    monkeypatch.setattr(curves, "PATIENCE", 0.2)
    begun, go = held
    job = ask(port, "/api/build", {"parts": [part("a", ["0", "1"], "digits:A")], "name": "first"})
    assert begun.wait(30)
    asked = {"model": "b", "classes": ["5", "8"], "data": "digits:B"}
    assert ask(port, "/api/curve", asked)[1] == {"done": False, "rows": [], "by": "accuracy", "error": None}
    time.sleep(0.6)
    go.set()
    assert finished(port, job)["state"] == "done"
    monkeypatch.undo()
    assert len(curve(port, **asked)[1]["rows"]) == 6  # begun anew by whoever asks again


def test_parts_of_one_class_each_have_a_picture_of_routes(port):
    parts = [part("a", ["0"], "digits:A"), part("b", ["7"], "digits:B")]
    result = finished(port, ask(port, "/api/build", {"parts": parts, "name": "ones"}))["result"]
    assert result["notes"] == [] and "Decision route" in result["routes"]


def test_a_cell_of_the_map_is_merged_as_it_was_measured(port, place, run):
    asked = {"models": ["a", "again"], "data": ["digits:A", "digits:A"]}
    job = finished(port, ask(port, "/api/map", asked))
    assert job["state"] == "done", job
    told = job["result"]["map"]
    assert told["alpha"] == told["beta"] == [0, 0.2, 0.4, 0.6, 0.8, 1.0] and len(told["worst"]) == 6
    code, _, err = run(*shlex.split(job["result"]["commands"])[1:])
    assert code == 0, err
    weights = {"method": "linear", "weights": [0.8, 0.4]}
    made = finished(port, ask(port, "/api/merge", asked | weights | {"name": "cell"}))
    assert made["state"] == "done", made
    new = made["result"]["networks"][0]
    assert abs(new["accuracy"] - told["worst"][2][4]) <= 1 / new["images"] + 1e-9  # β 0.4, α 0.8
    typed = made["result"]["commands"].splitlines()[0].replace("built/cell", "built/cell-typed")
    assert run(*shlex.split(typed)[1:])[0] == 0
    exec(compile(made["result"]["python"].replace("built/cell", "built/cell-python"), "studio", "exec"), {})
    folders = [place / "models" / "built" / name for name in ("cell", "cell-typed", "cell-python")]
    assert len({store.read_config(folder).weights.state_hash for folder in folders}) == 1
    refused(ask(port, "/api/merge", asked | weights | {"name": "no", "method": "match"}), "of the method linear")
    refused(ask(port, "/api/merge", asked | weights | {"name": "no", "weights": [1.0]}), "give one for each")
    refused(ask(port, "/api/map", asked | {"models": ["a", "b"]}), "do not have the same classes")


def test_a_folder_of_images_is_a_new_class(port, place, run):
    nines = place / "pics" / "nines"
    shutil.copytree(place / "pics" / "train" / "4", nines)  # whatever is on them
    asked = {"model": "b", "data": str(nines), "base": "digits:B", "name": "more"}
    job = finished(port, ask(port, "/api/add", asked))
    assert job["state"] == "done", job
    new, old = job["result"]["networks"]
    assert new["classes"] == [*"56789", "nines"] and new["per_class"]["nines"] > 0.5 and old["name"] == "b"
    pixels = torch.rand(3, 1, 16, 16)
    grown, before = (brickwork.load(place / "models" / name) for name in ("built/more", "b"))
    assert torch.equal(grown(pixels)[:, :5], before(pixels))
    typed = job["result"]["commands"].replace("built/more", "built/more-typed")
    assert run(*shlex.split(typed)[1:])[0] == 0
    exec(compile(job["result"]["python"].replace("built/more", "built/more-python"), "studio", "exec"), {})
    folders = [place / "models" / "built" / name for name in ("more", "more-typed", "more-python")]
    assert len({store.read_config(folder).weights.state_hash for folder in folders}) == 1
    for change, told in (
        ({"data": "../secret"}, "not inside"),
        ({"base": "/etc"}, "not inside"),
        ({"model": "none"}, "no model folder"),
        ({"name": "more"}, "there already"),
        ({"how": "x"}, "how"),
    ):
        refused(ask(port, "/api/add", asked | {"name": "other"} | change), told)
    job = finished(port, ask(port, "/api/add", asked | {"data": "digits:B", "name": "same"}))
    assert job["state"] == "failed" and "\n" not in job["error"]


def test_a_class_is_forgotten(port, place, run):
    asked = {"model": "a", "classes": ["3"], "data": "digits:A", "name": "without"}
    job = finished(port, ask(port, "/api/forget", asked))
    assert job["state"] == "done", job
    new, old = job["result"]["networks"]
    assert new["classes"] == old["classes"] == list("0124") and new["accuracy"] > 0.7
    assert job["result"]["notes"][0].startswith("A linear probe")
    typed = job["result"]["commands"].replace("built/without", "built/without-typed")
    assert run(*shlex.split(typed)[1:])[0] == 0
    exec(compile(job["result"]["python"].replace("built/without", "built/without-python"), "studio", "exec"), {})
    folders = [place / "models" / "built" / name for name in ("without", "without-typed", "without-python")]
    assert len({store.read_config(folder).weights.state_hash for folder in folders}) == 1
    refused(ask(port, "/api/forget", asked | {"name": "x", "classes": ["8"]}), "no class '8'")
    refused(ask(port, "/api/forget", asked | {"name": "x", "classes": list("01234")}), "leave at least one")
    refused(ask(port, "/api/forget", asked | {"name": "x", "data": "/etc"}), "not inside")


class Greedy:
    def __reduce__(self):
        return (bytearray, (1 << 42,))


class Bomb:
    def __reduce__(self):
        return (open, ("/tmp/never", "w"))


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def test_an_uploaded_pth_is_read_as_tensors_alone(port, place):
    net = zoo.build("lenet", num_classes=2, in_channels=1, seed=4)
    given = {"name": "old-file", "kind": "pth", "classes": "cat,dog"}
    status, told = ask(port, query(**given), raw=saved({"state_dict": net.state_dict()}))
    assert status == 200 and told["model"] == "imported/old-file", told
    found = brickwork.load(place / "models" / "imported" / "old-file").state_dict()
    assert all(torch.equal(found[name], value) for name, value in net.state_dict().items())


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (saved({"w": Bomb()}), "runs no code"),
        (saved({"w": Greedy()}), "the file"),  # a few bytes that ask for 4 TB
        (pickle.dumps(Bomb()), "the file"),
    ],
    ids=["code", "memory", "pickle"],
)
def test_a_pth_that_is_none_is_refused(port, place, raw, told):
    answer = ask(port, query(name="bad", kind="pth"), raw=raw)
    refused(answer, told)
    assert str(place) not in answer[1]["detail"] and not (place / "models" / "imported" / "bad").exists()
    assert not list((place / "models").glob(".upload-*"))
