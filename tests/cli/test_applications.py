"""compress, treat, distil, increment, transfer, adapt and forget from the command line: what they write and what they refuse."""

import json

import numpy as np
import pytest
import torch

import brickwork
from brickwork import data, store, zoo
from brickwork.bricks import attribution
from brickwork.origin import origin_of
from brickwork.training import train

VERBS = ("compress", "treat", "distil", "increment", "transfer", "adapt")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """a, b: LeNets of the halves of the digits; a01, a2, b56: bricks of them; wide: another input; dim: other images."""
    root = tmp_path_factory.mktemp("models")
    prepared = data.load("digits", size=16, channels=1).preprocessing()
    for name, size, seed, spec in (("a", 16, 0, "A"), ("b", 16, 1, "B"), ("wide", 20, 2, "B@20")):
        images = data.load(f"digits:{spec}", size=size, channels=1)
        model = zoo.build("lenet", num_classes=5, in_channels=1, seed=seed)
        train(
            model,
            images.train_images,
            images.train_labels,
            epochs=6 if size == 16 else 1,
            classes=images.classes,
            seed=seed,
            preprocessing=prepared if size == 16 else None,
            device="cpu",
            progress=False,
        )
        brickwork.save(model, root / name, provenance={"command": "train", "test_accuracy": 0.5})
        for classes in {"a": ("01", "2"), "b": ("56",), "wide": ("7",)}[name]:
            few = {"keep": 0.6, "images": 200, "scored": 50, "progress": False}
            brickwork.disassemble(model, list(classes), images, **few).save(root / f"{name}{classes}")
    half = data.load("digits:A", size=16, channels=1)
    kept = {"train_labels": half.train_labels, "test_labels": half.test_labels, "classes": np.array(half.classes)}
    dim = {f"{s}_images": (half.split(s)[0] * 0.4 + 90).astype(np.uint8) for s in ("train", "test")}
    np.savez(root / "dim.npz", **dim, **kept)
    np.savez(root / "turned.npz", **{**dim, **kept, "train_labels": 4 - half.train_labels})
    return root


@pytest.fixture
def run(run, folders, monkeypatch):
    """Run `brickwork …` among the folders: (exit code, stdout, stderr)."""
    monkeypatch.chdir(folders)
    return run


def result_of(run, folder, spec, *arguments):
    """The report of a verb, and the accuracy of the folder it wrote, read anew by `eval`."""
    code, out, err = run(*arguments, "--out", folder, "--json", "--device", "cpu")
    assert code == 0, err
    report = json.loads(out, parse_constant=pytest.fail)  # NaN is not JSON
    assert report["folder"] == str(folder)
    assert origin_of(brickwork.load(folder)).provenance["command"] == arguments[0]
    code, out, err = run("eval", folder, spec, "--json")
    assert code == 0, err
    return report, json.loads(out)["accuracy"]


def test_compress(run, tmp_path):
    report, accuracy = result_of(
        run,
        tmp_path / "s",
        "digits:A",
        "compress",
        "a",
        "--data",
        "digits:A",
        "--budget",
        "0.4",
        "--depth",
        "2",
        "--attribution",
        "contribution",
    )
    assert report["classes"] == list("01234") and report["parameters"] <= 0.4 and accuracy > 0.9
    assert report["options"]["depth"] == 2 and len(report["kept"].get("conv1", range(6))) == 6
    brick = brickwork.Brick.load(tmp_path / "s")
    assert brick.classes == tuple("01234")
    assert origin_of(brick.model).provenance["whole"]["test_accuracy"] == 0.5


def test_forget(run, tmp_path):
    report, accuracy = result_of(
        run, tmp_path / "f", "digits:0,1,2,4", "forget", "a", "--classes", "3", "--data", "digits:A"
    )
    assert report["after"]["retained"] == accuracy > 0.9 and report["after"]["forgotten"] < 0.2
    assert report["forgotten"] == ["3"] and report["classes"] == list("0124")
    said = origin_of(brickwork.load(tmp_path / "f")).provenance
    assert said["test_accuracy"] == accuracy and said["before"]["test_accuracy"] == 0.5
    code, out, _ = run("forget", "a", "--classes", "3,4", "--data", "digits:A", "--out", tmp_path / "g")
    assert code == 0 and "by a linear probe" in out


@pytest.mark.parametrize("classes", ["7", "cat", "0-4"])
def test_what_cannot_be_forgotten_is_refused_and_nothing_is_written(run, tmp_path, classes):
    code, _, err = run("forget", "a", "--classes", classes, "--data", "digits:A", "--out", tmp_path / "f")
    assert code == 2 and "Traceback" not in err and len(err.strip().splitlines()) == 1
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("rule", ["route", "doctor", "plain"])
def test_treat(run, tmp_path, rule):
    report, accuracy = result_of(
        run,
        tmp_path / "t",
        "digits:A",
        "treat",
        "a",
        "--data",
        "digits:A",
        "--rule",
        rule,
        "--epochs",
        "1",
        *([] if rule == "plain" else ["--depth", "1"]),
    )
    assert report["rule"] == rule and report["after"] == accuracy > 0.9 and report["before"] > 0.9
    said = origin_of(brickwork.load(tmp_path / "t")).provenance
    assert said["test_accuracy"] == accuracy and said["before"]["test_accuracy"] == 0.5
    assert said["source"] == store.state_hash(brickwork.load("a"))


def test_distil(run, tmp_path):
    """A brick that was taught is no longer the brick it was."""
    report, accuracy = result_of(
        run, tmp_path / "one", "digits:0,1", "distil", "a01", "--teacher", "a", "--data", "digits:0,1", "--no-labels"
    )
    assert "accuracy" not in report["history"][0]  # without labels there is none
    code, _, err = run("assemble", tmp_path / "one", "--out", tmp_path / "x")
    assert code == 2 and "a model, not a brick" in err
    assert run("assemble", "a01", "b56", "--out", tmp_path / "ab")[0] == 0
    report, accuracy = result_of(
        run,
        tmp_path / "two",
        "digits:6,0",
        "distil",
        tmp_path / "ab",
        "--teacher",
        "a",
        "--teacher",
        "b",
        "--data",
        "digits:6,5,1,0",
        "--hard",
        "0.3",
        "--batch-size",
        "32",
    )
    assert report["teachers"] == ["a", "b"] and accuracy > 0.9 and report["after"] > 0.85


def test_increment(run, tmp_path):
    report, accuracy = result_of(run, tmp_path / "i", "digits:0-6", "increment", "a", "b56", "--data", "digits:A")
    assert report["classes"] == list("0123456") and report["calibrate"] == "source" and accuracy > 0.8
    plain, _ = result_of(run, tmp_path / "p", "digits:5,6", "increment", "a", "b56", "--how", "branches")
    assert plain["calibrate"] == "none" and plain["how"] == "branches"
    target, _ = result_of(
        run, tmp_path / "t", "digits:0-6", "increment", "a", "b56", "--calibrate", "target", "--target", "digits:0-6"
    )
    assert target["calibrate"] == "target"


def test_transfer(run, tmp_path):
    given = ["transfer", "a", "--data", "dim.npz", "--epochs", "1"]
    report, accuracy = result_of(run, tmp_path / "t", "dim.npz", *given, "--routes", "digits:A")
    assert 0 < report["free"] < 1 and report["after"] == accuracy > 0.5
    everything, _ = result_of(run, tmp_path / "u", "dim.npz", *given, "--what", "all")
    assert everything["free"] == 1


def test_adapt(run, tmp_path):
    report, accuracy = result_of(
        run, tmp_path / "a", "dim.npz", "adapt", "a", "--known", "digits:A", "--new", "dim.npz", "--images", "300"
    )
    assert report["images"] == 300 and report["after"] == accuracy > 0.9 and accuracy >= report["before"]


def test_assemble_bricks_of_one_network(run, tmp_path):
    apart, _ = result_of(run, tmp_path / "apart", "digits:0-2", "assemble", "a01", "a2")
    united, accuracy = result_of(
        run, tmp_path / "united", "digits:0-2", "assemble", "a01", "a2", "--source", "a", "--data", "digits:A"
    )
    assert apart["how"] == "blocks" and apart["united"] == 0 and apart["parts"] == 2
    assert united["how"] == "alone" and united["united"] == 1 and accuracy > 0.9
    assert united["parameters"] < apart["parameters"]
    code, out, _ = run("assemble", "a01", "--out", tmp_path / "alone")
    assert code == 0 and "1 brick as one part: " in out
    one, _ = result_of(run, tmp_path / "c", "digits:0,1", "assemble", "a01", "b56", "--calibrate", "classwise")
    assert one["calibrate"] == "classwise"


def test_people_read_it_too(run, tmp_path):
    code, out, _ = run("treat", "a", "--data", "digits:A@20", "--epochs", "1", "--out", tmp_path / "t")
    assert code == 0 and "accuracy on the test images: " in out and out.endswith(f"saved in {tmp_path / 't'}\n")
    assert run("treat", "a", "--data", "digits:A@20", "--epochs", "1", "--out", tmp_path / "t")[0] == 2
    assert run("treat", "a", "--data", "digits:A@20", "--epochs", "1", "--out", tmp_path / "t", "--force")[0] == 0


@pytest.mark.parametrize("verb", [*VERBS, "assemble", "disassemble"])
def test_help_has_an_example_and_every_common_option(run, verb):
    code, out, _ = run(verb, "--help")
    names = ("--json", "--seed", "--device", "--force", "--debug", "--out", f"  brickwork {verb} ")
    assert code == 0 and all(name in out for name in names)
    if "--attribution" in out:
        words = out.replace("\n", " ")
        assert all(f" {name}" in words for name in attribution.REGISTRY)


EARLY = [
    (
        "compress a --data digits:A --budget 2 --seed -1",
        "--budget is 2.0; it must be above 0 and at most 1; --seed is '-1'",
    ),
    ("compress a --data digits:A --attribution frats", "did you mean 'frat'?"),
    ("disassemble a --classes 0,ten --data digits:A", "unknown class 'ten'"),
    ("treat a --data digits:A --rule rout", "did you mean 'route'?"),
    ("treat a --data digits:A --rule plain --strength 1", "--strength is not used by --rule plain"),
    ("treat a --data digits:A --strength -1", "--strength is '-1'; it must be 0 or more; `brickwork treat -h`"),
    ("treat a --data digits:A --threshold nan", "--threshold is 'nan'; it must be 0 or more"),
    (
        "treat a --data digits:A --epochs 0 --lr -1",
        "--epochs is '0'; it must be 1 or more; --lr is '-1'; it must be above 0",
    ),
    ("treat a --data digits:A --scored 0", "--scored is '0'; it must be 1 or more"),
    ("treat a --data digts", "did you mean 'digits'?"),
    ("treat none --data digits", "none does not exist"),
    ("distil a01 --teacher b --data digits:0,1", "no teacher knows '0', '1'; together they know 5, 6, 7, 8, 9."),
    ("distil a01 --teacher a --data digits --temperature 0", "--temperature is '0'; it must be above 0"),
    ("distil a01 --teacher a --data digits --hard 1.5", "--hard is '1.5'; it must be 0 to 1"),
    ("distil a01 --teacher a --data digits --hard 0.5 --no-labels", "--no-labels leaves them out"),
    ("distil a01 --teacher none --data digits", "none does not exist"),
    ("increment a a2", "class '2' is in a and in a2"),
    ("increment a b", "b is a model, not a brick"),
    ("increment a b56 --calibrate source", "needs --data"),
    ("increment a b56 --calibrate none --data digits:A", "--data is not used"),
    ("increment a b56 --target digits", "--target images go with --calibrate target"),
    ("increment a wide7", "a takes inputs of 1×16×16 and wide7 of 1×20×20"),
    ("assemble a01 b56 --calibrate target", "--target images go with --calibrate target"),
    ("assemble a01 b56 --target digits", "--target images go with --calibrate target"),
    ("assemble a01 a01", "class '0' is in a01 and in a01"),
    ("assemble a01 wide7", "bricks must share one input size"),
    ("assemble a01 a2 --data digits:A", "--data repairs the union of bricks of --source"),
    ("assemble a01 a2 --source a", "were repaired, so their union must be too; give --data"),
    ("assemble a01 a2 --source b --data digits", "none of the bricks was cut from b"),
    ("assemble a01 a2 --source a --shared apart", "--shared apart keeps them apart"),
    ("assemble a01 a2 --source a --data digits --images 0", "--images is '0'; it must be 1 or more"),
    ("transfer a --data dim.npz --what all --routes digits", "--what all holds nothing"),
    ("transfer a --data dim.npz --what all --threshold 1.0", "--what all holds nothing"),
    ("transfer a --data dim.npz --weight-decay 0.1", "--weight-decay would move what --what independent holds"),
    ("transfer a --data dim.npz --batch-size 0", "--batch-size is '0'; it must be 1 or more"),
    (
        "adapt a --known digits --new digits --ridge -1 --seed -2",
        "--ridge is '-1'; it must be 0 or more; --seed is '-2'",
    ),
    ("adapt a --known digits --new digits --images 0", "--images is '0'; it must be 1 or more"),
]


@pytest.mark.parametrize(("line", "message"), EARLY, ids=[line for line, _ in EARLY])
def test_refused_before_a_tensor_is_read(run, tmp_path, monkeypatch, line, message):
    def nothing(*args, **kwargs):
        raise AssertionError("a model or an image was read")

    monkeypatch.setattr(store, "load", nothing)
    monkeypatch.setattr(data, "load", nothing)
    code, out, err = run(*line.split(), "--out", tmp_path / "out")
    assert code == 2 and message in err and out == "" and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


LATER = [
    ("compress a --data digits:A --depth conv9", "unknown layer 'conv9'; did you mean 'conv"),
    ("compress a --data digits:0-3", "no images of '4'"),
    ("compress a --data digits", "does not know '5'"),
    ("treat a --data digits:0-3", "no images of '4'"),
    ("treat a --data digits:A --depth 9", "layers 1 to 5"),
    ("distil a01 --teacher a --data digits:0-2", "does not know '2'"),
    ("distil wide --teacher b --data digits:B", "prepare images differently"),
    ("transfer a --data digits:B", "does not know '5'"),
    ("adapt a --known digits:A --new digits:B", "must come in pairs"),
    ("adapt a --known dim.npz --new turned.npz", "in dim.npz and '4' in turned.npz; they must come in pairs"),
]


@pytest.mark.parametrize(("line", "message"), LATER, ids=[line for line, _ in LATER])
def test_refused_later(run, tmp_path, line, message):
    code, out, err = run(*line.split(), "--out", tmp_path / "out")
    assert code == 2 and message in err and out == "" and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", VERBS)
def test_an_output_that_is_there(run, folders, verb):
    given = {
        "compress": "a --data digits:A",
        "treat": "a --data digits:A",
        "distil": "a --teacher a --data digits:A",
        "increment": "a b56",
        "transfer": "a --data dim.npz",
        "adapt": "a --known digits:A --new dim.npz",
    }
    before = (folders / "b" / "config.json").read_bytes()
    code, out, err = run(verb, *given[verb].split(), "--out", "b")
    assert code == 2 and "--force" in err and out == "" and err.count("\n") == 1
    assert (folders / "b" / "config.json").read_bytes() == before


def test_images_without_labels(run, tmp_path):
    """A folder of pictures of whatever: refused by its labels, with the way on, and taken by the network's answers."""
    from PIL import Image

    digits = data.load("digits:A", size=8, channels=1)
    (tmp_path / "pics").mkdir()
    for number, picture in enumerate(digits.train_images[:60]):
        Image.fromarray(picture[..., 0]).save(tmp_path / "pics" / f"{number}.png")
    request = ("compress", "a", "--data", tmp_path / "pics", "--budget", "0.5", "--out", tmp_path / "s")
    code, _, err = run(*request)
    assert code == 2 and "'pics'" in err and "--labels network" in err and not (tmp_path / "s").exists()
    code, out, err = run(*request, "--labels", "network")
    assert code == 0 and "held-out agreement" in out
    assert brickwork.load(tmp_path / "s")(torch.zeros(1, 1, 8, 8)).shape == (1, 5)
