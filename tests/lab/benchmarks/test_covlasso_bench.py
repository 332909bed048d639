"""`brickwork bench covlasso` on tiny problems: everybody solves the same; no time is asserted."""

import numpy as np
import pytest

from brickwork.errors import BadFile, RequestError
from brickwork_lab.benchmarks.covlasso import WHO, covlasso, synthetic

TINY = {"data": "synthetic", "rows": 300, "classes": 20, "path": 4, "separate": False}


def test_everybody_reaches_the_same_objective():
    found = covlasso(**TINY)
    assert {row["who"] for row in found.rows} >= set(WHO)
    assert {row["task"] for row in found.rows} == {"one λ", "path of 4"}
    for row in found.rows:
        assert row["above_best"] <= 1e-6 and row["nonzeros"] > 0 and row["cpu_s"] > 0
    assert "scikit-learn Gram CD / brickwork: cpu_s, one λ, synthetic" in found.ratios


def test_wrong_requests(monkeypatch, tmp_path):
    for options, message in (
        ({"data": "fake"}, "real, synthetic or both"),
        ({"repeat": 0}, "repeat must be 1 or more, not 0"),
        ({"path": 1}, "path must be 2 or more, not 1"),
        ({"smallest": 1.0}, "smallest must lie between 0 and 1"),
    ):
        with pytest.raises(RequestError, match=message):
            covlasso(**(TINY | options))
    monkeypatch.setenv("BRICKWORK_DATA", str(tmp_path))
    with pytest.raises(BadFile, match=r"are not at .*BRICKWORK_DATA"):
        covlasso(data="real")


def test_without_real_logits_made_ones_are_measured_and_named_so(monkeypatch, tmp_path):
    monkeypatch.setenv("BRICKWORK_DATA", str(tmp_path))
    result = covlasso(**(TINY | {"data": "both", "path": 2}))
    assert {row["data"] for row in result.rows} == {"synthetic"}
    assert "made logits only" in result.to_dict("covlasso")["remarks"][0]["remark"]


def test_real_logits_are_found_below_the_folder_of_data(monkeypatch, tmp_path):
    (tmp_path / "imagenet_logits").mkdir()
    logits = np.concatenate(list(synthetic(300, 20)))
    np.savez(tmp_path / "imagenet_logits" / "efficientnet_lite0.npz", logits=logits)
    monkeypatch.setenv("BRICKWORK_DATA", str(tmp_path))
    result = covlasso(**(TINY | {"data": "both", "path": 2}))
    assert {row["data"] for row in result.rows} == {"real", "synthetic"} and not result.tables
