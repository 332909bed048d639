"""`brickwork cancel`: from an architecture or a model folder to a page and JSON, and what it refuses."""

from __future__ import annotations

import json

import brickwork
from brickwork import zoo
from brickwork.store import state_hash

SETS = ["--data", "digits:A", "--data", "digits:B", "--device", "cpu", "--images", "12"]
SHORT = ["--lr", "0.001,0.1", "--steps", "1,2"]


def test_from_an_architecture(run, tmp_path):
    out = tmp_path / "c.html"
    code, printed, err = run("cancel", "lenet", "--size", "8", *SETS, *SHORT, "--out", out, "--json")
    assert code == 0, err
    assert err == "16 steps of gradient descent from lenet, in float64 …\n"  # 2 rates × (2 + 2 × (1 + 2))
    found = json.loads(printed)
    assert found["data"] == ["digits:A", "digits:B"] and found["images"] == [12, 12] and found["base"] == "lenet"
    assert len(found["rows"]) == 4 * 6 and {r["layer"] for r in found["rows"]} >= {"all", "conv1", "fc3"}
    assert out.read_text().startswith("<!doctype html>")
    code, again, _ = run("cancel", "lenet", "--size", "8", *SETS, *SHORT, "--json")
    same = json.loads(again)
    assert code == 0 and same["file"] is None and same["rows"] == found["rows"]
    other = json.loads(run("cancel", "lenet", "--size", "8", *SETS, *SHORT, "--seed", "1", "--json")[1])
    assert other["rows"] != found["rows"]


def test_from_a_folder(run, tmp_path):
    net = zoo.build("resnet8", num_classes=5, in_channels=1, width=4, seed=0)
    folder = brickwork.save(net, tmp_path / "zero")
    code, printed, err = run("cancel", folder, *SETS, "--lr", "0.01", "--steps", "1", "--batch-size", "6")
    assert code == 0 and "digits:A first, then digits:B" in printed and "saved" not in printed, err
    assert state_hash(brickwork.load(folder)) == state_hash(net)


def test_wrong_requests(run, tmp_path):
    folder = brickwork.save(zoo.build("lenet", num_classes=3, seed=0), tmp_path / "three")
    (tmp_path / "there.html").write_text("x")
    x = ["--out", tmp_path / "x.html"]
    for wrong, message in (
        (["lenet", "--data", "digits:A", *x], "--data is given 1 times; give it twice"),
        (["lenet", *SETS, "--data", "digits", *x], "--data is given 3 times"),
        (["lenet", *SETS, "--lr", "0", *x], "--lr is 0.0; it must be above 0"),
        (["lenet", *SETS, "--lr", "0.1,0.1", *x], "--lr is [0.1, 0.1]; it must be one number or several different"),
        (["lenet", *SETS, "--lr", "fast", *x], "--lr is 'fast'; it must be a number"),
        (["lenet", *SETS, "--steps", "1.5", *x], "--steps is '1.5'; it must be a whole number"),
        (["lenet", *SETS, "--images", "0", *x], "--images is '0'; it must be 1 or more"),
        (["lenet", *SETS, "--batch-size", "0", *x], "--batch-size is '0'; it must be 1 or more"),
        (["lenett", *SETS, *x], "did you mean 'lenet'"),
        (["no/folder", *SETS, *x], "is no model folder"),
        (["lenet", *SETS, "--arg", "widht=3", *x], "unknown argument of lenet"),
        (["lenet", *SETS, "--arg", "num_classes=3", *x], "num_classes comes from the data"),
        (["lenet", *SETS, "--arch", "a:b", *x], "--arch is for a folder"),
        ([folder, *SETS, "--size", "8", *x], "leave out --arg and --size"),
        ([folder, *SETS, *x], "has labels from 0 to 4"),
        (["lenet", "--data", "digits:A", "--data", "digts", *x], "did you mean 'digits'"),
        (["lenet", *SETS, "--out", tmp_path / "x.pdf"], "a picture is written to"),
        (["lenet", *SETS, "--out", tmp_path / "there.html"], "exists already"),
    ):
        code, out, err = run("cancel", *wrong)
        assert code == 2 and message in err and out == "" and not (tmp_path / "x.html").exists(), err
