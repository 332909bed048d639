"""`brickwork bench covlasso` on tiny problems: everybody solves the same; no time is asserted."""

import pytest

from brickwork.errors import BadFile, RequestError
from brickwork_lab.benchmarks.covlasso import WHO, covlasso

TINY = {"data": "synthetic", "rows": 300, "classes": 20, "path": 4, "separate": False}


def test_everybody_reaches_the_same_objective():
    found = covlasso(**TINY)
    assert {row["who"] for row in found.rows} >= set(WHO)
    assert {row["task"] for row in found.rows} == {"one λ", "path of 4"}
    for row in found.rows:
        assert row["above_best"] <= 1e-6 and row["nonzeros"] > 0 and row["cpu_s"] > 0
    assert "scikit-learn Gram CD / brickwork: cpu_s, one λ, synthetic" in found.ratios


def test_wrong_requests(monkeypatch, tmp_path):
    for options, message in (({"data": "fake"}, "real, synthetic or both"), ({"repeat": 0}, "repeat ≥ 1")):
        with pytest.raises(RequestError, match=message):
            covlasso(**(TINY | options))
    monkeypatch.setattr("brickwork.dependencies.sources.SHARED", "no_such_folder")
    with pytest.raises(BadFile, match="are not there"):
        covlasso(data="real")
