"""`brickwork transplant` from the command line: nets grow, nothing that was there changes."""

from pathlib import Path

import pytest
import torch
from transplant_nets import DIGITS, done, fingerprint

import brickwork
from brickwork import data, store, zoo
from brickwork.training import train
from brickwork.transplant import WAYS, load_net


@pytest.fixture
def run(transplant):
    return transplant


def test_growth_changes_no_bit(run, tmp_path):
    """Every answer of a net is the same, to the bit, in every net that grows from it."""
    before = fingerprint("first") | fingerprint("net")
    assert fingerprint("net")["dog", "classify"] == fingerprint("first")["dog", "classify"]
    connected, more = tmp_path / "connected", tmp_path / "more"
    report = done(
        run,
        "connect",
        "net",
        "--category",
        "cat",
        "--task",
        "classify",
        "--data",
        DIGITS,
        "--way",
        "closed-form+distill",
        "--steps",
        60,
        "--lr",
        0.01,
        "--out",
        connected,
    )
    assert (
        report["images"] > 300
        and report["labels"] == 0
        and report["teacher"] == "cats"
        and report["judged_by"] == "name"
    )
    right = [report[when]["accuracy"] for when in ("before", "after", "teacher_test")]
    assert right[0] < 0.7 < right[1] <= 1 and right[2] > 0.9
    done(
        run,
        "add",
        "cat",
        "--at",
        "pool1",
        "--only",
        "task",
        "--task",
        "again",
        "--category",
        "dog",
        "--data",
        DIGITS,
        "--steps",
        60,
        "--to",
        connected,
        "--out",
        more,
    )
    after = fingerprint(connected)
    assert {route: after[route] for route in before} == before
    assert {route: fingerprint(more)[route] for route in after} == after
    for part in ("categories/dog", "categories/cat", "tasks/classify", "tasks/cats"):
        assert (
            store.read_config(Path("net") / part).weights.state_hash
            == store.read_config(more / part).weights.state_hash
        )
    again = tmp_path / "again"
    done(
        run,
        "connect",
        "net",
        "--category",
        "cat",
        "--task",
        "classify",
        "--data",
        DIGITS,
        "--way",
        "closed-form+distill",
        "--steps",
        60,
        "--lr",
        0.01,
        "--out",
        again,
    )
    assert (again / "adapters.safetensors").read_bytes() == (connected / "adapters.safetensors").read_bytes()


@pytest.mark.parametrize("way", list(WAYS))
def test_every_way(run, tmp_path, way):
    labels = ["--labels", 4] if any(term.startswith("task") for term in WAYS[way].terms) else []
    steps = ["--steps", 5] if WAYS[way].terms else []
    arguments = ["connect", "net", "--category", "cat", "--task", "classify", "--data", DIGITS, "--way", way]
    report = done(run, *arguments, *labels, *steps, "--reorder", 3, "--layers", 2, "--out", tmp_path / "n")
    assert report["labels"] == (12 if labels else 0) and 0 <= report["after"]["accuracy"] <= 1
    assert load_net(tmp_path / "n").notes["cat", "classify"]["way"] == way
    listed = done(run, "list", tmp_path / "n")["routes"]
    assert [row.get("way") for row in listed] == [None, None, way]


def test_without_images(run, tmp_path):
    """Ways that need no image take none; there is nothing to judge by then."""
    code, out, err = run(
        "connect", "net", "--category", "cat", "--task", "classify", "--way", "closed-form", "--out", tmp_path / "n"
    )
    assert code == 0 and "0 labelled and 0 unlabelled images" in out and "judged" in out, err
    code, out, _ = run("list", tmp_path / "n")
    assert code == 0 and "6 → 6 channels" in out and "closed-form" in out and "images of 1×16×16" in out


def test_export_and_library(run, tmp_path):
    """Parts leave as model folders and enter other nets; a category and its own task are the network they came from."""
    whole = done(run, "export", "net", "--category", "cat", "--task", "cats", "--out", tmp_path / "whole")["folder"]
    x = torch.rand(3, 1, 16, 16)
    assert torch.equal(brickwork.load(whole)(x), brickwork.load("cat")(x))
    assert brickwork.load(whole).brickwork_origin.preprocessing == brickwork.load("cat").brickwork_origin.preprocessing
    for kind, name in (("category", "cat"), ("task", "cats")):
        done(run, "export", "net", f"--{kind}", name, "--out", tmp_path / name)
    done(run, "add", tmp_path / "cat", "--category", "katze", "--to", "first", "--out", tmp_path / "one")
    done(
        run,
        "add",
        tmp_path / "cats",
        "--task",
        "katzen",
        "--category",
        "katze",
        "--to",
        tmp_path / "one",
        "--out",
        tmp_path / "two",
    )
    assert fingerprint(tmp_path / "two")["katze", "katzen"] == fingerprint("net")["cat", "cats"]
    done(
        run,
        "add",
        "cat",
        "--at",
        "pool1",
        "--only",
        "task",
        "--task",
        "t",
        "--category",
        "cat",
        "--to",
        "net",
        "--out",
        tmp_path / "same",
    )
    assert fingerprint(tmp_path / "same")["cat", "t"] == fingerprint("net")["cat", "cats"]
    code, _, err = run(
        "add",
        "cat",
        "--at",
        "pool1",
        "--only",
        "task",
        "--task",
        "t",
        "--category",
        "dog",
        "--to",
        "net",
        "--out",
        tmp_path / "no",
    )
    assert code == 2 and "was learned on other features" in err and not (tmp_path / "no").exists()


SEGMENTER = """
from torch import nn
def net(num_classes=2):
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(),
                         nn.ConvTranspose2d(4, num_classes, 2, 2))
"""


def test_masks_and_an_architecture_of_ones_own(run, tmp_path, monkeypatch):
    (tmp_path / "segmenters.py").write_text(SEGMENTER)
    monkeypatch.syspath_prepend(tmp_path)
    own = ["--arch", "segmenters:net"]
    for seed in (0, 1):
        images = data.load("digits@20", size=16, channels=1)
        model = zoo.build("segmenters:net", seed=seed)
        train(
            model,
            images.train_images,
            None,
            masks=images.train_masks,
            epochs=10,
            lr=0.02,
            optimizer="adam",
            classes=images.mask_classes,
            device="cpu",
            progress=False,
        )
        brickwork.save(model, tmp_path / f"s{seed}")
    done(run, "add", tmp_path / "s0", "--at", "2", "--category", "a", "--task", "find", *own, "--out", tmp_path / "n0")
    done(
        run,
        "add",
        tmp_path / "s1",
        "--at",
        "2",
        "--category",
        "b",
        "--task",
        "find-b",
        "--to",
        tmp_path / "n0",
        *own,
        "--out",
        tmp_path / "n1",
    )
    report = done(
        run,
        "connect",
        tmp_path / "n1",
        "--category",
        "b",
        "--task",
        "find",
        "--data",
        "digits@30",
        "--labels",
        10,
        "--steps",
        80,
        "--lr",
        0.01,
        *own,
        "--out",
        tmp_path / "n2",
    )
    assert report["judged_by"] == "masks" and set(report["after"]) == {"accuracy", "mean_iou"}
    assert report["after"]["accuracy"] > report["before"]["accuracy"]
    before = fingerprint(tmp_path / "n1", arch="segmenters:net")
    assert {r: fingerprint(tmp_path / "n2", arch="segmenters:net")[r] for r in before} == before
    code, _, err = run("list", tmp_path / "n2")
    assert code == 2 and "names code to import" in err


def test_zero_or_one(run, tmp_path):
    """A task of one output says yes or no to two classes."""
    for seed in (0, 1):
        brickwork.save(zoo.build("lenet", num_classes=1, in_channels=1, seed=seed), tmp_path / f"y{seed}")
    size = ["--input", "1x32x32"]
    done(
        run, "add", tmp_path / "y0", "--at", "pool1", "--category", "a", "--task", "is", *size, "--out", tmp_path / "n0"
    )
    done(
        run,
        "add",
        tmp_path / "y1",
        "--at",
        "pool1",
        "--category",
        "b",
        "--only",
        "category",
        "--to",
        tmp_path / "n0",
        "--out",
        tmp_path / "n1",
    )
    report = done(
        run,
        "connect",
        tmp_path / "n1",
        "--category",
        "b",
        "--task",
        "is",
        "--data",
        "digits:0,1",
        "--way",
        "direct-learn",
        "--labels",
        30,
        "--steps",
        60,
        "--lr",
        0.02,
        "--out",
        tmp_path / "n2",
    )
    assert report["judged_by"] == "position" and report["after"]["accuracy"] > report["before"]["accuracy"]


def test_a_teacher_of_other_classes_is_told(run, tmp_path):
    """Its answers are paired by their order, which nobody may have meant; of the same classes nothing is said."""
    other = zoo.build("lenet", num_classes=3, in_channels=1, seed=3)
    images = data.load("digits:5-7", size=16, channels=1)
    train(other, images, epochs=1, device="cpu", progress=False)
    brickwork.save(other, tmp_path / "other")
    done(
        run,
        "add",
        tmp_path / "other",
        "--at",
        "pool1",
        "--category",
        "fox",
        "--task",
        "foxes",
        "--to",
        "net",
        "--out",
        tmp_path / "three",
    )
    way = ("--task", "classify", "--way", "closed-form")
    code, _, error = run("connect", tmp_path / "three", "--category", "fox", *way, "--out", tmp_path / "x")
    assert code == 0 and "classify and its teacher foxes tell other classes apart; their outputs are paired" in error
    code, _, error = run("connect", "net", "--category", "cat", *way, "--out", tmp_path / "y")
    assert code == 0 and "paired" not in error
