"""Paper 2's tables: every entry is there, both ways stand at equal cost, and runs go in step."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from brickwork_lab.lab import Lab
from brickwork_lab.studies import registry, two_ways
from brickwork_lab.studies.two_ways import PAPER, SAME, THEIRS

SETS = ("cifar10", "cifar100", "tiny_imagenet")
CASES = {f"{source} {arch}" for source, arch in itertools.product(SETS, two_ways.ARCHS)}


@pytest.mark.parametrize(
    ("table", "entries", "numbers"),
    [
        ("disassemble", 36, 3),  # Table 1
        ("assemble", 36, 3),  # Table 2
        ("treat", 9, 3),  # Table 3
        ("compress_table_4", 9, 3),
        ("compress", 9, 5),  # Table 6, which corrects Table 4
        ("compress_others", 2, 4),  # Table 7
    ],
)
def test_every_entry_of_a_table(table, entries, numbers):
    assert len(PAPER[table]) == entries and {len(row) for row in PAPER[table].values()} == {numbers}
    missing = [key for key, row in PAPER[table].items() if None in row]
    assert missing == (["C_SGD"] if table == "compress_others" else [])  # no share of parameters in the paper
    assert all(0 <= number <= 100 for row in PAPER[table].values() for number in row if number is not None)
    if table != "compress_others":
        assert {" ".join(key.split()[:2]) for key in PAPER[table]} == CASES


def test_every_entry_of_distillation_and_growth():
    known = [sorted(row) for row in PAPER["distil"].values()]
    assert known == [["dr_kd", "lsr", "original", "ours"]] * 2 + [["ak", "original", "ours"]] * 4
    assert set(PAPER["increment"]) == set(two_ways.ARCHS)
    assert set(PAPER["increment_others"]) == {"il2m", "riemannian_walk", "rebalancing"}
    for row in PAPER["increment"].values():
        assert sorted(row) == ["average", "new", "original"] and {len(tasks) for tasks in row.values()} == {6}
    for row in PAPER["increment_others"].values():
        assert sorted(row) == ["average", "new"] and {len(tasks) for tasks in row.values()} == {6}


def test_numbers_that_the_paper_prints_twice_agree():
    for key, (before, *_) in PAPER["compress"].items():
        assert PAPER["treat"][key][0] == pytest.approx(before, abs=0.1)
        assert PAPER["compress_table_4"][key][0] == pytest.approx(before, abs=0.1)
    for arch, row in PAPER["increment"].items():  # the original of task 0, and that task 0 is tuned
        original, _, tuned, *_ = PAPER["compress"][f"cifar100 {arch}"]
        assert row["original"][0] == original and row["new"][0] == tuned
    for pick in ("0-9", "10-49"):
        assert PAPER["distil"][f"A{pick}"]["original"] == PAPER["disassemble"][f"cifar100 vgg16 {pick}"][0]


@pytest.mark.parametrize("source", SETS)
def test_four_picks_per_set(source):
    assert len(two_ways.picks_of("disassemble", source)) == len(two_ways.picks_of("assemble", source)) == 4


def test_the_papers_part_is_scored_on_sure_images_and_ours_costs_no_more():
    lab = Lab(False, device="cpu", progress=False)
    net, half = lab.network("lenet", "digits:A"), lab.data("digits:A")
    sure = two_ways._sure(lab, net, half, [2, 4])
    assert set(np.unique(sure.train_labels)) == {2, 4} and np.bincount(sure.train_labels).max() <= two_ways.PER_CLASS
    parts = two_ways.both_ways(lab, net, [2, 4], half)
    assert parts[THEIRS].options.repair == "none" and parts[THEIRS].used["scored"] == len(sure.train_labels)
    assert parts[SAME].macs <= parts[THEIRS].macs and parts[SAME].classes == parts[THEIRS].classes == ("2", "4")
    whole = two_ways.original(lab, "digits", [(net, ("0", "1")), (net, ("2",))])
    assert 90 <= whole <= 100


def test_seeds_go_in_step_and_leave_out_what_is_of_one_run():
    made = []

    def rows_of(lab):
        for name in "ab":
            made.append((name, lab.seed))
            yield {"what": name, "ours": float(lab.seed), "widths": {"x": lab.seed}, "note": f"seed {lab.seed}"}

    rows = two_ways.repeated(Lab(False), "digits", 2, rows_of)
    assert next(iter(rows)) == {"what": "a", "ours": 0.5, "ours_each": [0.0, 1.0], "seeds": 2}
    assert made == [("a", 0), ("a", 1)]  # the second row of no run was asked for yet
    alone = list(two_ways.repeated(Lab(False), "digits", None, rows_of))
    assert [row["widths"] for row in alone] == [{"x": 0}, {"x": 0}]


def test_averaged_takes_dictionaries_key_by_key():
    runs = [iter([{"what": "a", "ours": 1.0, "kept": {"x": x, "y": 2}}]) for x in (1, 2)]
    assert next(registry.averaged(runs))["kept"] == {"x": 1.5, "y": 2.0}
