"""The study of weight search on digits: the shape of its table in seconds, runs found again, and wrong requests."""

from __future__ import annotations

import json

import pytest

from brickwork.continual import parse
from brickwork.errors import UnknownName
from brickwork_lab import studies
from brickwork_lab.studies.weight_search import PARTS, goals_of


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """Trained once for all."""
    return str(tmp_path_factory.mktemp("networks"))


def rows_of(networks, **options):
    run = studies.get("weight-search").run
    found = list(run(full=False, device="cpu", progress=False, networks=networks, **options))
    json.dumps(found, allow_nan=False)
    assert all({"what", "paper", "ours", "seed"} <= row.keys() and row["paper"] is None for row in found)
    by_name = {row["what"]: row for row in found}
    assert len(by_name) == len(found)
    return by_name


def test_smoke(networks):
    found = rows_of(
        networks,
        picks=(
            "finetune: one network a task",
            "sequential",
            "probe",
            "pool: weight search",
            "encode: Gram metric",
            "encode: nearest in weight",
        ),
    )
    whole, pool = found["finetune: one network a task"], found["pool: weight search"]
    assert whole["ours"] > 90 and pool["ours"] > 85 and whole["tasks"] == 3
    assert pool["mb_per_task"] < 0.05 * whole["mb_per_task"] and pool["mb"] < whole["mb"]
    assert (
        pool["forgetting"] == whole["forgetting"] == 0 < found["sequential: one network, task after task"]["forgetting"]
    )
    assert {"encode: Gram metric", "encode: nearest in weight", "probe: linear probe"} < found.keys()


def test_runs_are_found_again(networks, monkeypatch):
    first = rows_of(networks, picks=("probe",))
    monkeypatch.setattr("brickwork.continual.frozen.Probe.learn", lambda *_: pytest.fail("learned again"))
    assert rows_of(networks, picks=("probe: linear probe",)) == first


def test_every_part_has_a_name_of_its_own_and_a_method_that_exists():
    titles = [f"{part.group}: {part.name}" for part in PARTS]
    assert len(set(titles)) == len(titles)
    for part in PARTS:
        assert len(parse(part.method)) == 1
    papers = {f"{p.group}: {p.name}": (p.paper, p.paper_mb) for p in PARTS if p.paper}
    assert papers["initialisation: random"] == (68.7, 32.0) and papers["size: 512 kernels a layer"] == (72.5, 34.1)
    assert "seeds: 1994: weight search" not in papers  # the paper's are of another rate
    assert papers["optimizer: adam 0.01"] == (71.0, 25.4)


def test_tasks_of_similar_classes_are_named_by_their_group(networks):
    (row,) = rows_of(networks, picks=("superclass: linear probe",)).values()
    assert row["scene"] == "superclass" and row["tasks"] == 2 and len(row["each"]) == 2


def test_the_papers_numbers_of_superclasses_are_means_of_its_three_seeds():
    parts = {p.name: p for p in PARTS if p.group == "superclass"}
    assert all(p.scene == "superclass" and p.seeds == 3 for p in parts.values())
    assert parts["weight search as in the paper, sgd 0.001"].paper == round((79.8 + 79.7 + 79.3) / 3, 2)
    assert parts["weight search as in the paper, adam 0.01"].paper == round((71.0 + 71.3 + 71.9) / 3, 2)


def test_an_unknown_part_is_refused():
    with pytest.raises(UnknownName, match="'pol'"):
        list(studies.get("weight-search").run(full=False, device="cpu", progress=False, picks=("pol",)))


def test_goals_are_told_from_rows():
    def row(what, ours, mb_per_task, mb, method):
        return {
            "what": what,
            "ours": ours,
            "mb_per_task": mb_per_task,
            "mb": mb,
            "tasks": 20,
            "scene": "split",
            "forgetting": 0.0,
            "method": method,
        }

    rows = [
        row("finetune: average of three", 95.6, 42.6, 852.0, "finetune(soup=3)"),  # not what others are held against
        row("finetune: whole", 95.0, 42.6, 852.0, "finetune"),
        row(
            "pool: large", 94.9, 0.5, 11.0, "pool(a)"
        ),  # more than 0.4 MB a task, so not in question for the first goal
        row("pool: small", 94.6, 0.1, 3.0, "pool(b)"),
        row("lora: rank 4", 94.8, 0.3, 28.0, "lora"),
        row("lora: rank 1", 94.7, 0.1, 5.0, "lora(rank=1)"),
        row("bn-head: bn", 93.9, 0.04, 22.0, "bn-head"),
    ]
    found = {r["what"].removeprefix("goal: "): (r["ours"], r["met"], r["method"]) for r in goals_of(rows)}
    near = "within 0.5 points of one network a task, at 0.4 MB all included"
    assert found[near] == (-0.4, True, "pool(b)")
    assert found["points ahead of lora at no more megabytes"] == (0.1, True, "pool(a)")
    assert found["points ahead of lora(rank=1) at no more megabytes"] == (-0.1, False, "pool(b)")
    assert found["points ahead of bn-head at 0.1 MB a task"] == (0.7, False, "pool(b)")
    assert found["points by which an earlier task changed"][1] and len(found) == 5
    assert list(goals_of([])) == []
