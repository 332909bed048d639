"""`brickwork study eight-tasks`: the smoke run, that a stopped run goes on, what is missing, and that no method is left out."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from brickwork.errors import BadFile, RequestError, UnknownName
from brickwork_lab import studies
from brickwork_lab.lab import Lab
from brickwork_lab.suite import corruptions, methods, starts, tasks, tuning

PICKS = ("linear", "ties", "fisher", "match", "adamerging, entropy", "slerp")


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """Fine-tuned once for all tests."""
    return str(tmp_path_factory.mktemp("networks"))


def smoke(run, networks, *more):
    picks = [word for pick in PICKS for word in ("--pick", pick)]
    asked = ["study", "eight-tasks", "--smoke", "--json", "--device", "cpu", "--networks", networks, *picks, *more]
    code, printed, complaint = run(*asked)
    assert code == 0, complaint
    return json.loads(printed)


def test_smoke(run, networks, tmp_path):
    page = tmp_path / "page.html"
    result = smoke(run, networks, "--report", str(page))
    rows = {row["what"].removeprefix("digits, "): row for row in result["rows"]}
    assert list(rows) == ["fine-tuned", "start", *PICKS]
    names = rows["linear"]["per_task"]
    assert len(names) == 8 and all(0 <= rows["match"][name] <= 100 for name in names)
    for name, row in rows.items():
        if name == "slerp":
            assert row["ours"] is None and row["refused"] == "merges two networks, not eight"
            continue
        assert row["ours"] == pytest.approx(np.mean([row[task] for task in names]), abs=0.01)
        assert row["share"] == pytest.approx(100 * row["ours"] / rows["fine-tuned"]["ours"], abs=0.06)
        assert len(row["damaged_each"]) == len(corruptions.CORRUPTIONS) and 0 < row["unseen"] <= 100
    assert rows["fine-tuned"]["ours"] > 75 and rows["linear"]["ours"] > 60  # five classes each
    text = page.read_text()
    assert "methods and tasks" in text and "accuracy against seconds" in text


def test_a_run_that_was_stopped_goes_on(run, networks, monkeypatch):
    before = smoke(run, networks)
    monkeypatch.setattr(tuning, "train", lambda *_, **__: pytest.fail("trained again"))
    monkeypatch.setattr("brickwork_lab.studies.eight_tasks._judged", lambda *_: pytest.fail("judged again"))
    assert smoke(run, networks)["rows"] == before["rows"]


def test_on_an_engine_the_rows_are_the_same(run, tmp_path, monkeypatch):
    """Fine-tuned and measured by other processes; a second time nothing is computed."""
    asked = ["study", "eight-tasks", "--smoke", "--json", "--device", "cpu", "--pick", "slerp", "--pick", "linear"]
    asked += ["--set", "digits-A-0", "--set", "digits-B-90", "--networks"]

    def rows(folder, *more):
        code, printed, complaint = run(*asked, str(tmp_path / folder), *more)
        assert code == 0, complaint
        measured = ("seconds", "grown_mb")
        return [{n: v for n, v in row.items() if n not in measured} for row in json.loads(printed)["rows"]]

    here, there = rows("here"), rows("there", "--engine", "processes:2")
    assert there == here and len(here) == 4
    monkeypatch.setattr("brickwork.engine.executors.processes", lambda *_: pytest.fail("computed again"))
    assert rows("there", "--engine", "processes:2") == here


def test_wrong_requests_to_an_engine(run, tmp_path):
    asked = ["study", "eight-tasks", "--smoke"]
    for more, said in (
        (["--engine", "processes:2"], "--engine needs --networks"),
        (["--engine", "proc", "--networks", str(tmp_path)], "it must be inline, processes"),
        (["--engine", "processes:2", "--networks", str(tmp_path), "--pick", "tis"], "did you mean 'ties'"),
        (["--gpu-share", "0.5", "--networks", str(tmp_path)], "--gpu-share is for --engine ray"),
    ):
        code, _, complaint = run(*asked, *more)
        assert code == 2 and said in complaint, complaint


def test_every_method_of_the_library_has_a_row():
    assert methods.uncovered() == []


def test_all_missing_files_are_named_at_once(run, monkeypatch, tmp_path):
    monkeypatch.setenv("BRICKWORK_DATA", str(tmp_path))
    np.savez(tmp_path / "pets.npz", x=np.zeros(1))
    code, _, complaint = run("study", "eight-tasks", "--full", "--device", "cpu")
    assert code == 2 and "pets.npz" not in complaint and "cifar100" not in complaint
    for name in ("flowers102", "cub200", "cars196", "gtsrb", "caltech101", "pacs_sketch"):
        assert f"{name}.npz" in complaint
    assert "prepare_repo_data.py" in complaint
    with pytest.raises(BadFile, match=r"has no tiny_imagenet\.npz"):
        starts.load_start(Lab(True, device="cpu"), "resnet18")


def test_wrong_requests():
    with pytest.raises(UnknownName, match="did you mean 'ties'"):
        list(studies.get("eight-tasks").run(full=False, picks=("tis",)))
    with pytest.raises(UnknownName, match="task 'digits-C-0'"):
        tasks.load_tasks(Lab(False), ("digits-C-0",))
    with pytest.raises(RequestError, match=r"start is 'nonet'; it must be resnet18, vit_small, .* or a model folder"):
        starts.load_start(Lab(True, device="cpu"), "nonet")


def test_no_image_both_teaches_and_chooses():
    (task,) = tasks.load_tasks(Lab(False, seed=3), ("digits-A-90",))
    seen = {image.tobytes() for image in task.train[0]}
    assert not seen & {image.tobytes() for image in task.held[0]}
    few, many = ({image.tobytes() for image in task.unlabelled(n, 0)} for n in (10, 30))
    assert few < many <= seen


def test_a_trunk_answers_what_the_head_read():
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    trunk, features = starts.without_head(net)
    x = torch.randn(5, 4)
    assert features == 6 and torch.equal(net[2](trunk(x)), net(x))


@pytest.mark.parametrize("name", corruptions.CORRUPTIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_corruptions_change_images_alike(name, channels):
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 16, channels), dtype=np.uint8)
    damaged = corruptions.CORRUPTIONS[name](images, 0)
    assert damaged.shape == images.shape and damaged.dtype == np.uint8
    assert 2 < np.abs(damaged.astype(int) - images).mean() < 90
    assert np.array_equal(damaged, corruptions.CORRUPTIONS[name](images, 0))
