"""`brickwork study dependency`: the smoke run's shape, and that real logits are looked for where they should be."""

import pytest

from brickwork.errors import BadFile, UnknownName
from brickwork_lab import studies
from brickwork_lab.lab import SMOKE, Lab
from brickwork_lab.studies import dependency as module


def test_smoke_on_digits(monkeypatch):
    monkeypatch.setitem(SMOKE, "epochs", 3)
    # the lasso's solver is tested elsewhere, and takes 20 s to compile where nothing did so before
    plain = {"loss": "plain", "selection": "greedy"}
    monkeypatch.setattr(module, "ESTIMATORS", {"plain": plain, "decision": module.ESTIMATORS["decision"]})
    rows = list(studies.get("dependency").run(full=False, device="cpu", progress=False))
    assert len(rows) == 5 * len(module.ESTIMATORS)
    for row in rows:
        assert {"what", "paper", "ours", "total_change", "rel_error_quantiles", "positive_after"} <= row.keys()
        assert row["fitted_on"] + row["measured_on"] == 359 and row["dependencies"] <= 4
        assert row["kkt"] is None or row["kkt"] <= 1e-6
    by_name = {row["what"]: row for row in rows}
    plain, ours = (by_name[f"digits within lenet 1, {e}, at most 4 others"] for e in ("plain", "decision"))
    assert ours["ours"] > plain["ours"]


def test_requests():
    with pytest.raises(UnknownName, match="did you mean 'imagenet'"):
        list(module.dependency(Lab(True), sets=("imagenett",)))


def test_missing_logits_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("BRICKWORK_DATA", str(tmp_path))
    with pytest.raises(BadFile, match=r"efficientnet_lite0 are not at .*BRICKWORK_DATA"):
        list(module.dependency(Lab(True)))
