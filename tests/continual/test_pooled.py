"""Weight search as a method: where tasks start, what their files refer to, how large they may be."""

from __future__ import annotations

import copy

import pytest
import torch

from brickwork.continual.bench import SHIFT, Bench
from brickwork.continual.options import ContinualOptions
from brickwork.continual.registry import make
from brickwork.data.pixels import as_input
from brickwork.errors import RequestError
from brickwork.origin import origin_of
from brickwork.pools import Growth, KernelPool, PoolFolder


@pytest.fixture
def bench(scenario, start, tmp_path):
    return Bench(
        scenario, copy.deepcopy(start), tmp_path, torch.device("cpu"), ContinualOptions(epochs=2, batch_size=16)
    )


def learned(bench, text, tasks=2):
    method = make(text)[1]
    method.begin(bench)
    for number in range(tasks):
        method.learn(bench, number)
    return method, PoolFolder.open(bench.path("pool"))


def test_a_task_starts_from_the_one_before(bench):
    method, folder = learned(bench, "pool(size=32, start=previous, lr=0.3)")
    first, second = folder.task("task-000"), folder.task("task-001")
    assert method._start(bench, 1).hash == first.hash and method._start(bench, 0).hash == folder.pool.base.hash
    assert 0 < second.changed(first) < second.changed(folder.pool.base)
    sources = {path.name for path in method.sources(bench, 1, 1)}
    assert {"pool.json", "pool.safetensors", "base.task", "task-001.task"} <= sources
    # the file of the first is a source exactly where the second is told relative to it
    assert ("task-000.task" in sources) == (folder.header("task-001")["reference"][0] == "task-000")


def test_a_task_starts_from_the_best(bench):
    method, folder = learned(bench, "pool(size=32, start=best)")
    hashes = {folder.pool.base.hash, *(folder.task(name).hash for name in folder.tasks)}
    assert method._start(bench, 2).hash in hashes
    assert method.opening(bench, 2).get_submodule("fc").in_features == 32


def test_a_budget_is_kept(bench):
    method, _ = learned(bench, "pool(size=32, budget=2500, fold=True)", tasks=1)
    assert method.own(bench, 0)[0].stat().st_size <= 2500


def test_other_starts(bench):
    assert make("pool(start=random)")[1]._start(bench, 1) == "random"
    assert make("pool(start=network)")[1]._start(bench, 1) is bench.start


def test_a_pool_that_is_given_is_used_and_not_resized(bench, start):
    bench.pool = KernelPool.cluster([start], size=20, seed=3)
    _, folder = learned(bench, "pool-encode(metric=weight)", tasks=1)
    assert folder.pool.hash == bench.pool.hash
    with pytest.raises(RequestError, match="size is 64, and a pool is given"):
        make("pool(size=64)")[1].begin(bench)


def test_a_pool_begins_small_and_grows_with_the_tasks(bench):
    method, folder = learned(bench, "pool-grow(size=6, grow=4, lr=0.1)", tasks=1)
    first = [sum(path.stat().st_size for path in method.shared(bench, 0)), method.sources(bench, 0, 0)]
    method.learn(bench, 1)
    grown = folder_of(bench)
    assert 1 <= len(grown.pool.grown) <= 2 and max(map(len, folder.pool.layers.values())) <= 6 + 4
    shared = method.shared(bench, 1)
    assert sum(path.stat().st_size for path in shared) > first[0]  # what a task adds is counted, once for all
    assert {"grown-0001.safetensors", "pool.safetensors"} <= {path.name for path in shared}
    # nothing that the first task is read from has changed, so it is not judged again
    assert method.sources(bench, 0, 1) == first[1]
    assert "grown-0002.safetensors" not in {path.name for path in method.sources(bench, 0, 1)}


def test_a_pool_that_is_given_keeps_what_it_grew_by(bench, start):
    """A killed run is cleared away, and nothing that was there before it."""
    pool = KernelPool.cluster([start], size=6)
    growth = Growth(pool.hash, {"conv2.0": torch.ones(2, 9)})
    bench.pool = pool.grown_by(growth)
    method = make("pool-encode-grow(metric=weight, grow=4)")[1]
    method.begin(bench)
    method.learn(bench, 0)
    assert list(folder_of(bench).pool.versions)[:2] == [pool.hash, growth.hash]


def test_growing_options():
    for text, said in (
        ("pool-grow(grow=0)", "grow is 0"),
        ("pool-encode-grow(grow_bytes=0)", "grow_bytes is 0"),
        ("pool-grow(free=1)", "free is 1"),
        ("pool(grow=4)", "grow"),
    ):
        with pytest.raises(RequestError, match=said):
            make(text)


def folder_of(bench):
    return PoolFolder.open(bench.path("pool"))


@pytest.mark.parametrize("text", ["finetune(soup=2)", "pool-encode(soup=2, size=32)"])
def test_a_soup_is_the_average_of_its_members(bench, text):
    """Of the weights: the batch norms of the average are measured anew. One member alone is the plain method."""
    members = [bench.fit(bench.fresh(0), 0, lr=0.1, seed=seed) for seed in (0, SHIFT)]
    mean = {n: (a + b) / 2 for (n, a), b in zip(members[0].named_parameters(), members[1].parameters(), strict=True)}
    soup = bench.fit_soup(0, 2, lr=0.1)
    for name, value in soup.named_parameters():
        torch.testing.assert_close(value, mean[name])
    images = as_input(bench.task(0).train_images, origin_of(soup).preprocessing, "cpu")
    first = soup.bn1 if hasattr(soup, "bn1") else next(m for m in soup.modules() if isinstance(m, torch.nn.BatchNorm2d))
    first.register_forward_pre_hook(
        lambda _, seen: torch.testing.assert_close(seen[0].mean((0, 2, 3)), first.running_mean, rtol=1e-3, atol=1e-4)
    )
    soup(images)
    alone = bench.fit_soup(0, 1, lr=0.1).state_dict()
    assert all(torch.equal(alone[n], t) for n, t in members[0].state_dict().items())
    method = make(text)[1]
    method.begin(bench)
    method.learn(bench, 0)
    assert method.network(bench, 0, 0) is not None
