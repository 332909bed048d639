"""Sweeps: against networks combined one by one, stacked or not, resumed, drawn, and asked for wrongly."""

from __future__ import annotations

import copy
import csv
import io
import json
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import data, zoo
from brickwork.algebra import balanced_point, combine, sweeping
from brickwork.algebra.inputs import batches_of, inputs_of
from brickwork.algebra.sweep_result import SweepResult
from brickwork.data.images import ImageData, drawn_images
from brickwork.errors import BadData, BadModel, NegativeVariance, RequestError
from brickwork.evaluation import evaluate, evaluate_data
from brickwork.moments import reestimate_batch_norm
from brickwork.origin import attach, origin_of
from brickwork.report.heat import draw_sweep
from brickwork.store import state_hash
from brickwork.training import train


@pytest.fixture(scope="module")
def task():
    """Two networks from one start, each trained on its own half of the digits, numbered 0 to 4 in both."""
    halves = {h: data.load(f"digits:{h}", size=16, channels=1) for h in "AB"}
    common = data.load("digits", size=16, channels=1).preprocessing()
    nets = {"zero": zoo.build("resnet8", num_classes=5, in_channels=1, width=4, seed=0).eval()}
    for name, half in halves.items():
        net = zoo.build("resnet8", num_classes=5, in_channels=1, width=4, seed=0)
        train(
            net,
            half.train_images,
            half.train_labels,
            epochs=2,
            batch_size=32,
            lr=0.05,
            classes=half.classes,
            preprocessing=common,
            device="cpu",
            progress=False,
        )
        nets[name] = net.eval()
    return nets, {name: half.take(8, split="test") for name, half in halves.items()}


GRID = [0.0, 0.5, 1.0]
QUIET = {"progress": False}


def test_every_cell_is_the_combined_network(task):
    nets, sets = task
    before = [state_hash(n) for n in nets.values()]
    found = brickwork.sweep(nets["A"], nets["B"], data=sets, alpha=GRID, beta=[0.5, 1.0], bn="linear", **QUIET)
    assert [state_hash(n) for n in nets.values()] == before
    assert len(found.rows) == 12 and found.table()[0].keys() == {"alpha", "beta", "data", "accuracy"}
    for a, b, name, value in found.rows:
        model = combine([(a, nets["A"]), (b, nets["B"])])
        assert value == pytest.approx(
            evaluate(model, sets[name].test_images, sets[name].test_labels).accuracy, abs=1e-6
        )


class _NormThenRelu(torch.nn.BatchNorm2d):
    def forward(self, x):
        return super().forward(x).relu_()


def test_a_norm_that_holds_an_activation_keeps_it_in_every_cell():
    """Most convolutional networks of timm are built of these."""
    torch.manual_seed(0)
    nets = [
        torch.nn.Sequential(
            torch.nn.Conv2d(1, 6, 3, bias=False), _NormThenRelu(6), torch.nn.Flatten(), torch.nn.Linear(216, 5)
        ).eval()
        for _ in range(2)
    ]
    for net in nets:
        net[1].running_mean.normal_()
    images = torch.randn(200, 1, 8, 8)
    labels = nets[0](images).argmax(1)
    found = brickwork.sweep(*nets, data={"a": (images, labels)}, alpha=GRID, beta=GRID, bn="linear", **QUIET)
    for a, b, _, value in found.rows:
        right = (combine([(a, nets[0]), (b, nets[1])])(images).argmax(1) == labels).float().mean()
        assert value == pytest.approx(float(right), abs=1e-6)


def test_with_a_base_the_corners_are_the_networks(task):
    nets, sets = task
    with pytest.warns(NegativeVariance, match="in 1 of 4 cells"):
        found = brickwork.sweep(
            nets["A"], nets["B"], base=nets["zero"], data=sets, alpha=[0.0, 1.0], beta=[0.0, 1.0], bn="linear", **QUIET
        )
    corner = {(a, b): v for a, b, name, v in found.rows if name == "A"}
    for cell, net in (((0, 0), "zero"), ((1, 0), "A"), ((0, 1), "B")):
        assert corner[cell] == pytest.approx(
            evaluate(nets[net], sets["A"].test_images, sets["A"].test_labels).accuracy, abs=1e-6
        )
    assert found.formula == "θ₀ + α(a − θ₀) + β(b − θ₀)"


@pytest.mark.parametrize("bn", ["batch", "recalibrate", "linear", "keep"])
@pytest.mark.filterwarnings("ignore::brickwork.errors.NegativeVariance")
def test_cells_in_one_launch_give_the_same(task, bn):
    nets, sets = task
    options = {"base": nets["zero"], "data": sets, "alpha": [0.0, 0.7, 3.0], "beta": [0.4], "bn": bn, **QUIET}
    one, many = (brickwork.sweep(nets["A"], nets["B"], cells=c, **options) for c in (1, 4))
    assert one.rows == many.rows


def test_measured_statistics_are_those_of_each_combined_network(task):
    """recalibrate, the default: every cell as if its network had been built and its statistics measured."""
    nets, sets = task
    found = brickwork.sweep(nets["A"], nets["B"], data=sets, alpha=[0.5, -1.0], beta=[0.5, 2.0], **QUIET)
    halves = [sweeping.CALIBRATION // 2] * 2
    for a, b, name, value in found.rows:
        model = combine([(a, nets["A"]), (b, nets["B"])], bn="keep")
        images = [drawn_images(sets[k].train_images, n, 0) for k, n in zip("AB", halves, strict=True)]
        mixed = [sweeping._mixed(inputs_of(model, x)) for x in images]
        model = reestimate_batch_norm(model, batches_of(sweeping._mixed(torch.cat(mixed)), 250))
        right = evaluate(model, sets[name].test_images, sets[name].test_labels).accuracy
        assert value == pytest.approx(right, abs=1e-6)
    asked = brickwork.sweep(
        nets["A"], nets["B"], data=sets, alpha=[0.5, -1.0], beta=[0.5, 2.0], bn="recalibrate", **QUIET
    )
    assert asked.rows == found.rows


def test_statistics_of_the_batch(task):
    """batch: as the network answers in training mode, whatever statistics it has."""
    nets, sets = task
    found = brickwork.sweep(nets["A"], nets["B"], data=sets, alpha=[0.5, 3.0], beta=[0.5, -1.0], bn="batch", **QUIET)
    for a, b, name, value in found.rows:
        model = combine([(a, nets["A"]), (b, nets["B"])], bn="keep").train()
        answers = model(inputs_of(model, sets[name].test_images)).argmax(1).numpy()
        assert value == pytest.approx(float((answers == sets[name].test_labels).mean()), abs=1e-6)


SCALES = [0.5, 1.0, 2.0]


def diagonal(task, bn):
    """Accuracies along α = β, of networks whose head has no bias, so that nothing but the scale differs."""
    nets, sets = task
    a, b = (copy.deepcopy(nets[k]) for k in "AB")
    for net in (a, b):
        net.fc.bias.data.zero_()
    found = brickwork.sweep(a, b, data=sets, alpha=SCALES, beta=SCALES, bn=bn, **QUIET)
    return np.stack([np.diag(found.grid(k)) for k in "AB"])


@pytest.mark.parametrize("bn", ["batch", "recalibrate"])
def test_measured_statistics_make_the_scale_of_weights_not_matter(task, bn):
    """Paper 1, appendix: accuracy depends on α/β alone (79.73 to 79.78 along the diagonal). eps and rounding are left."""
    rates = diagonal(task, bn)
    assert np.ptp(rates, axis=1).max() <= 1 / 40 + 1e-9  # one image of forty
    assert rates.max() > 0.5


def test_statistics_that_are_added_up_make_the_scale_matter(task):
    """Logits, not accuracies: how many images a step of the scale turns depends on the machine that trained the networks."""
    nets, sets = task
    a, b = (copy.deepcopy(nets[k]) for k in "AB")
    for net in (a, b):
        net.fc.bias.data.zero_()

    def directions(scale, mode):
        model = combine([(scale, a), (scale, b)], bn="linear").train(mode)
        return torch.nn.functional.normalize(model(inputs_of(model, sets["A"].test_images)).detach(), dim=1)

    measured, added = ((directions(0.5, mode), directions(2.0, mode)) for mode in (True, False))
    assert (measured[0] - measured[1]).norm() < 0.02 * measured[0].norm()
    assert (added[0] - added[1]).norm() > 0.1 * added[0].norm()


def test_a_sweep_says_where_variances_are_negative(task, tmp_path):
    nets, sets = task
    with pytest.warns(NegativeVariance, match="in 1 of 2 cells .* bn='recalibrate' measures"):
        brickwork.sweep(nets["A"], data=sets, alpha=[1.0, -1.0], bn="linear", **QUIET)
    brickwork.sweep(nets["A"], data=sets, alpha=[1.0, -1.0], **QUIET)  # warnings are errors here


def test_the_balanced_point(task):
    nets, sets = task
    found = brickwork.sweep(nets["A"], nets["B"], data=sets, alpha=GRID, beta=GRID, **QUIET)
    worst = found.grid()
    best = found.balanced()
    assert best["worst"] == np.nanmax(worst) == min(best["accuracy"].values())
    searched = balanced_point(nets["A"], nets["B"], data=sets, smallest=0.2, tries=30, **QUIET)
    assert searched.balanced()["worst"] >= min(v for a, b, _, v in searched.rows if (a, b) == (0.5, 0.5))
    assert len({row[:2] for row in searched.rows}) < 60


class Stopped(Exception):
    """As a kill would: nothing in the sweep expects it."""


def test_a_stopped_sweep_goes_on(task, tmp_path, monkeypatch):
    nets, sets = task
    path = tmp_path / "journal.jsonl"
    options = dict(data=sets, alpha=GRID, beta=[0.5], cells=1, journal=path, **QUIET)
    plain = sweeping.Cells.accuracies
    calls, goes_on = [], []

    def stops(self, *arguments):
        calls.append(1)
        if len(calls) == 4 and not goes_on:
            raise Stopped
        return plain(self, *arguments)

    monkeypatch.setattr(sweeping.Cells, "accuracies", stops)
    with pytest.raises(Stopped):
        brickwork.sweep(nets["A"], nets["B"], **options)
    with path.open("a") as file:
        file.write("[0.5, 0.")  # killed in the middle of a line
    calls.clear()
    goes_on.append(True)
    found = brickwork.sweep(nets["A"], nets["B"], **{**options, "alpha": GRID})
    assert len(calls) == 4  # the second cell, of which one data set was missing, and the third
    monkeypatch.undo()
    assert found.rows == brickwork.sweep(nets["A"], nets["B"], data=sets, alpha=GRID, beta=[0.5], **QUIET).rows
    with pytest.raises(RequestError, match="journal of another sweep"):
        brickwork.sweep(nets["B"], nets["A"], **options)


def test_a_journal_of_other_labels_or_other_calibration_images_is_another_sweep(tmp_path):
    torch.manual_seed(0)
    a, b = (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2)).eval() for _ in "ab")
    raw = np.random.default_rng(0).integers(0, 256, (20, 4, 4, 1), np.uint8)
    one = ImageData("d", ("x", "y"), raw, np.arange(20) % 2, raw, np.arange(20) % 2)
    options = {"alpha": (0.0, 1.0), "journal": tmp_path / "j", **QUIET}
    brickwork.sweep(a, b, data=[one], **options)
    brickwork.sweep(a, b, data=[one], **options)
    for other in ({"test_labels": 1 - one.test_labels}, {"train_images": 255 - raw}):
        with pytest.raises(RequestError, match="journal of another sweep"):
            brickwork.sweep(a, b, data=[replace(one, **other)], **options)


def test_pictures(task, tmp_path):
    nets, sets = task
    found = brickwork.sweep(nets["A"], nets["B"], data=sets, alpha=GRID, beta=GRID, **QUIET)
    drawing = draw_sweep(found)
    root = ElementTree.fromstring(drawing.svg())
    cells = [e for e in root.iter() if e.tag.endswith("rect")]
    assert len(cells) >= 3 * 9 and drawing.svg() == draw_sweep(found).svg()
    page = drawing.html() if hasattr(drawing, "html") else (drawing.save(tmp_path / "x.html") or "")
    assert "http://" not in str(page).replace("http://www.w3.org", "") and "https://" not in str(page)
    line = brickwork.sweep(nets["A"], base=nets["zero"], data=sets, alpha=[0.0, 1.0, 2.0], **QUIET)
    assert "α(a − θ₀)" in draw_sweep(line).svg()
    rows = list(csv.reader(io.StringIO(found.csv())))
    assert rows[0] == ["alpha", "beta", "data", "accuracy"] and len(rows) == 19
    assert "balanced at" in str(found) and json.dumps(found.to_dict())


def test_wrong_requests(task):
    nets, sets = task
    a, b = nets["A"], nets["B"]
    for options, error, message in (
        ({"alpha": []}, RequestError, "it must be one number or several"),
        ({"alpha": [1, 1]}, RequestError, "several different ones"),
        ({"alpha": [float("nan")]}, RequestError, "alpha is nan"),
        ({"bn": "x"}, RequestError, "bn is 'x'"),
        ({"cells": 0}, RequestError, "cells is 0"),
        ({"data": {}}, BadData, "needs data sets"),
        ({"data": {"x": (torch.zeros(3, 1, 16, 16), [0, 1])}}, BadData, "3 images and labels"),
    ):
        with pytest.raises(error, match=message):
            brickwork.sweep(a, b, **{"data": sets, "alpha": [1.0], "beta": [1.0], **QUIET, **options})
    with pytest.raises(RequestError, match="second network"):
        brickwork.sweep(a, data=sets, alpha=[1.0], beta=[1.0], **QUIET)
    with pytest.raises(BadModel, match="not of one architecture"):
        brickwork.sweep(a, zoo.build("lenet", num_classes=5, in_channels=1, seed=0), data=sets, alpha=[1.0], **QUIET)


def test_the_command_line(task, tmp_path, run):
    nets, _ = task
    for name, net in nets.items():
        brickwork.save(net, tmp_path / name)

    common = ["--data", "digits:A", "--data", "digits:B", "--device", "cpu"]
    code, printed, complaint = run(
        "sweep",
        tmp_path / "A",
        tmp_path / "B",
        *common,
        "--base",
        tmp_path / "zero",
        "--alpha",
        "0:1:0.5",
        "--out",
        tmp_path / "s",
        "--json",
    )
    assert code == 0, complaint
    report = json.loads(printed)
    assert len(report["rows"]) == 18 and sorted(p.name for p in (tmp_path / "s").iterdir()) == [
        "figures",
        "sweep.csv",
        "sweep.html",
        "sweep.json",
        "sweep.svg",
    ]
    for wrong, message in (
        ([tmp_path / "A", *common, "--out", tmp_path / "s"], "exists"),
        ([tmp_path / "A", *common, "--alpha", "1:0:1", "--out", tmp_path / "x"], "there is nothing"),
        ([tmp_path / "A", *common, "--alpha", "a:b", "--out", tmp_path / "x"], "they must be as in"),
        ([tmp_path / "A", *common, "--data", "digits:A", "--out", tmp_path / "x"], "named twice"),
        ([tmp_path / "no", *common, "--out", tmp_path / "x"], "does not exist"),
    ):
        code, _, complaint = run("sweep", *wrong)
        assert code == 2 and message in complaint and not (tmp_path / "x").exists(), complaint


def test_classes_of_a_data_set_are_found_by_name():
    digits = data.load("digits@20", size=16, channels=1)
    net = zoo.build("lenet", in_channels=1, seed=0)
    train(net, digits.train_images, digits.train_labels, epochs=6, classes=digits.classes, device="cpu", progress=False)
    late = data.load("digits:B", size=16, channels=1)  # its label 0 is the network's output 5
    found = brickwork.sweep(net, data=[late], alpha=[1.0], progress=False).table()[0]["accuracy"]
    assert found == pytest.approx(evaluate_data(net, late).accuracy, abs=1e-5) and found > 0.5
    half = zoo.build("lenet", num_classes=5, in_channels=1, seed=0)
    attach(half, replace(origin_of(half), classes=tuple("abcde")))
    assert (
        len(brickwork.sweep(half, data=[late], alpha=[1.0], progress=False).rows) == 1
    )  # five classes for five outputs, in order
    with pytest.raises(BadData, match="10 classes and the networks 5 outputs"):
        brickwork.sweep(half, data=[digits], alpha=[1.0], progress=False)


def test_numbers_on_a_heat_map_keep_their_ink_on_a_dark_screen():
    from brickwork.report.drawing import INK
    from brickwork.report.heat import number_in

    assert INK not in {number_in(value, 0, 0).colour for value in (0.1, 0.9)}


def test_a_plot_is_the_grid_with_its_balanced_point():
    rows = tuple(
        (a, b, name, a * b / 4 if name == "x" else 0.5) for a in (0.0, 1.0, 2.0) for b in (0.0, 2.0) for name in "xy"
    )
    result = SweepResult(rows, "αA + βB")
    axes = result.plot()
    mesh = axes.collections[0].get_array()
    assert np.allclose(np.asarray(mesh).reshape(2, 3), 100 * result.grid())
    spot = axes.lines[0]
    best = result.balanced()
    assert (spot.get_xdata()[0], spot.get_ydata()[0]) == (best["alpha"], best["beta"]) == (2.0, 2.0)
    curve = SweepResult(tuple(row for row in rows if row[1] == 2.0), "θ + αg").plot()
    assert [line.get_label() for line in curve.lines] == ["x", "y"]
    assert curve.lines[0].get_ydata().tolist() == [0.0, 50.0, 100.0]
