"""The benchmarks of pools run, agree with float64, and refuse what cannot be right."""

from types import SimpleNamespace

import pytest
import torch

from brickwork.errors import RequestError
from brickwork_lab import benchmarks
from brickwork_lab.benchmarks.pool_step import _Clock


def test_nearest():
    found = benchmarks.find("nearest").run(rows=3000, size=40, repeat=1, separate=False)
    who = [row["who"] for row in found.rows]
    assert who[:3] == ["brickwork", "torch.cdist", "published form"]
    assert all(row["agree"] > 0.999 for row in found.rows)
    assert "torch.cdist / brickwork: cpu_s" in found.ratios


def test_pool_step():
    found = benchmarks.find("pool-step").run(arch="lenet", batch_size=8, steps=8, size=16, repeat=1, separate=False)
    assert [row["who"] for row in found.rows] == ["plain fine-tuning"] + [
        f"pool, refresh {r}"
        for r in (1, 4)  # eight steps hold no round of sixteen
    ]
    assert all(row["step_s"] > 0 for row in found.rows)


def test_a_step_is_measured_over_whole_rounds_of_its_refresh():
    clock = _Clock(SimpleNamespace(refresh=4), torch.device("cpu"))
    clock.times = [0.0, 50.0, 51.0, 52.0, 53.0, 63.0, 64.0, 65.0, 66.0, 76.0]  # a refresh takes ten, a step one
    assert clock.step_s() == 13 / 4


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("nearest", {"rows": 0}, "rows must be"),
        ("pool-step", {"steps": 2}, "steps must be 4"),
        ("pool-step", {"size": 0}, "size"),
    ],
    ids=["rows", "steps", "size"],
)
def test_requests_that_cannot_be_right(name, options, said):
    with pytest.raises(RequestError, match=said):
        benchmarks.find(name).run(**options)
