"""The studies of paper 1 on digits: the shape of its tables in seconds, and requests that are wrong."""

from __future__ import annotations

import json
from importlib import resources

import numpy as np
import pytest
import torch

from brickwork.errors import UnknownName
from brickwork_lab import studies
from brickwork_lab.lab import Lab
from brickwork_lab.studies import weight_addition
from brickwork_lab.studies.forgetting import TwoTasks
from brickwork_lab.studies.registry import averaged
from brickwork_lab.studies.weight_addition import plain_pixels


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """Trained once for all."""
    return str(tmp_path_factory.mktemp("networks"))


def rows_of(name, networks, **options):
    found = list(studies.get(name).run(full=False, device="cpu", progress=False, networks=networks, **options))
    assert all({"what", "paper", "ours", "seed"} <= row.keys() for row in found)
    assert all(row["paper"] is None for row in found)  # its numbers are of other images
    by_name = {row["what"]: row for row in found}
    assert len(by_name) == len(found)
    json.dumps(found)
    return by_name


def test_what_was_learned_is_worth_something_elsewhere(networks):
    """Table 1: θ_i + αg is little at α = 1/2, more at 1, and about what g is alone at 5."""
    found = rows_of("gradient-assignment", networks)
    assert found["small, train: θ_A"]["ours"] == 1
    alone = found["small, train: g alone"]["ours"]
    half, once, five = (found[f"small, train: random θ_i + αg, α={a}"]["ours"] for a in ("0.5", "1", "5"))
    assert half < 0.4 < once < five and alone > 0.6 and abs(five - alone) < 0.2
    assert len(found["small, train: random θ_i + αg, α=1"]["each"]) == 5
    ordered = found["small, train: random θ_i + αg, re-basin first, α=1"]["ours"]
    assert ordered > once
    assert "small, test: trained θ_i + αg, α=5" in found


def test_a_whole_network_is_worth_more_than_what_it_learned(networks):
    found = rows_of("fusion", networks)
    assert found["small, train: random θ_i + αθ_A, α=1"]["ours"] > 0.6
    assert found["small, train: random θ_i + αθ_A, α=5"]["ours"] > 0.9
    one = "θ_A and a trained θ_i in one network: "
    mean, matched, apart = (
        found[one + w] for w in ("the mean of both", "responses matched", "responses matched, own heads")
    )
    assert mean["ours"] < matched["ours"] < apart["ours"]
    assert apart["task"] > 0.65 and apart["other"] > 0.8


@pytest.fixture(scope="module")
def forgotten(networks):
    return rows_of("forgetting", networks, picks=("paper",))


def test_the_first_task_is_forgotten(forgotten):
    assert forgotten["paper: A alone"]["ours"] > 90 and forgotten["paper: B alone"]["ours"] > 90
    for order, lost, kept in (("A→B", "A", "B"), ("B→A", "B", "A")):
        assert forgotten[f"paper: {order}, test, task {lost}"]["ours"] < 50
        assert forgotten[f"paper: {order}, test, task {kept}"]["ours"] > 90


def test_merging_keeps_both_tasks(forgotten):
    raw = forgotten["paper: fuse, the paper's way, balanced"]
    matched, heads = (forgotten[f"paper: responses matched{w}"] for w in ("", ", own heads"))
    assert raw["ours"] == min(raw["A"], raw["B"]) and raw["ours"] < matched["ours"]
    assert matched["ours"] > 85 and heads["ours"] > 92
    assert forgotten["paper: mean, trained towards the networks' answers"]["ours"] > 80


def test_grids_stand_beside_the_papers(forgotten):
    grid = forgotten["paper: Table 6, fuse, large, test, task A"]
    assert np.shape(grid["grid"]) == (2, 2) and grid["ours"] in np.ravel(grid["grid"])
    text = resources.files("brickwork_lab.studies").joinpath("paper1.json").read_text(encoding="utf-8")
    tables = json.loads(text)
    assert len({name for t in tables for name in t["tables"]}) == 20
    for table in tables:
        for who in "AB":
            assert np.shape(table[who]) == (len(table["values"]),) * 2
    fine = next(t for t in tables if t["tables"][0] == "Table 6")
    k, j = fine["values"].index(3.0), fine["values"].index(2.0)
    assert (fine["A"][k][j], fine["B"][k][j]) == (63.08, 62.2)  # β = 3, α = 2, as the text has it


def test_a_pretrained_start_differs_in_its_trunk_alone(networks):
    tasks = TwoTasks(Lab(False, 0, "cpu", False, networks).in_colour())
    born, taught = (tasks.start(s).state_dict() for s in ("paper", "pretrained"))
    assert torch.equal(born["fc.weight"], taught["fc.weight"])
    assert not torch.equal(born["conv1.0.weight"], taught["conv1.0.weight"])


def test_a_held_head_is_the_starts_to_the_last_bit(networks):
    tasks = TwoTasks(Lab(False, 0, "cpu", False, networks).in_colour())
    zero = tasks.start("head held")
    for net in tasks.pair("head held", zero, "large").networks:
        assert torch.equal(net.fc.weight, zero.fc.weight) and torch.equal(net.fc.bias, zero.fc.bias)
        assert not torch.equal(net.conv1[0].weight, zero.conv1[0].weight)
        assert all(p.requires_grad for p in net.parameters())


def test_networks_are_found_again_by_what_they_were_trained_with(tmp_path):
    lab = Lab(False, 0, "cpu", False, str(tmp_path))
    few = lab.scaled("digits", "small")
    start = lab.start("lenet", 0, plain_pixels(few))
    one = lab.trained("x", start, few, {"epochs": 1, "lr": 0.1, "batch_size": 40})
    again = Lab(False, 0, "cpu", False, str(tmp_path))
    same = again.trained("x", start, few, {"epochs": 1, "lr": 0.1, "batch_size": 40})
    other = again.trained("x", start, few, {"epochs": 1, "lr": 0.2, "batch_size": 40})
    assert torch.equal(one.fc3.weight, same.fc3.weight) and not torch.equal(one.fc3.weight, other.fc3.weight)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["gradient-assignment", "fusion", "forgetting"])
def test_an_unknown_part_is_refused(name):
    with pytest.raises(UnknownName, match="'smal'"):
        list(studies.get(name).run(full=False, device="cpu", progress=False, picks=("smal",)))


def test_networks_trained_apart():
    """Merged in every way; what matches responses serves both tasks, and no other is near."""
    found = list(studies.get("merge-apart").run(full=False, device="cpu", progress=False))
    ours = {row["what"].removeprefix("digits: "): row["ours"] for row in found}
    assert max(ours["network 0 alone"], ours["network 1 alone"]) < 30  # each knows one task
    assert ours["match"] > 90 and all(ours["match"] >= rate for rate in ours.values())
    assert all(row["ours"] == min(row["a"], row["b"]) for row in found)
    assert {row["unlabelled"] for row in found if "alone" in row["what"]} == {0}


def test_a_recipe_is_searched_on_images_that_do_not_judge_it():
    found = list(studies.get("merge-search").run(full=False, device="cpu", progress=False, picks=("linear",)))
    assert [(row["what"], row["labels"], row["tries"]) for row in found] == [
        ("linear, its defaults", 0, 0),
        ("linear, searched", 179, 12),
    ]
    with pytest.raises(UnknownName, match="linear, task_arithmetic"):
        list(studies.get("merge-search").run(full=False, device="cpu", progress=False, picks=("mean",)))


def test_masks_of_tasks_keep_what_a_mean_loses():
    ours = {
        row["what"]: row["ours"] for row in studies.get("merge-masks").run(full=False, device="cpu", progress=False)
    }
    assert ours["each alone"] > ours["each with its mask"] > ours["mean of the weights, one network"] + 20


def test_seeds_share_no_start_and_no_draw():
    assert [run.seed for run in weight_addition._runs(Lab(True), 3)] == [0, 5, 10]  # five of them at the small scale
    assert [run.seed for run in weight_addition._runs(Lab(False, 7), None)] == [7]


def test_a_claim_of_the_paper_is_judged_by_the_mean_over_the_seeds():
    runs = [[{"what": "a", "ours": ours, "above": 0.8}, {"what": "b", "ours": ours}] for ours in (0.9, 0.6)]
    claim, other = weight_addition._with_verdicts(averaged(runs))
    assert claim["claim"] == "the paper: above 0.8; not reproduced" and "claim" not in other
    (claim,) = weight_addition._with_verdicts([{"what": "a", "ours": 0.81, "above": 0.8}])
    assert claim["claim"].endswith("reached")


def test_small_sets_are_gone_through_more_often():
    cast = weight_addition.Cast(Lab(False, 0, "cpu", False).in_colour(), ())
    digits = cast.lab.data("digits")
    assert cast._long_enough(digits)["epochs"] == weight_addition.SMOKE["other"]["epochs"]
    cast.lab, cast.recipes = Lab(True), weight_addition.RECIPES
    few = digits.take(4, seed=0)
    assert cast._long_enough(few)["epochs"] == weight_addition.STEPS  # one batch an epoch
