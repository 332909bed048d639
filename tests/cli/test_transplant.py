"""`brickwork transplant` from the command line: nets grow, nothing that was there changes, wrong requests write nothing."""

import hashlib
import json
from functools import partial
from pathlib import Path

import pytest
import torch

import brickwork
from brickwork import cli, data, store, zoo
from brickwork.training import train
from brickwork.transplant import WAYS, load_net

DIGITS = "digits:0-2"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """dog, cat: LeNets of three digits; wide: of another size; net: dog and cat, not yet connected."""
    root = tmp_path_factory.mktemp("models")
    for name, size, seed in (("dog", 16, 0), ("cat", 16, 1), ("wide", 20, 2)):
        images = data.load(DIGITS, size=size, channels=1)
        model = zoo.build("lenet", num_classes=3, in_channels=1, seed=seed)
        train(
            model,
            images.train_images,
            images.train_labels,
            epochs=3 if size == 16 else 1,
            classes=images.classes,
            seed=seed,
            device="cpu",
            progress=False,
        )
        brickwork.save(model, root / name)
    for call in (
        ["add", root / "dog", "--at", "pool1", "--category", "dog", "--task", "classify", "--out", root / "first"],
        [
            "add",
            root / "cat",
            "--at",
            "pool1",
            "--category",
            "cat",
            "--task",
            "cats",
            "--to",
            root / "first",
            "--out",
            root / "net",
        ],
    ):
        with pytest.raises(SystemExit) as caught:
            cli.main(["transplant", *map(str, call)])
        assert not caught.value.code
    return root


@pytest.fixture
def run(run, folders, monkeypatch):
    """Run `brickwork transplant …` among the folders: (exit code, stdout, stderr)."""
    monkeypatch.chdir(folders)
    return partial(run, "transplant")


def fingerprint(folder, **options):
    """A hash of every answer of a net on fixed images, route by route."""
    net = load_net(folder, **options)
    images = torch.rand(4, *net.input_shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return {route: hashlib.sha256(net(images, *route).numpy().tobytes()).hexdigest() for route in net.routes}


def done(run, *arguments):
    code, out, err = run(*arguments, "--json")
    assert code == 0, err
    return json.loads(out, parse_constant=pytest.fail)


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


def test_show(run, tmp_path):
    """Adapters by several ways and numbers of labels, drawn and not kept."""
    before = fingerprint("net")
    page = tmp_path / "page.html"
    report = done(
        run,
        "show",
        "net",
        "--category",
        "cat",
        "--task",
        "classify",
        "--data",
        DIGITS,
        "--way",
        "direct-learn",
        "--way",
        "closed-form",
        "--labels",
        0,
        "--labels",
        2,
        "--labels",
        5,
        "--steps",
        5,
        "--out",
        page,
    )
    assert [(e["way"], e["labels"]) for e in report["errors"]] == [
        ("direct-learn", 2),
        ("direct-learn", 5),
        ("closed-form", None),
    ]
    assert set(report["spread"]["cat"]) == {"direct-learn", "closed-form"} and report["teachers"]["cat"] < 0.1
    assert page.read_text().startswith("<!doctype html>") and fingerprint("net") == before
    report = done(
        run, "show", "net", "--category", "dog", "--task", "classify", "--data", DIGITS, "--out", tmp_path / "p.svg"
    )
    assert [e["way"] for e in report["errors"]] == ["in the net"]
    for arguments, message in (
        (["--category", "cat"], "cat does not reach classify, so there is no adapter to show"),
        (["--category", "cat", "--lr", 0.1], "--lr is for adapters that are learned here"),
        (["--category", "cat", "--way", "direct-learn"], "direct-learn needs labels"),
        (["--category", "cat", "--way", "closed-form", "--lr", 0.1], "--lr is used by none of these ways"),
        (["--category", "cat", "--way", "closd-form"], "did you mean 'closed-form'?"),
        (["--category", "dog", "--layer", "conv9"], "unknown layer of the task module 'conv9'"),
        (["--category", "dog", "--data", "digits"], "1 --category and 2 --data"),
        ([], "--category is missing: name of a category"),
    ):
        rest = ["--task", "classify", "--data", DIGITS, "--out", tmp_path / "w.html"]
        code, out, err = run("show", "net", *arguments, *rest)
        assert code == 2 and message in err and out == "" and not (tmp_path / "w.html").exists(), err
    code, _, err = run(
        "show", "net", "--category", "dog", "--task", "classify", "--data", DIGITS, "--out", tmp_path / "w.pdf"
    )
    assert code == 2 and "ends in '.pdf'" in err


CONNECT = ["connect", "net", "--category", "cat", "--task", "classify", "--out", "x"]
ADD = ["add", "cat", "--at", "pool1", "--category", "c", "--task", "t", "--out", "x"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*CONNECT, "--way", "distil"], "did you mean 'distill'?"),
        ([*CONNECT, "--way", "direct-learn", "--data", DIGITS], "direct-learn needs labels"),
        ([*CONNECT, "--way", "distill"], "distill with --labels 0 needs images; give --data"),
        ([*CONNECT, "--way", "closed-form", "--labels", 5, "--data", DIGITS], "closed-form uses no labels"),
        ([*CONNECT, "--way", "closed-form", "--lr", 0.1], "--lr is not used by closed-form; leave it out"),
        ([*CONNECT, "--way", "closed-form", "--lr", 1e-3], "--lr is not used by closed-form"),  # its default, and typed
        ([*CONNECT, "--kernel", 2, "--share", 0, "--lr", -1, "--dummy", "third"], "--kernel is '2'; it must be odd"),
        (
            [*CONNECT, "--kernel", 2, "--share", 0, "--lr", -1, "--dummy", "third"],
            "--dummy is 'third'; it must be one of first, second, lowest",
        ),
        ([*CONNECT, "--teacher", "classify"], "cat does not reach classify, so that cannot be its teacher"),
        ([*CONNECT, "--data", "digits:0-4", "--labels", 2], "select as many classes as the task has"),
        ([*CONNECT, "--data", "digits:0-2@5000"], "5000 train images a class asked for"),
        ([*CONNECT, "--at", "pool1"], "no such option '--at'; it belongs to brickwork transplant add; "),
        ([*CONNECT, "--data", "digits", "--data", "digits"], "--data is given 2 times; give it once"),
        (["connect", "net", "--category", "cow", "--task", "classify", "--out", "x"], "unknown category 'cow'"),
        (
            [
                "connect",
                "net",
                "--category",
                "cat",
                "--task",
                "cats",
                "--way",
                "direct-learn",
                "--labels",
                3,
                "--data",
                DIGITS,
                "--out",
                "x",
            ],
            "cat reaches cats already",
        ),
        (["connect", "cat", "--category", "cat", "--task", "cats", "--out", "x"], "cat is no transplant net"),
        (["connect", "net", "--task", "cats", "--out", "x"], "--category is missing: name of a category"),
        ([*ADD[:4], *ADD[4:], "--to", "first", "--category", "d"], "--category is given 2 times; a network brings one"),
        (["add", "cat", "--at", "pool9", "--category", "c", "--task", "t", "--out", "x"], "unknown layer 'pool9'"),
        (["add", "cat", "--category", "c", "--task", "t", "--out", "x"], "give --at"),
        (["add", "cat", "--at", "fc3", "--category", "c", "--task", "t", "--out", "x"], "leaves no layer for the task"),
        (
            ["add", "cat", "--at", "pool1", "--category", "dog", "--task", "t", "--to", "net", "--out", "x"],
            "there is a category 'dog' already",
        ),
        (
            ["add", "wide", "--at", "pool1", "--category", "c", "--task", "t", "--to", "net", "--out", "x"],
            "takes images of 1×20×20 and the net of 1×16×16",
        ),
        ([*ADD, "--only", "category"], "--only category adds no task"),
        ([*ADD, "--steps", 5], "--steps is for a task that is learned on --data"),
        ([*ADD, "--input", "3x16x16"], "takes images of 1×16×16, not 3×16×16"),
        (["add", "nowhere", "--at", "pool1", "--category", "c", "--task", "t", "--out", "x"], "nowhere does not exist"),
        (["export", "net", "--out", "x"], "needs --category, --task, or both"),
        (["export", "net", "--category", "dog", "--task", "cats", "--out", "x"], "dog does not reach cats"),
        (["list", "net", "--out", "x"], "no such option '--out'; it belongs to brickwork transplant add, connect"),
        (["add", "cat", "--at", "pool1", "--category", "c", "--task", "t", "--out", "net"], "net exists already"),
    ],
)
def test_wrong_requests(run, folders, arguments, message):
    names = sorted(p.name for p in folders.iterdir())
    code, out, err = run(*arguments)
    assert code == 2 and message in err and out == "" and err.count("\n") == 1, err
    assert sorted(p.name for p in folders.iterdir()) == names


def test_tune_says_which_answers_differ_now(run, folders):
    more = ("--steps", "3", "--device", "cpu")
    assert (
        run("connect", "net", "--category", "cat", "--task", "classify", "--way", "closed-form", "--out", "joined")[0]
        == 0
    )
    code, out, err = run(
        "tune", "joined", "--category", "cat", "--task", "classify", "--data", DIGITS, "--out", "tuned", *more
    )
    assert (
        code == 0 and "other answers than before: " in out and "cat → classify" in out and (folders / "tuned").is_dir()
    )
    for wrong, word in (
        (["--category", "cat", "--task", "classify", "--data", DIGITS, "--parts", "heads"], "'heads'"),
        (
            ["--category", "cat", "--task", "classify", "--data", DIGITS, "--lr", "1e30"],
            "--lr is '1e30'; it must be above 0 and below 1",
        ),
        (["--category", "dog", "--task", "cats", "--data", DIGITS], "does not reach"),
        (
            ["--category", "cat", "--task", "classify", "--data", DIGITS, "--way", "distill"],
            "no such option '--way'; it belongs to brickwork transplant connect, show",
        ),
        (["--category", "cat", "--task", "classify"], "--data is missing: images: digits"),
    ):
        code, out, err = run("tune", "joined", *wrong, "--out", "other", "--device", "cpu")
        assert code == 2 and word in err and err.count("\n") == 1 and not (folders / "other").exists(), err
