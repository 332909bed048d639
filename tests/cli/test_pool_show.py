"""The page of a pool folder, from the command's function: tasks named or all, and requests that are wrong."""

from __future__ import annotations

import json

import pytest

from brickwork import zoo
from brickwork.cli.pool_show import show
from brickwork.errors import BadFile, OutputExists, RequestError, UnknownName
from brickwork.pools import KernelPool, PoolFolder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    nets = [zoo.build("lenet", num_classes=3, in_channels=1, seed=s) for s in (0, 1)]
    pool = KernelPool.cluster(nets, size=16, seed=0)
    made = PoolFolder.create(tmp_path_factory.mktemp("show") / "pool", pool)
    for name, net in zip(("zero", "one"), nets, strict=True):
        made.add(name, pool.task_of(net, reference=pool.base), relative="base")
    return made.path


def test_the_page_and_its_numbers(folder, tmp_path, capsys):
    show(folder, tmp_path / "page.html", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert [row["task"] for row in told["tasks"]] == ["one", "zero"]
    assert told["tasks"][1]["changed"] == 0 and 0.5 < told["tasks"][0]["changed"] <= 1
    assert told["tasks"][0]["bytes"] == (folder / "tasks" / "one.task").stat().st_size
    page = (tmp_path / "page.html").read_text()
    assert "Kernels that one chose" in page and "What tasks have in common" in page
    show(folder, tmp_path / "one.html", tasks=["zero"])
    assert "Kernels that one chose" not in (tmp_path / "one.html").read_text()
    assert "saved in" in capsys.readouterr().out


def test_wrong_requests(folder, tmp_path):
    (tmp_path / "there.html").write_text("x")
    for wrong, kind in (
        ({"out": tmp_path / "x.txt"}, RequestError),
        ({"out": tmp_path / "there.html"}, OutputExists),
        ({"tasks": ["oen"]}, UnknownName),
        ({"folder": tmp_path}, BadFile),
    ):
        with pytest.raises(kind):
            show(**{"folder": folder, "out": tmp_path / "page.html", **wrong})
    assert not (tmp_path / "page.html").exists()
