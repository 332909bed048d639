"""The studies of paper 3 on digits: what the closed form and the paper's own way come to at smoke size."""

import pytest

from brickwork_lab import studies


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("networks"))  # teachers are trained once for all studies


def rows(name, folder):
    found = list(studies.get(name).run(full=False, device="cpu", progress=False, networks=folder))
    assert all({"what", "paper", "ours", "whole", "seed"} <= row.keys() for row in found)
    return {row["what"]: row for row in found}


def test_insert_adapter(folder):
    found = rows("insert-adapter", folder)
    for layers in (1, 3):
        row = found[f"insert {layers} conv, 0 samples, closed-form, identity start"]
        assert row["ours"] == pytest.approx(row["whole"], abs=1.0)  # the teacher's own error, without an image
        paper = found[f"insert {layers} conv, 0 samples, back-distill, random start"]
        assert paper["ours"] < 25  # after forty steps; chance is 50
        assert (paper["steps"], row["steps"], row["unlabelled"]) == (40, 0, 0)
        direct = found[f"insert {layers} conv, 20 samples, direct-learn, random start"]
        taught = found[f"insert {layers} conv, 20 samples, back-distill, random start"]
        assert direct["steps"] == taught["steps"] == 40 and max(direct["ours"], taught["ours"]) < 25
        assert direct["adapter"] == f"{layers} of 3×3"


@pytest.mark.parametrize("name", ["transplant-classify", "transplant-dissimilar"])
def test_transplant(name, folder):
    found = rows(name, folder)
    best = found["20 samples, closed-form+distill, identity start"]
    assert best["ours"] < found["20 samples, direct-learn, identity start"]["ours"]
    assert found["20 samples, direct-learn, random start"]["steps"] == 40  # as many steps as the paper's way has
    assert found["20 samples, back-distill, random start"]["steps"] == 40


def test_transplant_segment(folder):
    found = rows("transplant-segment", folder)
    ours, direct = (
        found[f"segment, 4 samples, {way} start"] for way in ("closed-form+distill, identity", "direct-learn, random")
    )
    assert ours["ours"] > direct["ours"] and ours["iou"] > direct["iou"]
    assert (direct["steps"], direct["adapter"], direct["unlabelled"]) == (40, "1 of 1×1", 0)
    long = found["segment, 4 samples, distill, 3×3 and views, identity start"]
    assert (long["steps"], long["adapter"]) == (40, "3 of 3×3") and long["unlabelled"] > 100
