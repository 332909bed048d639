"""Pools that grow: what was said in their kernels stays what it was, on disk and in memory."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from brickwork.errors import BadFile, BadModel, JobFailed, RequestError
from brickwork.pools import Growth, KernelPool, PoolFolder, encode
from brickwork.pools.growth import growths_of, settle
from brickwork.pools.growth_file import growth_bytes, growth_files
from brickwork.pools.taskfile import read_task, write_task


@pytest.fixture(scope="module")
def small(network):
    """A pool of few kernels."""
    return KernelPool.cluster([network], size=6)


def bringing(pool, seed=0, layers=("res1.0.0", "conv2.0"), count=3, **more):
    """A task that uses new kernels of its own beside the pool's."""
    draw = torch.Generator().manual_seed(seed)
    new = {
        n: torch.randn(count, pool.layers[n].shape[1], generator=draw).half().float()
        for n in pool.layers
        if n in layers
    }
    growth = Growth(pool.hash, new)
    grown = pool.grown_by(growth)
    codes = {}
    for name, old in pool.base.codes.items():
        some = torch.randint(0, len(grown.layers[name]), old.shape, generator=draw, dtype=torch.int32)
        codes[name] = torch.where(torch.rand(old.shape, generator=draw) < 0.4, some, old)
    return replace(
        pool.base, pool=grown.hash, codes=codes, reference=pool.base, brings=growth, facts={"seed": seed}, **more
    )


def state(model):
    return {k: v.clone() for k, v in model.state_dict().items()}


def same(a, b):
    a, b = (m if isinstance(m, dict) else m.state_dict() for m in (a, b))
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_a_grown_pool_begins_with_the_old_one_and_the_old_one_is_left_alone(small):
    digest, books = small.hash, {k: v.clone() for k, v in small.layers.items()}
    task = bringing(small)
    grown = small.grown_by(task.brings)
    assert small.hash == digest and all(torch.equal(small.layers[k], v) for k, v in books.items())
    assert all(torch.equal(grown.layers[k][: len(v)], v) for k, v in books.items())
    assert list(grown.versions) == [digest, task.pool] and grown.hash != digest
    assert len(grown.layers["conv2.0"]) == len(small.layers["conv2.0"]) + 3
    assert grown.at(digest).hash == digest and grown.at(digest).layers.keys() == small.layers.keys()
    assert "grown 1 time" in repr(grown) and "6 new ones for the pool" in repr(task)


def test_versions_that_are_handed_on_are_those_of_the_kernels(small):
    """They are not reckoned anew at every growth; here they are."""
    grown = small.grown_by(bringing(small, 1).brings)
    grown = grown.grown_by(bringing(replace(grown, base=small.base), 2, ("conv1.0",)).brings)
    for pool in (grown, grown.at(list(grown.versions)[1]), grown.at(small.hash)):
        handed = list(pool.versions.items())
        del vars(pool)["versions"]
        assert list(pool.versions.items()) == handed


def test_old_tasks_are_the_same_bytes_and_network_under_the_grown_pool(small):
    old = replace(small.base, codes={k: v.flip(0) for k, v in small.base.codes.items()})
    grown = small.grown_by(bringing(small).brings)
    further = grown.grown_by(bringing(replace(grown, base=small.base), 5, ("conv1.0", "res2.0.0")).brings)
    for pool in (grown, further):
        assert write_task(old, pool, ("base", small.base)) == write_task(old, small, ("base", small.base))
        data = write_task(old, small, ("base", small.base))
        assert read_task(data, pool, "here", lambda name, wanted: small.base).hash == old.hash
        assert same(pool.rebuild(old), small.rebuild(old))


def test_the_same_growth_is_the_same_hash_and_another_is_not(small):
    one, two, other = bringing(small, 1).brings, bringing(small, 1).brings, bringing(small, 2).brings
    assert one.hash == two.hash != other.hash and one.kernels == two.kernels
    behind = Growth(other.hash, one.layers)
    assert behind.kernels == one.kernels and behind.hash != one.hash


def test_kernels_that_do_not_fit_are_refused(small):
    with pytest.raises(BadModel, match="do not fit layer 'conv9'"):
        small.grown_by(Growth(small.hash, {"conv9": torch.zeros(1, 9)}))
    with pytest.raises(BadModel, match=r"do not fit layer 'conv2\.0'"):
        small.grown_by(Growth(small.hash, {"conv2.0": torch.zeros(1, 4)}))
    with pytest.raises(BadModel, match="float64, do not fit"):
        small.grown_by(Growth(small.hash, {"conv2.0": torch.zeros(1, 9, dtype=torch.float64)}))
    with pytest.raises(BadModel, match="NaN"):
        small.grown_by(Growth(small.hash, {"conv2.0": torch.full((1, 9), torch.nan)}))
    with pytest.raises(BadModel, match="belong behind others"):
        small.grown_by(Growth("elsewhere", {"conv2.0": torch.zeros(1, 9)}))


def test_a_folder_grows_with_the_task_and_comes_back(small, tmp_path):
    folder = PoolFolder.create(tmp_path / "pool", small)
    before = {p.name: p.read_bytes() for p in folder.path.iterdir() if p.is_file()}
    alone = folder.bytes()
    task = bringing(small)
    logits = small.rebuild(task)(torch.ones(2, 1, 8, 8))  # the old pool takes what the task brings
    folder.add("one", task)
    assert folder.pool.hash == task.pool
    opened = PoolFolder.open(folder.path)
    assert opened.pool.hash == task.pool and opened.task("one").hash == task.hash
    assert torch.equal(opened.rebuild("one")(torch.ones(2, 1, 8, 8)), logits)
    assert all((folder.path / name).read_bytes() == data for name, data in before.items())
    file = growth_files(folder.path)
    assert [p.name for p in file] == ["grown-0001.safetensors"]
    assert file[0].stat().st_size == growth_bytes(task.brings, small)
    assert opened.bytes() == alone + file[0].stat().st_size  # new kernels are there once, for all
    assert opened.pool.base.hash == small.base.hash


def test_kernels_that_16_bits_cannot_tell_come_back_too(small, tmp_path):
    growth = Growth(small.hash, {"conv2.0": torch.full((1, 9), 1 / 3)})
    grown = small.grown_by(growth)
    folder = PoolFolder.create(tmp_path / "pool", grown)
    assert PoolFolder.open(folder.path).pool.hash == grown.hash
    half = small.grown_by(Growth(small.hash, {"conv2.0": torch.full((1, 9), 0.25)}))
    other = PoolFolder.create(tmp_path / "half", half)
    assert growth_files(other.path)[0].stat().st_size < growth_files(folder.path)[0].stat().st_size


def test_no_task_changes_another_while_the_pool_grows(small, tmp_path):
    """Added, replaced and deleted around it: a task keeps its bytes and its logits, before and after growths."""
    folder = PoolFolder.create(tmp_path / "pool", small)
    images = torch.randn(4, 1, 8, 8)
    folder.add("old", replace(small.base, codes={k: v.flip(0) for k, v in small.base.codes.items()}))
    folder.add("first", bringing(small, 1))
    kept = {
        n: ((folder.path / "tasks" / f"{n}.task").read_bytes(), folder.rebuild(n)(images)) for n in ("old", "first")
    }

    def unchanged():
        opened = PoolFolder.open(folder.path)
        for name, (data, logits) in kept.items():
            assert (folder.path / "tasks" / f"{name}.task").read_bytes() == data
            assert torch.equal(opened.rebuild(name)(images), logits)

    folder.add("second", bringing(folder.pool, 2))
    unchanged()
    folder.add("second", bringing(folder.pool, 3, ("conv1.0",)), force=True)
    unchanged()
    folder.remove("second")
    unchanged()
    assert len(folder.pool.grown) == 3  # kernels stay, so that indices do
    assert folder.trim() > 0 and len(PoolFolder.open(folder.path).pool.grown) == 1
    unchanged()
    folder.remove("old")
    kept.pop("old")
    unchanged()
    assert folder.trim() == 0


def test_removing_with_trim_gives_the_kernels_back(small, tmp_path):
    folder = PoolFolder.create(tmp_path / "pool", small)
    alone = folder.bytes()
    folder.add("one", bringing(small))
    assert folder.bytes() > alone
    folder.remove("one", trim=True)
    assert folder.bytes() == alone and folder.pool.hash == small.hash == PoolFolder.open(folder.path).pool.hash


def test_an_old_copy_of_the_pool_refuses_tasks_with_new_kernels(small, tmp_path):
    folder, copy = PoolFolder.create(tmp_path / "pool", small), PoolFolder.create(tmp_path / "copy", small)
    path = folder.add("one", bringing(small))
    (copy.path / "tasks" / "one.task").write_bytes(path.read_bytes())
    with pytest.raises(BadFile, match=r"kernels that this pool does not have.*grown 1 time.*here it has grown 0 times"):
        PoolFolder.open(copy.path).task("one")
    with pytest.raises(BadModel, match=r"was learned with pool .* and this is pool"):
        copy.pool.rebuild(folder.task("one"))  # as read from a file it brings nothing
    # and the other way round: what the old copy made is read by the grown pool
    made = copy.add("two", replace(small.base, facts={"from": "the old copy"}))
    (folder.path / "tasks" / "two.task").write_bytes(made.read_bytes())
    assert PoolFolder.open(folder.path).task("two").facts == {"from": "the old copy"}


def test_a_folder_that_was_opened_before_reads_what_came_later(small, tmp_path):
    folder = PoolFolder.create(tmp_path / "pool", small)
    early = PoolFolder.open(folder.path)
    task = bringing(small)
    folder.add("one", task)
    assert early.pool.hash == small.hash
    assert early.task("one").hash == task.hash and early.pool.hash == task.pool


def test_two_growths_at_once_go_behind_each_other(small, tmp_path):
    """The second was learned with the pool as it was before the first: its indices move, its network does not."""
    folder = PoolFolder.create(tmp_path / "pool", small)
    late = PoolFolder.open(folder.path)
    first, second = bringing(small, 1), bringing(small, 2, ("conv2.0", "conv1.0"))
    networks = small.rebuild(first), small.rebuild(second)
    folder.add("first", first)
    late.add("second", second)
    opened = PoolFolder.open(folder.path)
    assert len(opened.pool.grown) == 2 and late.pool.hash == opened.pool.hash
    assert same(opened.rebuild("first"), networks[0]) and same(opened.rebuild("second"), networks[1])
    assert not torch.equal(opened.task("second").codes["conv2.0"], second.codes["conv2.0"])
    assert torch.equal(opened.task("second").codes["conv1.0"], second.codes["conv1.0"])  # none there before
    # the same kernels once more are found again, not added again
    late.add("again", replace(second, facts={}))
    assert len(PoolFolder.open(folder.path).pool.grown) == 2 and same(late.rebuild("again"), networks[1])


def test_kernels_that_were_trimmed_meanwhile_are_added_again(small, tmp_path):
    folder = PoolFolder.create(tmp_path / "pool", small)
    folder.add("one", bringing(small, 1))
    other = PoolFolder.open(folder.path)
    task = replace(other.task("one"), facts={})  # learned by another process, with the pool as it is now
    network = state(other.rebuild("one"))
    folder.remove("one", trim=True)
    folder.add("else", bringing(small, 7))
    other.add("two", task)
    assert same(PoolFolder.open(folder.path).rebuild("two"), network)
    assert len(PoolFolder.open(folder.path).pool.grown) == 2


def test_settling_follows_every_growth(small):
    """Over several links, some of which the stored pool has elsewhere."""
    first = bringing(small, 1)
    mine = small.grown_by(first.brings)
    second = bringing(replace(mine, base=small.base), 2)
    stored = small.grown_by(bringing(small, 3).brings)
    stored = stored.grown_by(Growth(stored.hash, first.brings.layers))
    joint, task, added = settle(stored, mine, second)
    assert len(added) == 1 and len(growths_of(joint)) == 3 and task.brings is None
    assert same(joint.rebuild(task), mine.rebuild(second))


def test_a_task_is_not_told_relative_to_kernels_that_came_later(small, tmp_path):
    folder = PoolFolder.create(tmp_path / "pool", small)
    folder.add("grown", bringing(small))
    late = folder.task("grown")
    with pytest.raises(RequestError, match="cannot be stored relative to 'grown', which uses kernels that came"):
        folder.add("old", small.base, relative="grown")
    assert folder.tasks == ["grown"]
    folder.add("old", replace(small.base, reference=late))  # by itself it is told otherwise
    assert folder.header("old")["reference"] in (None, ["base", small.base.hash])


def test_damaged_and_missing_growths_are_refused(small, tmp_path):
    folder = PoolFolder.create(tmp_path / "pool", small)
    for seed in (1, 2):
        folder.add(f"t{seed}", bringing(folder.pool, seed))
    first, second = growth_files(folder.path)
    whole = first.read_bytes()
    for broken in (whole[:-2] + b"\1\2", whole[: len(whole) // 2], b"", second.read_bytes()):
        first.write_bytes(broken)
        with pytest.raises(BadFile, match=r"grown-0001\.safetensors is damaged"):
            PoolFolder.open(folder.path)
    first.unlink()
    with pytest.raises(BadFile, match=r"grown-0001\.safetensors is missing"):
        PoolFolder.open(folder.path)
    first.write_bytes(whole)
    assert PoolFolder.open(folder.path).tasks == ["t1", "t2"]


@pytest.mark.parametrize("which", ["grown", "task"])
def test_a_full_disk_leaves_the_old_pool_whole(small, tmp_path, monkeypatch, which):
    import errno

    import brickwork.pools.folder as module

    folder = PoolFolder.create(tmp_path / "pool", small)
    folder.add("one", bringing(small, 1))
    before = {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()}
    real = module.write_file

    def full(path, **options):
        if (".task" in path.name) == (which == "task"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, **options)

    monkeypatch.setattr(module, "write_file", full)
    with pytest.raises((JobFailed, OSError)):
        folder.add("two", bringing(folder.pool, 2))
    monkeypatch.undo()
    assert {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()} == before
    assert len(folder.pool.grown) == 1
    folder.add("two", bringing(folder.pool, 2))
    assert len(PoolFolder.open(folder.path).pool.grown) == 2


def test_a_growth_that_is_killed_leaves_the_old_pool_whole(small, tmp_path):
    """Before the new kernels are in place, or the task is: nothing else has changed, and it can be done again."""
    folder = PoolFolder.create(tmp_path / "pool", small)
    folder.add("one", replace(small.base, facts={}))
    code = (
        "import os, sys\n"
        "import brickwork.pools.folder as module\n"
        "from brickwork.pools import PoolFolder, Growth\n"
        "from dataclasses import replace\n"
        "import torch\n"
        "folder = PoolFolder.open(sys.argv[1])\n"
        "growth = Growth(folder.pool.hash, {'conv2.0': torch.ones(2, 9)})\n"
        "task = replace(folder.pool.base, pool=growth.hash, brings=growth)\n"
        "real = module.write_file\n"
        "def killed(path, **options):\n"
        "    if path.name.endswith(sys.argv[2]): os._exit(9)\n"
        "    return real(path, **options)\n"
        "module.write_file = killed\n"
        "folder.add('two', task)\n"
    )
    for when, left in ((".safetensors", 0), (".task", 1)):
        done = subprocess.run([sys.executable, "-c", code, str(folder.path), when])
        assert done.returncode == 9
        opened = PoolFolder.open(folder.path)
        assert opened.tasks == ["one"] and len(opened.pool.grown) == left
        assert same(opened.rebuild("one"), small.rebuild(small.base))
    task = bringing(small)
    network = small.rebuild(task)
    opened.add("two", task)
    assert same(PoolFolder.open(folder.path).rebuild("two"), network)


def test_processes_that_grow_at_once_lose_nothing(small, tmp_path):
    folder = PoolFolder.create(tmp_path / "pool", small)
    code = (
        "import sys, torch\n"
        "from dataclasses import replace\n"
        "from brickwork.pools import PoolFolder, Growth\n"
        "folder = PoolFolder.open(sys.argv[1])\n"
        "start, number = folder.pool, int(sys.argv[2])\n"  # both keep to the pool as it was
        "for k in range(3):\n"
        "    growth = Growth(start.hash, {'conv2.0': torch.full((1, 9), 1.0 + 10 * number + k)})\n"
        "    index = torch.full_like(start.base.codes['conv2.0'], len(start.layers['conv2.0']))\n"
        "    codes = {**start.base.codes, 'conv2.0': index}\n"
        "    folder.add(f't{number}{k}', replace(start.base, pool=growth.hash, codes=codes, brings=growth))\n"
    )
    crew = [subprocess.Popen([sys.executable, "-c", code, str(folder.path), str(n)]) for n in (1, 2)]
    assert [process.wait() for process in crew] == [0, 0]
    opened = PoolFolder.open(folder.path)
    assert len(opened.tasks) == 6 and len(opened.pool.grown) == 6
    for name in opened.tasks:
        assert (opened.rebuild(name).conv2[0].weight == 1.0 + int(name[1:])).all(), name


def test_a_pool_that_grew_can_be_written_whole(small, tmp_path):
    grown = small.grown_by(bringing(small, 1).brings)
    folder = PoolFolder.create(tmp_path / "pool", grown)
    assert PoolFolder.open(folder.path).pool.versions == grown.versions


def test_a_start_with_kernels_of_its_own_is_refused(small, network):
    task = bringing(small)
    with pytest.raises(BadModel, match=r"pool\.grown_by\(task\.brings\)"):
        encode(small, network, metric="weight", reference=task)
    grown = small.grown_by(task.brings)
    told = encode(grown, network, metric="weight", reference=task)
    assert told.pool == grown.hash and told.brings is None
