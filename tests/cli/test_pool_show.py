"""The page of a pool folder: one task or all, and requests that are wrong."""

from __future__ import annotations

import json

import pytest

from brickwork import zoo
from brickwork.pools import KernelPool, PoolFolder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    nets = [zoo.build("lenet", num_classes=3, in_channels=1, seed=s) for s in (0, 1)]
    pool = KernelPool.cluster(nets, size=16, seed=0)
    made = PoolFolder.create(tmp_path_factory.mktemp("show") / "pool", pool)
    for name, net in zip(("zero", "one"), nets, strict=True):
        made.add(name, pool.task_of(net, reference=pool.base), relative="base")
    return made.path


def test_the_page_and_its_numbers(folder, tmp_path, run):
    code, printed, _ = run("pool", "show", folder, "--out", tmp_path / "page.html", "--json")
    report = json.loads(printed)
    assert code == 0 and [row["task"] for row in report["tasks"]] == ["one", "zero"]
    assert report["tasks"][1]["changed"] == 0 and 0.5 < report["tasks"][0]["changed"] <= 1
    assert report["tasks"][0]["bytes"] == (folder / "tasks" / "one.task").stat().st_size
    page = (tmp_path / "page.html").read_text()
    assert "Kernels that one chose" in page and "What tasks have in common" in page
    code, printed, _ = run("pool", "show", folder, "--out", tmp_path / "one.html", "--name", "zero")
    assert code == 0 and "saved in" in printed
    assert "Kernels that one chose" not in (tmp_path / "one.html").read_text()


def test_wrong_requests(folder, tmp_path, run):
    (tmp_path / "there.html").write_text("x")
    for pool, name, out, said in (
        (folder, "one", "x.txt", "--out is"),
        (folder, "one", "there.html", "exists already"),
        (folder, "oen", "page.html", "unknown task 'oen'; did you mean 'one'?"),
        (tmp_path, "one", "page.html", "is not a pool"),
    ):
        code, _, err = run("pool", "show", pool, "--out", tmp_path / out, "--name", name)
        assert code == 2 and said in err
    assert not (tmp_path / "page.html").exists()
