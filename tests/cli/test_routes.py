"""`brickwork routes`: from a model folder to a picture, and what is refused."""

import json
from xml.etree import ElementTree

import pytest

import brickwork
from brickwork import data, store, zoo
from brickwork.training import train


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A LeNet that knows the first five digits."""
    digits = data.load("digits:A", size=(8, 8), channels=1)
    model = zoo.build("lenet", num_classes=5, in_channels=1)
    train(
        model, digits.train_images, digits.train_labels, epochs=4, classes=digits.classes, device="cpu", progress=False
    )
    return brickwork.save(model, tmp_path_factory.mktemp("models") / "a")


def test_a_picture_of_each_kind(run, folder, tmp_path):
    asked = ["routes", folder, "--data", "digits:A", "--classes", "3,1"]
    code, out, _ = run(*asked, "--out", tmp_path / "r.svg", "--json")
    found = json.loads(out)
    assert code == 0 and found["classes"] == ["3", "1"] and found["file"] == str(tmp_path / "r.svg")
    ElementTree.parse(tmp_path / "r.svg")
    model = brickwork.load(folder)
    again = brickwork.routes(model, data.load("digits:A", size=(8, 8), channels=1), "3,1", progress=False)
    assert {name: found[name] for name in again.to_dict()} == again.to_dict()
    code, out, _ = run(*asked, "--out", tmp_path / "new" / "r.png")
    assert code == 0 and out == f"{again}\nsaved in {tmp_path / 'new' / 'r.png'}\n"
    assert (tmp_path / "new" / "r.png").read_bytes().startswith(b"\x89PNG")
    code, _, _ = run(*asked, "--out", tmp_path / "r.json")  # a figure for `brickwork report`
    assert code == 0 and json.loads((tmp_path / "r.json").read_text())["kind"] == "brickwork figure"
    code, _, _ = run(*asked[:4], "--out", tmp_path / "r.html", "--attribution", "taylor", "--threshold", 2)
    assert code == 0 and "Decision routes of 0, 1, 2, 3 and 4" in (tmp_path / "r.html").read_text()


def test_the_same_bytes_and_force(run, folder, tmp_path):
    asked = ["routes", folder, "--data", "digits:A", "--classes", "0,2", "--out", tmp_path / "r.html"]
    assert run(*asked)[0] == 0
    first = (tmp_path / "r.html").read_bytes()
    code, out, err = run(*asked)
    assert code == 2 and "--force" in err and out == ""
    assert run(*asked, "--force", "--device", "cpu")[0] == 0
    assert (tmp_path / "r.html").read_bytes() == first


def test_words_are_those_of_python(run):
    code, out, _ = run("routes", "--help")
    names = ("data", "classes", "attribution", "threshold", "scored", "output", "seed", "device", "out", "arch")
    assert code == 0 and all(f"--{name} " in out for name in names)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"--out": "r.gif"}, "r.gif ends in '.gif'; a picture is written to .svg, .png, .json or .html."),
        ({"--out": "."}, "has no suffix"),
        ({"--out": "r.svg/x.svg"}, "is not a folder"),
        ({"--classes": "3,nine"}, "unknown class 'nine'"),
        ({"--data": "digts"}, "did you mean 'digits'"),
        ({"--attribution": "fratt"}, "did you mean 'frat'"),
        ({"--threshold": "-1", "--scored": "0"}, "--threshold is '-1'; it must be 0 or more; --scored is '0'"),
        ({"--out": "d.svg"}, "is a folder"),
    ],
)
def test_what_is_refused_before_anything_is_read(run, folder, tmp_path, monkeypatch, options, message):
    def nothing(*args, **kwargs):
        raise AssertionError("a model was read")

    monkeypatch.setattr(store, "load", nothing)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.svg").mkdir()
    (tmp_path / "r.svg").write_text("mine")
    given = {"--data": "digits:A", "--out": "x.svg"} | options
    code, out, err = run("routes", folder, *(word for pair in given.items() for word in pair))
    assert code == 2 and message in err and out == "" and err.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.svg", "r.svg"]
    assert (tmp_path / "r.svg").read_text() == "mine"


def test_refused_later(run, folder, tmp_path):
    code, out, err = run("routes", folder, "--data", "digits", "--out", tmp_path / "r.svg")
    assert code == 2 and "does not know '5'" in err and out == ""
    code, out, err = run("routes", folder, "--data", "digits:0-1", "--classes", "2", "--out", tmp_path / "r.svg")
    assert code == 2 and "no images of '2'" in err and list(tmp_path.iterdir()) == []
