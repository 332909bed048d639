"""`run`: the same seed gives the same bytes, a second run finds what is done, and another run is not mixed in."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
import torch

from brickwork import continual
from brickwork.continual import ContinualOptions
from brickwork.errors import RequestError
from brickwork.origin import attach, origin_of
from brickwork.pools import KernelPool
from brickwork.store.weights import state_hash

OPTIONS = {"epochs": 2, "batch_size": 16, "device": "cpu", "progress": False}


def test_the_same_seed_gives_the_same_files_and_another_others(scenario, start, tmp_path):
    before = state_hash(start), start.training, origin_of(start)
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        continual.run(scenario, "bn-head", start, out=tmp_path / name, seed=seed, **OPTIONS)
    files = [(tmp_path / name / "bn-head" / "task-001.safetensors").read_bytes() for name in "abc"]
    assert files[0] == files[1] != files[2]
    assert (state_hash(start), start.training, origin_of(start)) == before


def test_a_second_run_finds_what_is_done(scenario, start, tmp_path, monkeypatch):
    first = continual.run(scenario, "probe", start, out=tmp_path, **OPTIONS)
    monkeypatch.setattr(continual.parse("probe")["probe"].__class__, "learn", lambda *a: pytest.fail("learned again"))
    again = continual.run(scenario, "probe", start, out=tmp_path, **OPTIONS)
    assert again.to_dict() == first.to_dict()
    result = first.results["probe"]
    assert first.options == ContinualOptions(epochs=2, batch_size=16, augment="none")  # digits are not mirrored
    assert result.options == continual.parse("probe")["probe"] and result.provenance["epochs"] == 2
    assert (
        first.provenance["probe"]["images"] == again.provenance["probe"]["images"] and "<table>" in result._repr_html_()
    )
    with pytest.raises(RequestError, match=r"holds another run \(other epochs\)"):
        continual.run(scenario, "probe", start, out=tmp_path, **{**OPTIONS, "epochs": 3})
    journal = tmp_path / "probe" / "journal.json"
    assert json.loads(journal.read_text())["facts"]["method"] == "probe"
    journal.write_text("{")
    with pytest.raises(RequestError, match="is damaged"):
        continual.run(scenario, "probe", start, out=tmp_path, **OPTIONS)


def test_the_same_values_prepared_for_otherwise_are_another_run(scenario, start, tmp_path):
    other = copy.deepcopy(start)
    origin = origin_of(start)
    attach(other, replace(origin, preprocessing=replace(origin.preprocessing, mean=(5.0,), std=(9.0,))))
    continual.run(scenario, "probe", start, out=tmp_path, **OPTIONS)
    with pytest.raises(RequestError, match=r"holds another run \(other preprocessing\)"):
        continual.run(scenario, "probe", other, out=tmp_path, **OPTIONS)


def test_a_pool_with_another_base_is_another_run(scenario, start, tmp_path):
    one = KernelPool.cluster([start], size=8)
    two = KernelPool.cluster([start], size=8, data=scenario.tasks[0].train_images)
    assert one.hash == two.hash and one.base.hash != two.base.hash
    continual.run(scenario, "pool", start, pool=one, out=tmp_path, **OPTIONS)
    with pytest.raises(RequestError, match=r"holds another run \(other pool's base\)"):
        continual.run(scenario, "pool", start, pool=two, out=tmp_path, **OPTIONS)


def test_a_journal_of_before_a_fact_was_recorded_is_gone_on_with(scenario, start, tmp_path):
    first = continual.run(scenario, "probe", start, out=tmp_path, **OPTIONS)
    path = tmp_path / "probe" / "journal.json"
    journal = json.loads(path.read_text())
    for new in ("preprocessing", "architecture", "head", "pool's base"):
        del journal["facts"][new]
    path.write_text(json.dumps(journal))
    assert continual.run(scenario, "probe", start, out=tmp_path, **OPTIONS).to_dict() == first.to_dict()


def test_a_start_that_says_nothing_of_its_images(scenario):
    """Images are prepared as suits the first task, for all tasks and when a network is read back."""
    torch.manual_seed(0)
    plain = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, stride=2),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(36, 3),
    )
    found = continual.run(scenario, "finetune", plain, **{**OPTIONS, "epochs": 12})
    assert found.results["finetune"].average_accuracy > 0.8 and origin_of(plain).preprocessing is None


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch_size": 0}], ids=["epochs", "batch"])
def test_a_wrong_budget_is_refused(scenario, start, wrong):
    with pytest.raises(RequestError, match="1 or more"):
        continual.run(scenario, "probe", start, **{**OPTIONS, **wrong})
