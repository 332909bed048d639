"""`brickwork disassemble` and `brickwork assemble`, from two trained folders to an evaluated one."""

import json

import pytest

import brickwork
from brickwork import data, zoo
from brickwork.training import train


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two LeNets that know all ten digits, trained with different seeds."""
    root = tmp_path_factory.mktemp("models")
    digits = data.load("digits", size=16, channels=1)
    for seed, name in enumerate("ab"):
        model = zoo.build("lenet", in_channels=1, seed=seed)
        train(
            model,
            digits.train_images,
            digits.train_labels,
            epochs=4,
            classes=digits.classes,
            seed=seed,
            device="cpu",
            progress=False,
        )
        brickwork.save(model, root / name)
    return root


def test_from_models_to_a_model(run, folders, tmp_path):
    one, two, joined = (tmp_path / name for name in ("one", "two", "joined"))
    code, out, _ = run("disassemble", folders / "a", "--classes", "0-2", "--data", "digits", "--out", one, "--json")
    brick = json.loads(out)
    assert code == 0 and brick["classes"] == ["0", "1", "2"] and brick["folder"] == str(one)
    assert brick["accuracy_after"] >= brick["accuracy_before"] - 0.01
    code, out, _ = run(
        "disassemble",
        folders / "b",
        "--classes",
        "4,3",
        "--data",
        "digits",
        "--budget",
        0.3,
        "--out",
        two,
        "--device",
        "cpu",
    )
    assert code == 0 and "classes            4, 3\n" in out and f"saved in {two}" in out
    code, out, _ = run("assemble", one, two, "--out", joined, "--calibrate", "source", "--json")
    report = json.loads(out)
    assert code == 0 and report["classes"] == ["0", "1", "2", "4", "3"] and report["how"] == "blocks"
    code, out, _ = run("eval", joined, "digits:0-4", "--json")
    assert code == 0 and json.loads(out)["accuracy"] > 0.8
    code, out, _ = run("info", joined)
    assert code == 0
    assert brickwork.Brick.load(one).to_dict() == {k: brick[k] for k in brickwork.Brick.load(one).to_dict()}


def test_words_are_those_of_python(run):
    code, out, _ = run("disassemble", "--help")
    names = (
        "attribution",
        "keep",
        "budget",
        "of",
        "threshold",
        "tolerance",
        "repair",
        "images",
        "scored",
        "ridge",
        "round-to",
        "seed",
        "device",
        "output",
    )
    assert code == 0 and all(f"--{name} " in out for name in names)
    code, out, _ = run("assemble", "--help")
    assert code == 0 and "--calibrate" in out and "--how" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--classes", "ten", "--data", "digits"], "unknown class 'ten'"),
        (["--classes", "0", "--data", "digts"], "did you mean 'digits'"),
        (
            ["--classes", "0", "--data", "digits", "--keep", "0.5", "--budget", "0.5"],
            "--keep and --budget are given; one of them",
        ),
        (["--classes", "0", "--data", "digits", "--attribution", "tailor"], "did you mean 'taylor'"),
        (["--classes", "0", "--data", "digits:1"], "no images of '0'"),
        (["--classes", "0,1", "--data", "digits", "--budget", "0.0001"], "narrowest"),
    ],
)
def test_wrong_requests(run, folders, tmp_path, options, message):
    out_folder = tmp_path / "out"
    code, out, err = run("disassemble", folders / "a", *options, "--out", out_folder)
    assert code == 2 and message in err and out == "" and err.count("\n") == 1
    assert not out_folder.exists()


def test_outputs_and_models(run, folders, tmp_path):
    code, _, err = run("assemble", folders / "a", "--out", tmp_path / "x")
    assert code == 2 and "a model, not a brick" in err
    code, _, err = run("assemble", tmp_path / "none", "--out", tmp_path / "x")
    assert code == 2 and "does not exist" in err
    code, _, err = run("disassemble", folders / "a", "--classes", "0", "--data", "digits", "--out", folders / "b")
    assert code == 2 and "--force" in err
