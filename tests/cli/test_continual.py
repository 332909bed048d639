"""`brickwork continual`: files, page and table of a run, going on, and requests that are wrong."""

from __future__ import annotations

import csv
import json
import sys

import pytest

from brickwork import data, store, zoo
from brickwork.data.arrays import save_npz


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start") / "net"
    store.save(zoo.build("resnet8", num_classes=10, in_channels=1, width=4, seed=0), folder)
    return folder


def request(start, out, *more):
    """A short run; what more says is instead of these."""
    usual = {"--tasks": 2, "--classes-per-task": 2, "--start": start, "--out": out, "--epochs": 1, "--device": "cpu"}
    return ["continual", "digits@20", *(w for pair in usual.items() if pair[0] not in more for w in pair), *more]


def test_a_run_leaves_files_page_and_table(run, start, tmp_path):
    out = tmp_path / "run"
    code, printed, _ = run(*request(start, out, "--methods", "probe,quantised(bits=4)", "--json"))
    told = json.loads(printed)
    assert code == 0 and list(told["methods"]) == ["probe", "quantised(bits=4)"]
    assert json.loads((out / "continual.json").read_text()) == told
    rows = list(csv.DictReader((out / "continual.csv").read_text().splitlines()))
    for row, folder in zip(rows, ("probe", "quantised-bits=4"), strict=True):
        sizes = sum(p.stat().st_size for p in (out / folder).glob("*.safetensors"))
        assert int(row["total_bytes"]) == sizes == told["methods"][row["method"]]["total_bytes"]
    assert "quantised(bits=4)" in (out / "continual.html").read_text()
    code, _, _ = run("report", out, "--out", tmp_path / "report.html")
    assert code == 0 and "Accuracy against megabytes" in (tmp_path / "report.html").read_text()
    code, again, _ = run(*request(start, out, "--methods", "probe", "--json"))
    assert code == 0 and json.loads(again)["methods"]["probe"] == told["methods"]["probe"]  # found, not learned
    code, text, _ = run(*request(start, out, "--methods", "probe", "--class-seed", "3", "--force"))
    assert code == 0 and "digits@20 in 2 × 2" in text and "saved in" in text


def test_methods_in_processes_give_what_they_give_here(run, start, tmp_path):
    asked = ("--methods", "probe,ncm", "--json")
    told = [
        json.loads(run(*request(start, tmp_path / name, *asked, "--engine", name))[1])["methods"]
        for name in ("inline", "processes:2")
    ]
    for one, other in zip(told[0].values(), told[1].values(), strict=True):
        assert one["matrix"] == other["matrix"] and one["total_bytes"] == other["total_bytes"]
    code, _, error = run(*request(start, tmp_path / "wrong", "--methods", "probe", "--engine", "cluster"))
    assert code == 2 and "'cluster'" in error and not (tmp_path / "wrong").exists()


def test_a_folder_named_from_here_is_the_same_tasks_in_another_process(run, start, tmp_path, monkeypatch):
    """Its process finds it by its whole path, and the run is still the one that was asked for."""
    monkeypatch.chdir(tmp_path)
    digits = data.load("digits:0-3@5", size=8, channels=1)
    save_npz(digits, tmp_path / "own.npz")
    usual = ("--tasks", 2, "--classes-per-task", 2, "--start", start, "--epochs", 1, "--device", "cpu")
    code, _, error = run(
        "continual", "own.npz", *usual, "--methods", "probe", "--engine", "processes:1", "--out", "run"
    )
    assert code == 0, error


def test_a_network_of_ones_own_is_a_start(run, tmp_path, monkeypatch):
    """Every method takes it, those with a pool too, whose folder names the same code."""
    (tmp_path / "own_net_for_continual.py").write_text(
        "from torch import nn\n\ndef net(num_classes=4):\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, num_classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    own, usual = ("--arch", "own_net_for_continual:net"), ("--epochs", 1, "--device", "cpu")
    assert run("train", own[1], "digits:0-3@5", "--size", 8, *usual, "--out", "first")[0] == 0
    assert "give --arch own_net_for_continual:net" in run("train", "first", "digits:0-3@5", *usual, "--out", "more")[2]
    assert run("train", "first", "digits:0-3@5", *own, *usual, "--out", "more")[0] == 0
    assert "--arch is for a model folder" in run("train", "lenet", "digits:0-3@5", *own, *usual, "--out", "x")[2]
    split = ("--tasks", 2, "--classes-per-task", 2, "--start", "more", "--methods", "probe,pool(size=8)")
    code, _, error = run("continual", "digits:0-3@5", *split, *own, *usual, "--out", "run")
    assert code == 0, error
    sys.modules.pop("own_net_for_continual")


def test_classes_that_are_left_out_are_told(run, tmp_path):
    call = [
        "continual",
        "digits@5",
        "--start",
        "lenet",
        "--size",
        "16",
        "--methods",
        "probe",
        "--epochs",
        "1",
        "--device",
        "cpu",
        "--json",
    ]
    code, printed, err = run(*call, "--tasks", "3", "--out", tmp_path / "some")
    assert code == 0 and "1 of 10 classes of digits@5 are left out: digits@5 in 3 × 3." in err
    assert sum(map(len, json.loads(printed)["tasks"].values())) == 9
    code, _, err = run(*call, "--tasks", "2", "--out", tmp_path / "all")
    assert code == 0 and "left out" not in err


def test_several_sets_are_one_task_each(run, tmp_path):
    code, printed, _ = run(
        "continual",
        "digits:A@5",
        "digits:B@5",
        "--start",
        "lenet",
        "--size",
        "16",
        "--methods",
        "probe",
        "--epochs",
        "1",
        "--forward",
        "--out",
        tmp_path / "run",
        "--device",
        "cpu",
        "--json",
    )
    told = json.loads(printed)
    assert code == 0 and list(told["tasks"]) == ["digits:A@5", "digits:B@5"]
    assert told["methods"]["probe"]["forward_transfer"] == 0  # a probe starts every task from the same features


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--methods", "prob"], "did you mean 'probe'"),
        (["--methods", "lora(rank=x)"], "rank is 'x'"),
        (["--tasks", "6"], "need 12; digits@20 has 10"),
        (["--augment", "blur"], "augment is 'blur'"),
        (["--pool", "nowhere"], "is not a pool"),
        (["--start", "fcn8s"], "segmenter"),
    ],
    ids=["method", "option", "classes", "augment", "pool", "segmenter"],
)
def test_wrong_requests_are_refused_and_write_nothing(run, start, tmp_path, more, message):
    methods = [] if "--methods" in more else ["--methods", "probe"]
    code, out, err = run(*request(start, tmp_path / "run", *methods, *more))
    assert code == 2 and message in err and out == "" and not (tmp_path / "run").exists()


def test_a_folder_of_something_else_is_left_alone(run, start, tmp_path):
    (tmp_path / "photo").write_text("x")
    code, _, err = run(*request(start, tmp_path, "--methods", "probe", "--force"))
    assert code == 2 and "no continual.json" in err and [p.name for p in tmp_path.iterdir()] == ["photo"]


def test_how_to_split_must_be_said(run, tmp_path):
    for more, message in (
        ([], "--tasks, --classes-per-task or --groups"),
        (["digits:B", "--tasks", "2"], "one task each"),
        (["--groups", "nowhere"], "must be superclass, or a JSON file"),
    ):
        code, _, err = run("continual", "digits:A", *more, "--start", "lenet", "--out", tmp_path / "run")
        assert code == 2 and message in err
