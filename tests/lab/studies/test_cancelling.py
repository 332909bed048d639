"""The study of the paper's second-order term on digits: what must hold of it whatever the network."""

from __future__ import annotations

import pytest

from brickwork_lab import studies


@pytest.fixture(scope="module")
def rows():
    found = list(studies.get("cancel").run(full=False, device="cpu", progress=False, seeds=2))
    return {row["what"]: row for row in found}


def test_one_step_is_told_by_the_secant_and_less_and_less_by_the_term(rows):
    near, far = (rows[f"lenet, one step of {rate}: error of the paper's term"] for rate in ("1e-06", "0.1"))
    assert far["secant"] < 1e-6 and near["ours"] < 10 < far["ours"]
    assert near["d_of_g2"] < far["d_of_g2"]
    assert len(near["ours_each"]) == near["seeds"] == 2


def test_adding_up_forgets_less_than_the_sequence(rows):
    end = rows["lenet, 60 steps of 0.1: the first task, added up − in sequence"]
    assert end["ours"] == pytest.approx(end["added_up"] - end["in_sequence"], abs=0.02)
    assert end["in_sequence"] < end["added_up"] < end["alone"]
    assert end["second_in_sequence"] > end["second_added_up"]
