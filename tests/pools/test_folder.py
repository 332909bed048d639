"""Pool folders: tasks come back bit for bit, never change each other, and damage is refused."""

import copy
import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.utils import prune

import brickwork
from brickwork.errors import BadFile, BadModel, JobFailed, OutputExists, RequestError, UnknownName
from brickwork.pools import ClusterOptions, KernelPool, PoolFolder
from brickwork.pools.taskfile import read_task, write_task
from brickwork.store import state_hash


def another(pool, seed, share=0.1, **more):
    """The pool's base with some indices and all norms changed."""
    draw = torch.Generator().manual_seed(seed)
    base = pool.base
    codes = {}
    for name, old in base.codes.items():
        new = torch.randint(0, len(pool.layers[name]), old.shape, generator=draw, dtype=torch.int32)
        codes[name] = torch.where(torch.rand(old.shape, generator=draw) < share, new, old)
    own = {k: v + 0.125 if v.is_floating_point() else v for k, v in base.own.items()}
    return replace(base, codes=codes, own=own, reference=base, facts={"seed": seed}, **more)


@pytest.fixture
def folder(pool, tmp_path):
    return PoolFolder.create(tmp_path / "pool", pool)


def same(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_tasks_come_back_bit_for_bit(folder, pool):
    task = another(pool, 1)
    folder.add("one", task)
    opened = PoolFolder.open(folder.path)
    assert opened.pool.hash == pool.hash and opened.pool.base.hash == pool.base.hash
    assert opened.tasks == ["one"] and opened.task("one").hash == task.hash
    assert opened.task("one").facts == {"seed": 1}
    assert same(opened.rebuild("one"), pool.rebuild(task))
    assert opened.bytes("one") == (folder.path / "tasks" / "one.task").stat().st_size


def test_a_rebuilt_network_is_an_ordinary_model_folder(folder, pool, tmp_path):
    task = another(pool, 1)
    folder.add("one", task)
    brickwork.save(PoolFolder.open(folder.path).rebuild("one"), tmp_path / "model")
    assert same(brickwork.load(tmp_path / "model"), pool.rebuild(task))


def test_few_changes_take_few_bytes(folder, pool):
    for name, share in (("none", 0.0), ("few", 0.02), ("many", 0.3)):
        folder.add(name, another(pool, 1, share))
    folder.add("whole", another(pool, 1, 0.3), relative=None)
    sizes = [folder.bytes(name) for name in ("none", "few", "many", "whole")]
    assert sizes == sorted(sizes) and sizes[0] < sizes[1] < sizes[2] < sizes[3]
    assert folder.header("few")["reference"][0] == "base" and folder.header("whole")["reference"] is None


def test_a_task_is_told_relative_to_what_it_started_from(folder, pool):
    first = another(pool, 1, 0.5)
    second = replace(first, codes={**first.codes, "conv1.0": first.codes["conv1.0"].flip(0)}, reference=first)
    folder.add("first", first)
    folder.add("second", second)
    assert folder.header("second")["reference"] == ["first", first.hash]
    assert folder.bytes("second") < folder.bytes("first") / 2
    assert PoolFolder.open(folder.path).task("second").hash == second.hash
    with pytest.raises(RequestError, match="'first' cannot be removed: second is stored relative"):
        folder.remove("first")
    with pytest.raises(RequestError, match="'first' cannot be replaced: second"):
        folder.add("first", another(pool, 3), force=True)
    before = folder.rebuild("second")
    folder.remove("first", detach=True)
    assert folder.tasks == ["second"] and same(folder.rebuild("second"), before)


def chained(folder, pool):
    """A task that was changed a little from one that is itself relative to another; the first two are in the folder."""
    tasks = [another(pool, 1, 0.5)]
    for name in ("res2.0.0", "conv2.0"):
        last = tasks[-1]
        tasks.append(replace(last, codes={**last.codes, name: last.codes[name].flip(0)}, reference=last))
    folder.add("first", tasks[0])
    folder.add("second", tasks[1])
    assert folder.header("second")["reference"][0] == "first"
    return tasks[2]


def test_a_budget_is_kept_where_the_start_is_relative_to_another(folder, pool):
    third = chained(folder, pool)
    size = len(write_task(third, pool, ("second", third.reference))) + 20  # the header grows by the budget itself
    folder.add("third", replace(third, facts={"budget": size}))
    assert folder.bytes("third") <= size and PoolFolder.open(folder.path).task("third").hash == third.hash


def test_a_budget_that_cannot_be_kept_without_the_start_is_refused(folder, pool):
    third = chained(folder, pool)
    size = len(write_task(third, pool, ("second", third.reference))) + 20
    folder.remove("second")
    with pytest.raises(RequestError, match=f"learned for {size} bytes and would take"):
        folder.add("third", replace(third, facts={"budget": size}))
    assert folder.tasks == ["first"]


def test_a_task_is_not_told_relative_to_itself(folder, pool):
    folder.add("one", another(pool, 1))
    with pytest.raises(RequestError, match="relative to itself"):
        folder.add("one", another(pool, 1), force=True, relative="one")
    assert folder.task("one").hash == another(pool, 1).hash


def test_no_task_changes_another(folder, pool):
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        folder.add(name, another(pool, seed))
    images = torch.randn(4, 1, 8, 8)
    file = folder.path / "tasks" / "b.task"
    bytes_before, logits = file.read_bytes(), folder.rebuild("b")(images)
    folder.add("d", another(pool, 4))
    folder.add("a", another(pool, 5), force=True)
    folder.remove("c")
    assert folder.tasks == ["a", "b", "d"]
    assert file.read_bytes() == bytes_before and torch.equal(folder.rebuild("b")(images), logits)


def test_the_same_task_is_the_same_bytes(pool):
    assert write_task(another(pool, 1), pool) == write_task(another(pool, 1), pool)


@pytest.mark.parametrize("precision", [32, 16, 12])
def test_every_precision_comes_back(pool, network, precision):
    task = pool.task_of(network, bits=precision)
    for reference in (None, ("base", pool.base)):
        data = write_task(task, pool, reference)
        assert read_task(data, pool, "here", lambda name, wanted: pool.base).hash == task.hash


def test_tensors_may_come_in_another_order_than_the_pools(folder, pool, network):
    turned = copy.deepcopy(network)
    prune.l1_unstructured(turned.fc, "weight", 0.3)
    prune.remove(turned.fc, "weight")  # puts the weight behind the bias
    assert [n for n in turned.state_dict() if n.startswith("fc")] == ["fc.bias", "fc.weight"]
    task = pool.task_of(turned)
    folder.add("turned", task)
    assert folder.task("turned").hash == task.hash
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(folder.rebuild("turned")(x), pool.rebuild(task)(x))


def test_files_cut_short_or_changed_are_refused(folder, pool):
    path = folder.add("one", another(pool, 1))
    whole = path.read_bytes()
    for broken in (whole[:-1], whole[: len(whole) // 2], whole[:10], whole[:-30] + b"\1" + whole[-29:]):
        path.write_bytes(broken)
        with pytest.raises(BadFile, match="damaged or cut short"):
            folder.task("one")
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 4
    path.write_bytes(flipped)
    with pytest.raises(BadFile, match="checksum"):
        folder.task("one")
    path.write_bytes(b"PK something else")
    with pytest.raises(BadFile, match="not a task of a pool"):
        folder.task("one")


def test_a_task_of_another_pool_or_network_is_refused(folder, network, tied, tmp_path):
    other = KernelPool.cluster([network], size=12)
    (folder.path / "tasks" / "one.task").write_bytes(write_task(other.base, other))
    with pytest.raises(BadFile, match=f"belongs to pool {other.hash[:12]}"):
        folder.task("one")
    with pytest.raises(BadModel, match="was learned with pool"):
        folder.add("two", other.base)
    assert folder.tasks == ["one"]


def test_a_head_of_another_size_is_refused(folder, pool):
    task = another(pool, 1)
    head = {**task.own, "fc.weight": torch.zeros(5, 32), "fc.bias": torch.zeros(5)}
    with pytest.raises(BadModel, match="names 3 classes and its head, 'fc', has 5"):
        folder.add("one", replace(task, own=head))


def test_a_network_without_class_names_may_have_other_outputs(tied, tmp_path):
    folder = PoolFolder.create(tmp_path / "pool", KernelPool.cluster([tied], size=4))
    tied.head = torch.nn.Linear(8, 7)
    task = folder.pool.task_of(tied)
    folder.add("one", task)
    opened = PoolFolder.open(folder.path, arch=type(tied))
    assert opened.task("one").hash == task.hash and opened.rebuild("one").head.out_features == 7


def test_a_reference_that_was_replaced_behind_our_back(folder, pool):
    first = another(pool, 1, 0.5)
    folder.add("first", first)
    folder.add("second", replace(first, facts={}, reference=first))
    (folder.path / "tasks" / "first.task").write_bytes(write_task(another(pool, 2), pool))
    with pytest.raises(BadFile, match="it was replaced"):
        folder.task("second")


def test_names(folder, pool):
    for name in ("../x", "", ".hidden", "a/b"):
        with pytest.raises(RequestError, match="cannot be called"):
            folder.add(name, pool.base)
    with pytest.raises(RequestError, match="choose another name"):
        folder.add("base", pool.base)
    with pytest.raises(UnknownName, match="did you mean 'first'"):
        folder.add("first", pool.base) and folder.task("firts")
    with pytest.raises(OutputExists):
        folder.add("first", pool.base)
    with pytest.raises(UnknownName):
        folder.remove("none")
    assert folder.task("base").hash == pool.base.hash


def test_folders_that_are_no_pools(folder, tmp_path):
    with pytest.raises(BadFile, match=r"no pool\.json"):
        PoolFolder.open(tmp_path)
    (folder.path / "pool.json").write_text("{")
    with pytest.raises(BadFile, match="not JSON"):
        PoolFolder.open(folder.path)
    (folder.path / "pool.json").write_text("[]")
    with pytest.raises(BadFile, match=r"of format None; this version reads 'brickwork\.pool/1'"):
        PoolFolder.open(folder.path)


def test_files_of_older_formats_are_refused_with_what_to_do(folder, pool):
    path = folder.add("one", another(pool, 1))
    path.write_bytes(b"BWTASK1\n" + path.read_bytes())
    with pytest.raises(
        BadFile, match="older format; learn or encode the task anew with this version, or rebuild it with"
    ):
        folder.task("one")
    description = folder.path / "pool.json"
    description.write_text(description.read_text().replace('"brickwork.pool/1"', "1"))
    with pytest.raises(
        BadFile, match="older format 1; make the pool anew with this version, or rebuild its tasks with"
    ):
        PoolFolder.open(folder.path)


def test_damaged_codebooks_are_refused(folder, pool):
    changed = replace(pool, layers={**pool.layers, "conv1.0": pool.layers["conv1.0"] + 1}, base=None)
    other = PoolFolder.create(folder.path.parent / "other", changed)
    os.replace(other.path / "pool.safetensors", folder.path / "pool.safetensors")
    with pytest.raises(BadFile, match="damaged"):
        PoolFolder.open(folder.path)


def test_a_network_of_ones_own_needs_its_factory(tied, tmp_path):
    PoolFolder.create(tmp_path / "pool", KernelPool.cluster([tied], size=4))
    with pytest.raises(BadFile, match="does not say which architecture"):
        PoolFolder.open(tmp_path / "pool")
    opened = PoolFolder.open(tmp_path / "pool", arch=type(tied))
    x = torch.randn(2, 4, 5, 5)
    model = opened.rebuild("base")
    assert model.two.weight is model.one.weight and model(x).shape == (2, 3)


def test_a_full_disk_leaves_earlier_tasks_as_they_are(folder, pool, monkeypatch):
    folder.add("one", another(pool, 1))
    before = (folder.path / "tasks" / "one.task").read_bytes()

    def full(self, data):
        with self.open("wb") as file:
            file.write(data[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    for name in ("one", "two"):
        with pytest.raises(JobFailed, match="No space left"):
            folder.add(name, another(pool, 2), force=True)
    monkeypatch.undo()
    assert folder.tasks == ["one"] and (folder.path / "tasks" / "one.task").read_bytes() == before
    assert [p.name for p in (folder.path / "tasks").iterdir()] == ["one.task"]


def test_processes_that_add_at_once_lose_nothing(folder):
    code = (
        "import sys; from brickwork.pools import PoolFolder\n"
        "folder = PoolFolder.open(sys.argv[1])\n"
        "for k in range(4): folder.add(f'{sys.argv[2]}{k}', folder.pool.base)\n"
    )
    crew = [subprocess.Popen([sys.executable, "-c", code, str(folder.path), name]) for name in "xy"]
    assert [process.wait() for process in crew] == [0, 0]
    assert len(folder.tasks) == 8 and all(folder.task(name).hash == folder.pool.base.hash for name in folder.tasks)


def test_a_pool_knows_its_options_and_its_network_by_hash(folder, pool, network):
    opened = PoolFolder.open(folder.path)
    for one in (pool, opened.pool, opened):
        assert one.options == ClusterOptions(size=24, head="fc") and one.provenance["sources"] == [state_hash(network)]
    folder.add("one", another(pool, 1))
    about = json.loads(json.dumps(folder.to_dict()))
    assert about["tasks"][0]["name"] == "one" and about["total_bytes"] == folder.bytes() + folder.bytes("one")
    assert "one" in folder._repr_html_() and "conv1.0" in pool._repr_html_()


def test_a_system_without_locks_still_adds(folder, pool, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    folder.add("one", another(pool, 1))
    assert folder.tasks == ["one"]
