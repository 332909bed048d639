"""Indices in several streams: the same task comes back, whoever reads; a file that lies about its streams is refused."""

import pytest

from brickwork.errors import BadFile
from brickwork.pools import learn, task_codes
from brickwork.pools.taskfile import read_header, read_task, write_task


@pytest.fixture(scope="module")
def task(pool, digits):
    second = digits[1]
    return learn(
        pool,
        second.train_images,
        second.train_labels,
        classes=second.classes,
        epochs=1,
        lr=0.1,
        batch_size=20,
        device="cpu",
        progress=False,
    )


@pytest.mark.parametrize("relative", [True, False])
def test_many_indices_are_told_in_several_streams(pool, task, relative, monkeypatch):
    reference = ("base", pool.base) if relative else None
    one = write_task(task, pool, reference)
    monkeypatch.setattr(task_codes, "MANY", 1)
    several = write_task(task, pool, reference)
    counts = [len(read_header(data, "here")["streams"]) for data in (one, several)]
    assert counts == [1, task_codes.STREAMS]
    assert several == write_task(task, pool, reference)
    monkeypatch.undo()  # how a file is read is told by the file
    for data in (one, several):
        found = read_task(data, pool, "here", lambda *_: pool.base)
        assert found.hash == task.hash


def test_layers_are_shared_out_evenly_and_once(pool):
    groups = task_codes.groups_of(pool, 3)
    assert sorted(name for group in groups for name in group) == sorted(pool.shapes)
    counts = [sum(pool.shapes[name].count for name in group) for group in groups]
    assert max(counts) - min(counts) <= max(layer.count for layer in pool.shapes.values())


def test_lengths_that_are_no_lengths_are_refused(pool, task, monkeypatch):
    monkeypatch.setattr(task_codes, "MANY", 1)
    data = write_task(task, pool)
    header = read_header(data, "here")
    header["streams"] = [*header["streams"][:-1], "many"]
    monkeypatch.setattr("brickwork.pools.taskfile.read_header", lambda *_: header)
    with pytest.raises(BadFile, match="does not fit its pool"):
        read_task(data, pool, "here")
