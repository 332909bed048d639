"""`eval --restrict`, `--confusion`, `--picture`; `info --latency`; `compress` at several budgets."""

from __future__ import annotations

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import brickwork
from brickwork import data, store, zoo
from brickwork.bricks.tradeoff import Tradeoff
from brickwork.errors import BadData, RequestError
from brickwork.evaluation import evaluate, evaluate_data
from brickwork.prediction import predict
from brickwork.training import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measures") / "a"
    model = zoo.build("lenet", num_classes=5, seed=0)
    train(model, data.load("digits:A@60", size=16), epochs=6, progress=False)
    store.save(model, folder)
    return folder


@pytest.fixture
def cli(run):
    """Run `brickwork …`, which must end with this exit code."""

    def call(*words, code=0):
        found, stdout, stderr = run(*map(str, words))
        assert found == code, stderr
        return SimpleNamespace(stdout=stdout, stderr=stderr)

    return call


def test_restrict_is_the_accuracy_among_the_classes_on_their_images(cli, trained):
    model, images = store.load(trained), data.load("digits:A", size=16)
    own = np.isin(images.test_labels, [1, 3])
    logits = predict(model, images.test_images[own])[:, [3, 1]]
    expected = float((np.array([3, 1])[logits.argmax(1).numpy()] == images.test_labels[own]).mean())
    found = json.loads(cli("eval", trained, "digits:A", "--restrict", "3,1", "--json").stdout)
    assert found["classes"] == ["3", "1"] and found["images"] == own.sum() and found["accuracy"] == expected
    assert found["accuracy"] >= evaluate_data(model, images.select([1, 3])).accuracy
    # classes of the data that the model does not know do not matter
    assert evaluate_data(model, data.load("digits", size=16), restrict="3,1").accuracy == expected


def test_restrict_in_python(trained):
    logits = torch.tensor([[2.0, 3.0, 9.0], [3.0, 2.0, 9.0], [0.0, 0.0, 1.0]])
    net, labels = torch.nn.Identity(), torch.tensor([0, 0, 2])
    assert evaluate(net, logits, labels).accuracy == pytest.approx(1 / 3)
    found = evaluate(net, logits, labels, classes=["cat", "dog", "fox"], restrict="cat,dog")
    assert (found.accuracy, found.images, found.confusion) == (0.5, 2, [[1, 1], [0, 0]])
    with pytest.raises(BadData, match="no image of dog"):
        evaluate(net, logits, labels, classes=["cat", "dog", "fox"], restrict="dog")
    with pytest.raises(RequestError, match="restrict"):
        masks = torch.zeros(3, 1, 1, dtype=torch.uint8)
        evaluate(net, logits[..., None, None], masks=masks, restrict="0")


def test_a_class_to_restrict_to_that_there_is_not(cli, trained):
    found = cli("eval", trained, "digits:A", "--restrict", "3,horse", code=2)
    assert "horse" in found.stderr


def test_confusion_as_table_picture_and_json(cli, trained, tmp_path):
    shown = cli("eval", trained, "digits:A", "--confusion", "--picture", tmp_path / "c.svg").stdout
    numbers = json.loads(cli("eval", trained, "digits:A", "--json").stdout)
    row = next(line for line in shown.splitlines() if line.startswith("3 ") and "%" not in line)
    assert [int(word) for word in row.split()[1:]] == numbers["confusion"][3]
    picture = (tmp_path / "c.svg").read_text()
    assert picture.startswith("<svg") and "taken for" in picture
    assert "Confusion" not in cli("eval", trained, "digits:A").stdout and "answered" not in numbers
    cli("eval", trained, "digits:A", "--picture", tmp_path / "c.svg", code=2)  # is there already
    cli("eval", trained, "digits:A", "--picture", tmp_path / "c.docx", code=2)


def test_a_confusion_matrix_plots(trained):
    axes = evaluate_data(store.load(trained), data.load("digits:A", size=16)).plot()
    shares = axes.images[0].get_array()
    assert shares.shape == (5, 5) and np.allclose(shares.sum(1), 1)


def test_latency(cli, trained):
    found = json.loads(cli("info", trained, "--latency", "--json").stdout)["latency"]
    assert 0 < found["ms"]["1"] < found["ms"]["32"] and found["threads"] >= 1
    assert "ms for 32 examples" in cli("info", "lenet", "--latency").stdout
    assert "latency" not in json.loads(cli("info", trained, "--json").stdout)
    cli("info", "--latency", code=2)
    cli("info", "lenet", "--latency", "--dry-run", "conv1=0", code=2)


def test_several_budgets_are_those_of_each_and_ordered_once(trained, monkeypatch):
    from brickwork.bricks import disassembly

    model, images = store.load(trained), data.load("digits:A@40", size=16)
    calls = []
    monkeypatch.setattr(disassembly, "choose", lambda *a, f=disassembly.choose: calls.append(1) or f(*a))
    several = brickwork.compress(model, images, budget=[0.7, 0.4], progress=False)
    assert isinstance(several, Tradeoff) and calls == [1]
    for budget, brick in several.bricks.items():
        alone = brickwork.compress(model, images, budget=budget, progress=False)
        assert (
            alone.kept == brick.kept and alone.options == brick.options and alone.accuracy_after == brick.accuracy_after
        )
        state = alone.model.state_dict()
        assert all(torch.equal(state[name], value) for name, value in brick.model.state_dict().items())
    rows = several.table()
    assert [row["budget"] for row in rows] == [None, 0.7, 0.4] and rows[0]["parameters"] == 1.0
    assert all(row["ms"] > 0 for row in rows) and rows[2]["parameters"] <= 0.4
    assert len(several.plot()) == 2 and "whole" in several._repr_html_()


def test_several_budgets_on_the_command_line(cli, trained, tmp_path):
    out = tmp_path / "several"
    words = ("compress", trained, "--data", "digits:A@40", "--out", out)
    shown = cli(*words, "--budget", "0.7,0.4").stdout
    assert "whole" in shown and "tradeoff.svg" in shown
    rows = list(csv.DictReader((out / "tradeoff.csv").read_text().splitlines()))
    assert [row["budget"] for row in rows] == ["", "0.7", "0.4"]
    assert (out / "tradeoff.svg").read_text().startswith("<svg")
    found = json.loads(cli("eval", out / "0.4", "digits:A", "--json").stdout)
    assert found["accuracy"] == pytest.approx(float(rows[2]["accuracy"]))
    cli(*words, "--budget", "0.7,0.4", code=2)  # is there already
    cli(*words, "--budget", "0.6,0.3", "--force")
    (out / "notes.txt").write_text("mine")
    assert "notes.txt" in cli(*words, "--budget", "0.6,0.3", "--force", code=2).stderr


@pytest.mark.parametrize("budgets", ["0.5,0.5", "0.5,2", "0.5,", "0,0.5"])
def test_budgets_that_cannot_be(cli, trained, tmp_path, budgets):
    cli("compress", trained, "--data", "digits:A@40", "--out", tmp_path / "x", "--budget", budgets, code=2)
    assert not (tmp_path / "x").exists()


def test_all_images_of_a_data_set(cli, tmp_path):
    folder = brickwork.save(zoo.build("lenet", num_classes=10, seed=0), tmp_path / "net")
    for amount, images in (("", 1797), ("@3", 30)):
        told = cli("eval", folder, f"digits{amount}", "--split", "all", "--json")
        assert json.loads(told.stdout)["images"] == images
