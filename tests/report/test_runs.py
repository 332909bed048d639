"""What a report is made of: budgets of compress, and pools of the user's own architecture."""

import json
import re
import sys

import numpy as np
import pytest

import brickwork
from brickwork import zoo
from brickwork.errors import BadData
from brickwork.report.runs import report
from brickwork.report.tradeoff import draw_tradeoff


@pytest.fixture(scope="module")
def budgets():
    images = brickwork.data.load("digits:0-2@20", size=8, channels=1)
    net = zoo.build("lenet", num_classes=3, in_channels=1, seed=0)
    return brickwork.compress(net, images, budget=(0.7, 0.5, 0.25), progress=False)


def test_every_budget_has_its_number_below_the_axis(budgets):
    texts = [mark.text for mark in draw_tradeoff(budgets).marks if hasattr(mark, "text")]
    shares = [f"{100 * row['parameters']:.0f}" for row in budgets.table()]
    assert set(shares) <= set(texts), texts


def test_a_folder_of_budgets_is_a_figure(budgets, run, tmp_path):
    budgets.save(tmp_path / "several")
    [chapter] = report([tmp_path / "several"]).chapters
    assert list(chapter.figures) == [draw_tradeoff(budgets)]
    assert run("report", tmp_path / "several" / "tradeoff.json", "--out", tmp_path / "page.html")[0] == 0
    facts = json.loads((tmp_path / "several" / "tradeoff.json").read_text())
    (tmp_path / "several" / "tradeoff.json").write_text(json.dumps({**facts, "rows": []}))
    with pytest.raises(BadData, match=re.escape("is no table of budgets as compress writes it")):
        report([tmp_path / "several"])


def test_a_pool_of_ones_own_network_needs_arch(run, tmp_path, monkeypatch):
    (tmp_path / "own_net_for_report.py").write_text(
        "from torch import nn\n\ndef net(num_classes=2):\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2))\n"
    )
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("made.npz", images=rng.integers(0, 256, (20, 8, 8), dtype=np.uint8), labels=np.arange(20) % 2)
    own = ("--arch", "own_net_for_report:net")
    assert run("train", own[1], "made.npz", "--epochs", 1, "--size", 8, "--out", "a")[0] == 0
    assert run("pool", "cluster", "a", *own, "--out", "pool")[0] == 0
    code, _, err = run("report", "pool", "--out", "page.html")
    assert code == 2 and "give --arch own_net_for_report:net" in err
    assert run("report", "pool", *own, "--out", "page.html")[0] == 0
    sys.modules.pop("own_net_for_report")
