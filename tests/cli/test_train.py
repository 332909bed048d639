"""`brickwork train` and `brickwork eval`, typed as a user types them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from brickwork import store, zoo
from brickwork.cli import main
from brickwork.training.checkpoint import FILE, read_facts

FAST = ["--epochs", "2", "--size", "8"]


@dataclass
class Done:
    returncode: int | str | None
    stdout: str
    stderr: str


def brickwork(*arguments: str, cwd: Path) -> Done:
    """The command line in this process, which has torch imported already."""
    out, err = io.StringIO(), io.StringIO()
    redirected = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with contextlib.chdir(cwd), redirected[0], redirected[1], pytest.raises(SystemExit) as left:
        main(arguments)
    return Done(left.value.code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """`brickwork train lenet digits:A --out a`, as in the README."""
    folder = tmp_path_factory.mktemp("models")
    done = brickwork("train", "lenet", "digits:A", "--out", "a", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout and "saved in a" in done.stdout
    return folder


def test_train_and_eval_as_typed(trained):
    done = brickwork("eval", "a", "digits:A", "--json", cwd=trained)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["accuracy"] >= 0.97 and found["classes"] == list("01234") and found["images"] == 180
    config = json.loads((trained / "a" / "config.json").read_text())
    assert config["classes"] == list("01234") and config["preprocessing"]["size"] == [32, 32]
    assert config["provenance"]["data"] == "digits:A"
    assert config["provenance"]["test_accuracy"] == pytest.approx(found["accuracy"])


def test_eval_on_a_subset_matches_by_name(trained):
    done = brickwork("eval", "a", "digits:3,1@10", "--json", cwd=trained)
    found = json.loads(done.stdout)
    assert found["images"] == 20 and np.sum(found["confusion"]) == 20
    assert found["per_class"]["3"] > 0.9 and found["per_class"]["0"] is None


def test_eval_refuses_classes_the_model_does_not_know(trained):
    done = brickwork("eval", "a", "digits", cwd=trained)
    assert done.returncode == 2 and done.stdout == ""
    assert "does not know '5', '6'" in done.stderr and "Traceback" not in done.stderr


def test_an_output_that_exists_is_refused_before_training(trained):
    before = (trained / "a" / "model.safetensors").read_bytes()
    began = time.monotonic()
    done = brickwork("train", "lenet", "digits:A", "--out", "a", "--epochs", "100000", cwd=trained)
    assert done.returncode == 2 and "exists already" in done.stderr and "--force" in done.stderr
    assert time.monotonic() - began < 60
    assert (trained / "a" / "model.safetensors").read_bytes() == before


def test_force_metrics_and_json(tmp_path):
    arguments = ["train", "lenet", "digits:A@20", "--out", "b", *FAST, "--metrics", "run.jsonl", "--json"]
    for extra in ([], ["--force"]):
        done = brickwork(*arguments, *extra, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert len(report["history"]) == 2 and report["test"]["images"] == 180
    assert len((tmp_path / "run.jsonl").read_text().splitlines()) == 2


def test_a_segmenter_and_its_masks(tmp_path):
    arguments = ["train", "fcn8s", "digits:0-1@4", "--out", "s", "--epochs", "1", "--size", "32", "--json"]
    done = brickwork(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["test"]["iou"]) == {"background", "digit"}
    again = brickwork("eval", "s", "digits:2@2", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["images"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lenett", "digits"], "did you mean 'lenet'?"),
        (["lenet", "digit:A"], "did you mean 'digits'?"),
        (["lenet", "digits:zero"], "unknown class 'zero'"),
        (["lenet", "digits@none"], "a number of images a class"),
        (
            ["lenet", "digits", "--lr", "-1", "--optimizer", "sdg"],
            "--lr is '-1'; it must be above 0; --optimizer is 'sdg'",
        ),
        (["lenet", "digits", "--milestones", "x"], "--milestones is 'x'; it must be a whole number"),
        (["lenet", "digits", "--arg", "num_classes=3"], "num_classes comes from the data"),
        (["lenet", "empty/"], "holds no images"),
        (["lenet", "single/"], "single/ has no image to test on"),
        (["lenet", "junk/"], "notes.png is not an image"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_wrong_requests_write_nothing(tmp_path, arguments, message, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "single" / "cat").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "single" / "cat" / "a.png")
    (tmp_path / "junk" / "cat").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "junk" / "cat" / "a.png")
    (tmp_path / "junk" / "cat" / "notes.png").write_text("not an image")
    with pytest.raises(SystemExit) as stopped:
        main(["train", *arguments, "--out", "out"])
    assert stopped.value.code == 2
    told = capsys.readouterr()
    assert message in told.err and told.out == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("epochs", [0, 1])
def test_more_outputs_than_classes_are_refused_before_training(tmp_path, monkeypatch, capsys, epochs):
    monkeypatch.chdir(tmp_path)
    store.save(zoo.build("lenet", num_classes=10, seed=0), "ten")
    written = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as stopped:
        main(f"train ten digits:A@2 --out out --epochs {epochs} --metrics m.jsonl --json".split())
    told = capsys.readouterr()
    assert stopped.value.code == 2 and told.out == "" and sorted(tmp_path.rglob("*")) == written
    assert "the network has 10 outputs and digits:A@2 5 classes (0, 1, 2, 3, 4); build it with as many" in told.err


def heeding_ctrl_c() -> None:
    """A job in the background of a shell ignores Ctrl-C, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_leaves_a_checkpoint_that_the_same_command_goes_on_from(tmp_path):
    arguments = ["train", "lenet", "digits:A@40", "--out", "c", "--size", "8", "--checkpoint", "kept", "--epochs", "40"]
    command = [sys.executable, "-m", "brickwork", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=heeding_ctrl_c
    )
    deadline = time.monotonic() + 100
    while not (tmp_path / "kept" / FILE).exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "the same command goes on from there" in err and "Traceback" not in err
    assert not (tmp_path / "c").exists()
    facts = read_facts(tmp_path / "kept")
    assert facts is not None
    done = brickwork(*arguments, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed_at"] == len(facts["history"]) > 0


def test_training_goes_on_from_a_folder(trained, tmp_path):
    """A common start, written untrained, and two networks that left from it."""
    start, one = str(tmp_path / "start"), str(tmp_path / "one")
    done = brickwork(
        "train", "lenet", "digits:A", "--epochs", "0", "--size", "8", "--out", start, "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    from brickwork import load, zoo
    from brickwork.origin import origin_of
    from brickwork.store import state_hash

    fresh = load(start)
    known = zoo.build("lenet", seed=0, **origin_of(fresh).args)
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), known.parameters(), strict=True))
    assert origin_of(fresh).classes == tuple("01234") and origin_of(fresh).preprocessing is not None
    done = brickwork("train", start, "digits:B", "--epochs", "1", "--out", one, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    later = load(one)
    assert origin_of(later).classes == tuple("56789")
    assert origin_of(later).preprocessing == origin_of(fresh).preprocessing
    assert origin_of(later).provenance["start"] == state_hash(fresh)
    for wrong, words in (
        (["train", start, "digits", "--out", "x"], "has 5 classes and the data 10"),
        (["train", start, "digits:B", "--size", "8", "--out", "x"], "leave out --arg and --size"),
        (["train", "lenet", "digits:B", "--epochs", "0", "--cut", "5:6", "--out", "x"], "trains nothing"),
        (["train", "lenet", "digits:B", "--epochs", "-3", "--out", "x"], "--epochs is '-3'; it must be 0 or more"),
    ):
        done = brickwork(*wrong, cwd=tmp_path)
        assert done.returncode == 2 and words in done.stderr and not (tmp_path / "x").exists()


def test_of_several_processes_the_first_alone_writes_and_prints(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    done = brickwork("train", "lenet", "digits:A@5", "--epochs", "1", "--size", "8", "--out", "a", cwd=tmp_path)
    assert done == Done(0, "", "") and not (tmp_path / "a").exists()
