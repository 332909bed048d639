"""`brickwork study dependency`: the smoke run's shape, and that real logits are looked for where they should be."""

import json
from pathlib import Path

import numpy as np
import pytest

from brickwork.errors import BadFile, UnknownName
from brickwork_lab import studies
from brickwork_lab.lab import SMOKE, Lab
from brickwork_lab.studies import dependency as module
from brickwork_lab.studies import dependency_readings as readings

ROOT = Path(__file__).parents[3]


def test_smoke_on_digits(monkeypatch):
    monkeypatch.setitem(SMOKE, "epochs", 3)
    # the lasso's solver is tested elsewhere, and takes 20 s to compile where nothing did so before
    ours = "ours: decision, greedy"
    estimators = {module.PRINTED: {"loss": "plain", "selection": "greedy"}, ours: module.ESTIMATORS[ours]}
    monkeypatch.setattr(module, "ESTIMATORS", estimators)
    monkeypatch.setattr(module, "PICKED", 2)
    rows = list(studies.get("dependency").run(full=False, device="cpu", progress=False))
    assert len(rows) == 5 * 3  # two estimators, and picked classes of the paper's
    for row in rows:
        assert {"what", "ours", "abs_error", "own_rel_error", "accuracy_after", "positive_after"} <= row.keys()
        assert row["fitted_on"] + row["measured_on"] == 359 and row["dependencies"] <= 4 and row["paper"] is None
        assert row["kkt"] is None or row["kkt"] <= 1e-6
        change = row["accuracy_after"] - row["accuracy_before"]
        assert row["total_change"] == pytest.approx(change, abs=2e-3)
    by_name = {row["what"]: row for row in rows}
    plain, better = (by_name[f"digits within lenet 1, {e}, at most 4 others"] for e in estimators)
    picked = by_name[f"digits within lenet 1, {module.PRINTED}, at most 4 others; 2 picked classes"]
    assert better["ours"] > plain["ours"] and (plain["classes"], picked["classes"]) == (10, 2)


def test_classes_are_picked_where_the_network_is_right():
    labels = np.repeat(np.arange(3), 40)
    logits = np.eye(3)[labels] * 5 + 0.1 * np.random.default_rng(0).normal(size=(120, 3))
    logits[labels == 2] = logits[labels == 2][:, [2, 1, 0]]  # class 2 is never right
    rows = (logits, labels, logits)
    options = {"max_dependencies": 1, "selection": "greedy"}
    found, errors = module.fit_split(rows, False, 0.5, 0, options)
    assert np.isinf(errors).tolist() == [False, False, True]
    assert found.facts["rows_fitted"] == found.facts["rows_measured"] == 60


def test_the_papers_cells():
    cells = module.paper_cells("within resnet18 1", False)
    assert (cells["paper"], cells["paper_rel_error_range"]) == (85.7, [6.8, 29.7]) and "paper_range" not in cells
    assert module.paper_cells("a → resnet18 1", True)["paper_range"] == [94.0, 97.9]


def test_requests():
    with pytest.raises(UnknownName, match="did you mean 'imagenet'"):
        list(module.dependency(Lab(True), sets=("imagenett",)))


def test_missing_logits_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("BRICKWORK_DATA", str(tmp_path))
    with pytest.raises(BadFile, match=r"efficientnet_lite0 are not at .*BRICKWORK_DATA"):
        list(module.dependency(Lab(True)))


def test_readings_on_digits(monkeypatch):
    monkeypatch.setitem(SMOKE, "epochs", 3)
    few = {readings.PRINTED: readings.without_penalty, readings.OWN: readings.own_images_alone}
    monkeypatch.setattr(readings, "READINGS", few)
    rows = list(studies.get("dependency-readings").run(full=False, device="cpu", progress=False))
    assert len(rows) == 2 * 2 * 3 and all(row["paper"] is None for row in rows)
    own = [row for row in rows if row["what"].endswith(readings.OWN)]
    assert all(row["others"] <= readings.FEW and row["own_rel_error"] < row["rel_error"] for row in own)


def test_a_reading_fits_what_it_says():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)), np.arange(60) % 4
    coef = readings.without_penalty(x)
    for i in range(4):
        others = [j for j in range(4) if j != i]
        assert coef[i, others] == pytest.approx(np.linalg.lstsq(x[:, others], x[:, i], rcond=None)[0], abs=1e-6)
    x[y == 0, 0] = 3 * x[y == 0, 1]  # true of class 0's own images and of no other's
    own = readings.own_images_alone(x.astype(np.float32), y)[0]
    assert own[1] == pytest.approx(3, abs=0.15) and abs(readings.without_penalty(x)[0, 1]) < 2


def test_the_readme_says_what_the_printed_estimator_keeps():
    rows = json.loads((ROOT / "studies/results/dependency.json").read_text(encoding="utf-8"))["rows"]
    printed = [r for r in rows if module.PRINTED in r["what"] and "class itself" not in r["what"]]
    imagenet, cifar = ([r["ours"] for r in printed if r["what"].startswith(s)] for s in ("imagenet", "cifar100"))
    assert len(imagenet) == 16 and max(imagenet) == 0 and len(cifar) == 4 and max(cifar) <= 1
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "keeps 0 % of a class's images on ImageNet and at most 1 % on CIFAR-100" in readme
