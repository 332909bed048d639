"""A sweep on an engine finds what a sweep here finds, and computes nothing twice."""

from __future__ import annotations

import json
import sys

import pytest

from brickwork import data, store, zoo
from brickwork.algebra import sweep, sweep_jobs
from brickwork.algebra.cells import Cells
from brickwork.algebra.sweep_jobs import sweep_folders
from brickwork.errors import JobFailed, RequestError
from brickwork.training import train


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("nets")
    for seed, half in enumerate("AB"):
        images = data.load(f"digits:{half}@20", size=16, channels=1)
        model = zoo.build("lenet", num_classes=5, in_channels=1, seed=seed)
        train(
            model,
            images.train_images,
            images.train_labels,
            epochs=1,
            classes=images.classes,
            device="cpu",
            progress=False,
        )
        store.save(model, root / half)
    return {half: root / half for half in "AB"}


GRID = {"alpha": [0.0, 0.5, 1.0], "beta": [0.0, 1.0]}
SPECS = ["digits:A@5", "digits:B@5"]


def test_the_same_cells_as_here(folders, tmp_path, monkeypatch):
    sets = {spec: data.load(spec, size=16, channels=1) for spec in SPECS}
    here = sweep(*(store.load(f) for f in folders.values()), data=sets, progress=False, **GRID)
    there = sweep_folders(
        folders, SPECS, engine="processes:2", journal=tmp_path / "kept", device="cpu", progress=False, **GRID
    )
    assert there.rows == here.rows and there.formula == here.formula
    monkeypatch.setattr("brickwork.algebra.sweep_jobs.sweep", None)  # would fail if a row were computed again
    again = sweep_folders(
        folders, SPECS, engine="inline", journal=tmp_path / "kept", device="cpu", progress=False, **GRID
    )
    assert again.rows == here.rows


def test_other_weights_are_another_sweep(folders, tmp_path):
    options = {"engine": "inline", "journal": tmp_path / "kept", "device": "cpu", "progress": False, **GRID}
    first = sweep_folders(folders, SPECS, **options)
    store.save(store.load(folders["B"]), tmp_path / "A")
    other = sweep_folders({"A": tmp_path / "A", "B": folders["B"]}, SPECS, **options)
    assert other.rows != first.rows


def test_a_row_that_fails_is_named(folders):
    with pytest.raises(JobFailed, match=r"β = 0.*nosuchset"):
        sweep_folders(folders, ["nosuchset"], engine="inline", device="cpu", progress=False, **GRID)


def test_rows_that_fail_do_not_keep_others_from_being_measured(folders, tmp_path, monkeypatch):
    """All that can be is kept, what is missing is named with its cause, and the next call measures only that."""
    options = {"engine": "inline", "journal": tmp_path / "kept", "device": "cpu", "progress": False}
    grid = {"alpha": [0.0, 1.0], "beta": [0.0, 0.25, 0.5, 1.0]}
    real, asked = sweep_jobs.sweep, []

    def counting(*args, options, **rest):
        asked.extend(options.beta)
        return real(*args, options=options, **rest)

    def failing(*args, options, **rest):
        if options.beta[0] in (0.0, 0.5):
            asked.extend(options.beta)
            raise RuntimeError("out of memory\nat some address")
        return counting(*args, options=options, **rest)

    monkeypatch.setattr(sweep_jobs, "sweep", failing)
    with pytest.raises(JobFailed, match=r"2 of 4 rows .*β = 0 \(.*\), β = 0.5 \(.*the same call measures only these"):
        sweep_folders(folders, SPECS, **options, **grid)
    assert asked == grid["beta"]
    missing = json.loads((tmp_path / "kept" / "missing.json").read_text())["missing"]
    assert [row["name"] for row in missing] == ["β = 0", "β = 0.5"] and "at some address" in missing[0]["cause"]
    asked.clear()
    monkeypatch.setattr(sweep_jobs, "sweep", counting)
    assert len(sweep_folders(folders, SPECS, **options, **grid).rows) == 16
    assert asked == [0.0, 0.5] and not (tmp_path / "kept" / "missing.json").exists()


def test_a_command_of_which_a_row_fails_writes_no_map(folders, tmp_path, run, monkeypatch):
    monkeypatch.setattr(Cells, "accuracies", failing_once(Cells.accuracies))
    asked = ["sweep", *folders.values(), "--data", SPECS[0], "--alpha", "0,1", "--cells", "1", "--device", "cpu"]
    asked += ["--journal", tmp_path / "journal", "--out", tmp_path / "out"]
    code, _, complaint = run(*asked)
    assert code == 1 and "1 of 4 cells of this sweep failed: α = 1, β = 0 on digits:A@5" in complaint
    assert not (tmp_path / "out").exists()
    lines = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    assert len(lines) == 1 + 4 and lines[2] == {"missing": [1.0, 0.0, SPECS[0]], "cause": "RuntimeError: no memory"}
    measured = []
    monkeypatch.setattr(Cells, "accuracies", noting(Cells.accuracies, measured))
    code, _, complaint = run(*asked)
    assert code == 0, complaint
    assert measured == [[(1.0, 0.0)]]


def failing_once(real):
    def accuracies(self, group, *rest):
        if group == [(1.0, 0.0)]:
            raise RuntimeError("no memory\nfor this")
        return real(self, group, *rest)

    accuracies.real = real
    return accuracies


def noting(real, measured):
    def accuracies(self, group, *rest):
        measured.append(list(group))
        return real.real(self, group, *rest)

    return accuracies


def test_on_the_command_line(folders, tmp_path, run):
    asked = ["sweep", *folders.values(), "--data", SPECS[0], "--alpha", "0,1", "--device", "cpu", "--json"]
    kept = ["--engine", "processes:1", "--journal", tmp_path / "j", "--out", tmp_path / "one"]
    code, one, complaint = run(*asked, *kept)
    assert code == 0, complaint
    _, two, _ = run(*asked, "--out", tmp_path / "two")
    assert json.loads(one)["rows"] == json.loads(two)["rows"]
    for engine, word in (("cluster", "engine is 'cluster'"), ("processes:0", "processes[:N]")):
        code, _, complaint = run(*asked, "--engine", engine, "--out", tmp_path / "three")
        assert code == 2 and word in complaint and not (tmp_path / "three").exists()


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Two networks of somebody's own architecture, and the name of it, which the working folder makes sense of."""
    (tmp_path / "own_net_for_sweeps.py").write_text(
        "from torch import nn\n\n\ndef net(num_classes=4):\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, num_classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate("AB"):
        store.save(zoo.build("own_net_for_sweeps:net", seed=seed), tmp_path / name)
    yield {name: tmp_path / name for name in "AB"}, "own_net_for_sweeps:net", tmp_path / "own_net_for_sweeps.py"
    sys.modules.pop("own_net_for_sweeps", None)


def test_a_network_of_ones_own_is_built_in_other_processes(run, own, tmp_path):
    folders, arch, _ = own
    asked = ("sweep", *folders.values(), "--data", "digits:0-3@5", "--alpha", "0,1", "--beta", "0", "--arch", arch)
    for engine in ("inline", "processes:1"):
        code, _, error = run(*asked, "--engine", engine, "--device", "cpu", "--out", tmp_path / engine[:6])
        assert code == 0, error
    there, here = ((tmp_path / name / "sweep.csv").read_text() for name in ("proces", "inline"))
    assert there == here and len(here.splitlines()) == 3


def test_rows_are_computed_again_where_the_code_is_another(own, tmp_path):
    folders, arch, file = own
    how = {"arch": [arch], "engine": "inline", "journal": tmp_path / "kept", "device": "cpu", "progress": False}
    keys = []
    for more in ("", "", "\nSIZE = 3\n"):
        file.write_text(file.read_text() + more)
        sweep_folders(folders, ["digits:0-3@5"], alpha=[0.0], beta=[0.0], **how)
        keys.append(len(list((tmp_path / "kept").glob("*.json"))))
    assert keys == [1, 1, 2]
    with pytest.raises(RequestError, match="other processes import it by name"):
        sweep_folders(folders, ["digits:0-3@5"], **{**how, "arch": [dict]}, **GRID)
