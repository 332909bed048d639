"""Every method of the registry: it learns, what it reports is what is on the disk, and earlier tasks stay as they are."""

from __future__ import annotations

import copy
import hashlib

import numpy as np
import pytest
import torch

from brickwork import continual
from brickwork.continual.bench import Bench
from brickwork.continual.options import ContinualOptions
from brickwork.continual.registry import make
from brickwork.continual.running import JOURNAL, folder_name, run_method
from brickwork.prediction import predict
from brickwork.store.weights import state_hash

RANPAC = "ranpac(width=100)"  # two thousand random features are solved for in minutes here
NAMES = [*(RANPAC if name == "ranpac" else name for name in continual.names()), "ksm(binary=True)"]
FORGETS = {"sequential", "replay", "derpp", "lwf", "ewc", RANPAC}  # whose earlier tasks change
HANDS_ON = {"sequential", "replay", "derpp", "lwf", "ewc", "packnet"}  # a task begins with what the one before left
LATE = {"joint"}  # has no network before the last task


def bench_of(scenario, start, folder, **more):
    return Bench(
        scenario,
        copy.deepcopy(start),
        folder,
        torch.device("cpu"),
        ContinualOptions(epochs=4, batch_size=16, forward=True),
        **more,
    )


def hashes(folder):
    return {
        p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*.*"))
        if p.name != JOURNAL and p.is_file()
    }


@pytest.fixture(scope="module")
def ran(scenario, start, tmp_path_factory):
    """Each method run once over all tasks, in a folder of its own."""
    found = {}

    def get(name):
        if name not in found:
            bench = bench_of(scenario, start, tmp_path_factory.mktemp(name))
            found[name] = (bench, make(name)[1], run_method(name, make(name)[1], bench))
        return found[name]

    return get


@pytest.mark.parametrize("name", NAMES)
def test_a_method_learns_and_is_weighed(name, ran, start):
    before = state_hash(start)
    bench, _, result = ran(name)
    assert state_hash(start) == state_hash(bench.start) == before  # neither the caller's nor the bench's changed
    assert result.average_accuracy > (0.55 if name in FORGETS else 0.7)
    files = [p for p in bench.folder.rglob("*.*") if p.is_file() and p.name != JOURNAL]
    assert result.total_bytes == sum(p.stat().st_size for p in files)
    assert result.shared_bytes == result.total_bytes - sum(result.own) >= 0
    assert np.isnan(result.seen[np.triu_indices(3, 1)]).all()
    assert len(result.curve) == 3 and result.curve[-1] == max(result.curve)


@pytest.mark.parametrize("name", [*(n for n in NAMES if n not in HANDS_ON), "pool(size=6)"])
def test_nothing_is_handed_on_where_every_task_begins_alike(name, ran):
    assert ran(name)[2].forward_transfer == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_accuracy_is_that_of_the_files(name, ran, scenario):
    bench, method, result = ran(name)
    other = Bench(scenario, copy.deepcopy(bench.start), bench.folder, bench.device)  # knows nothing but the folder
    for number, task in enumerate(scenario.tasks):
        model = method.network(other, number, 2)
        logits = predict(model, task.test_images)
        assert logits.shape == (len(task.test_labels), len(task.classes))
        assert float((logits.argmax(1).numpy() == task.test_labels).mean()) == result.matrix[2, number]


@pytest.mark.parametrize("name", [n for n in NAMES if n not in LATE])
def test_earlier_tasks_do_not_change(name, scenario, start, tmp_path):
    """Bytes and logits of the first task, before and after the others; but for the one that forgets."""
    bench, method = bench_of(scenario, start, tmp_path), make(name)[1]
    bench.folder.mkdir(exist_ok=True)
    method.begin(bench)
    method.learn(bench, 0)
    images = scenario.tasks[0].test_images
    logits, own = predict(method.network(bench, 0, 0), images), [p.read_bytes() for p in method.own(bench, 0)]
    method.learn(bench, 1)
    method.tidy(bench, 1)
    assert [p.read_bytes() for p in method.own(bench, 0)] == own
    assert torch.equal(predict(method.network(bench, 0, 1), images), logits) == (name not in FORGETS)


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_run_goes_on_to_the_same_bytes(name, ran, scenario, start, tmp_path, monkeypatch):
    """Killed after task 1 was learned and before it was on record: the files are there, the journal is not."""
    whole, method, result = ran(name)
    bench, kind = bench_of(scenario, start, tmp_path / "again"), type(method)
    real = kind.learn

    def killed(self, bench, number):
        real(self, bench, number)
        if number == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kind, "learn", killed)
        with pytest.raises(KeyboardInterrupt):
            run_method(name, method, bench)
    learned = []
    monkeypatch.setattr(kind, "learn", lambda self, b, number: (learned.append(number), real(self, b, number)))
    again = run_method(name, method, bench)
    assert learned == [1, 2]
    assert np.array_equal(again.matrix, result.matrix, equal_nan=True) and again.curve == result.curve
    assert hashes(bench.folder) == hashes(whole.folder)


def test_names_of_folders():
    assert folder_name("quantised(bits=4)") == "quantised-bits=4"
