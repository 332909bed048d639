"""The studies of paper 3 on digits: what the closed form and the paper's own way come to at smoke size."""

import itertools

import numpy as np
import pytest

from brickwork import data
from brickwork_lab import studies
from brickwork_lab.studies import transplant_classify, transplant_segment
from brickwork_lab.studies.registry import averaged
from brickwork_lab.studies.transplant_ways import SAMPLES, trials_of
from brickwork_lab.studies.transplanting import held_apart


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("networks"))  # teachers are trained once for all studies


def rows(name, folder, **options):
    found = list(studies.get(name).run(full=False, device="cpu", progress=False, networks=folder, **options))
    told = {"what", "paper", "ours", "whole", "held_out", "labels", "unlabelled", "adapter", "steps", "seed"}
    assert all(told <= row.keys() for row in found)
    for row in found:  # a row that learns from no label is not called by a number of samples
        assert (row["labels"] == 0) == ("no label" in row["what"] or "unlabelled images" in row["what"]), row["what"]
    return {row["what"]: row for row in found}


def test_insert_adapter(folder):
    found = rows("insert-adapter", folder, picks=("no label, random start", "closed-form", "20 samples, random start"))
    for layers in (1, 3):
        row = found[f"insert {layers} conv, no label, closed-form, identity start"]
        assert row["ours"] == pytest.approx(row["whole"], abs=1.0)  # the teacher's own error, without an image
        paper = found[f"insert {layers} conv, no label, back-distill, random start"]
        assert paper["ours"] < 25  # after forty steps; chance is 50
        assert (paper["steps"], row["steps"], row["unlabelled"]) == (40, 0, 0)
        falling = found[f"insert {layers} conv, no label, back-distill, falling rate, random start"]
        assert falling["steps"] == 80 and falling["ours"] <= paper["ours"]
        direct = found[f"insert {layers} conv, 20 samples, direct-learn, random start"]
        taught = found[f"insert {layers} conv, 20 samples, back-distill, random start"]
        assert direct["steps"] == taught["steps"] == 40 and max(direct["ours"], taught["ours"]) < 25
        assert direct["adapter"] == f"{layers} of 3×3" and direct["labels"] == 20


def test_several_seeds_make_one_row(folder):
    pick = "insert 1 conv, no label, closed-form"
    (row,) = rows("insert-adapter", folder, picks=(pick,), seeds=2).values()
    assert (row["seeds"], row["seed"], len(row["ours_each"])) == (2, 0, 2)
    assert row["ours"] == pytest.approx(np.mean(row["ours_each"]), abs=1e-3)
    (alone,) = rows("insert-adapter", folder, picks=(pick,)).values()
    assert alone["ours"] == row["ours_each"][0] and "seeds" not in alone


def test_a_row_is_there_before_the_next_is_computed():
    def run(number):
        yield {"what": "first", "ours": number}
        raise AssertionError("the second row was asked for")

    assert next(averaged([run(1.0), run(2.0)]))["ours"] == 1.5


def test_transplant_to_another_category(folder):
    found = rows("transplant-classify", folder)
    best = found["20 samples, closed-form+distill, 3×3 and blends at temperature 4, identity start"]
    direct = found["20 samples, direct-learn, 3×3 and views, identity start"]
    assert best["ours"] < min(found["20 samples, direct-learn, identity start"]["ours"], direct["ours"])
    assert (best["steps"], best["adapter"]) == (direct["steps"], direct["adapter"])  # like beside like
    assert best["labels"] == direct["labels"] == 20 and best["unlabelled"] > 100 and direct["unlabelled"] == 0
    for start in ("random", "identity"):  # as many steps for both methods, from both starts
        ways = [found[f"20 samples, {way}, {start} start"] for way in ("direct-learn", "back-distill")]
        assert [row["steps"] for row in ways] == [40, 40]
    assert found["all labels, direct-learn, 3×3 and views, identity start"]["labels"] > 100
    assert found["20 samples, jacobian, identity start"]["ours"] < 50


def test_transplant_to_a_module_of_all_others(folder):
    ways = ("20 samples, direct-learn, random start", "no label, closed-form+distill, identity start")
    found = rows("transplant-dissimilar", folder, picks=ways)
    direct, ours = found[ways[0]], found[ways[1]]
    assert ours["ours"] < direct["ours"] and ours["labels"] == 0 and set(direct["errors"]) == {"6"}


def test_transplant_segment(folder):
    found = rows("transplant-segment", folder)
    ours, direct = (
        found[f"segment, 4 samples, {way} start"] for way in ("closed-form+distill, identity", "direct-learn, random")
    )
    assert ours["ours"] > direct["ours"] and ours["iou"] > direct["iou"]
    assert (direct["steps"], direct["adapter"], direct["unlabelled"]) == (40, "1 of 1×1", 0)
    long = found["segment, no label, distill, 3×3 and views, identity start"]
    assert (long["steps"], long["adapter"]) == (40, "3 of 3×3") and long["unlabelled"] > 100
    assert found["segment, 4 unlabelled images, distill, random start"]["unlabelled"] == 4


def test_segmentation_to_other_groups(folder):
    found = rows(
        "transplant-segment-dissimilar", folder, picks=("4 samples, direct-learn, random start", "closed-form")
    )
    assert set(found["segment, no label, closed-form, identity start"]["pixels"]) == {"six"}
    assert len(found) == 2


def test_every_cell_of_the_tables_has_a_row():
    """Tables 2, 3 and 4: each number of the paper stands beside a row, from both starts where they have one."""
    classify = [(transplant_classify.SIMILAR, 2), (transplant_classify.GENERIC, 2)]
    segment = [(transplant_segment.SIMILAR, 3), (transplant_segment.GENERIC, 3)]
    for ways, tables in ((transplant_classify.WAYS, classify), (transplant_segment.WAYS, segment)):
        known = {(amount, way.column) for amount, way in trials_of(ways)}
        for table, columns in tables:
            assert {(a, c) for a, c in itertools.product(table, range(columns)) if table[a][c]} <= known
    inserted = {(amount, way.column) for amount, way in trials_of(transplant_classify.INSERT_WAYS)}
    assert {(0, 1), *itertools.product(SAMPLES, (0, 1))} <= inserted


def test_nothing_is_learned_from_held_out_images():
    whole = data.load("digits")
    seen, held = held_apart(whole)
    rows = [{image.tobytes() for image in images} for images in (seen.train_images, held.test_images)]
    assert len(seen.train_images) + len(held.test_images) == len(whole.train_images)
    assert not rows[0] & rows[1] and held.train_images is seen.train_images
    assert set(held.test_labels) == set(range(10))
