"""The benchmarks of pools run, agree with float64, and refuse what cannot be right."""

import pytest

from brickwork import benchmarks
from brickwork.errors import RequestError


def test_nearest():
    found = benchmarks.find("nearest").run(rows=3000, size=40, repeat=1, separate=False)
    who = [row["who"] for row in found.rows]
    assert who[:3] == ["brickwork", "torch.cdist", "published form"]
    assert all(row["agree"] > 0.999 for row in found.rows)
    assert "torch.cdist / brickwork: cpu_s" in found.ratios


def test_pool_step():
    found = benchmarks.find("pool-step").run(
        arch="lenet", batch_size=8, steps=4, size=16, repeat=1, separate=False
    )
    assert [row["who"] for row in found.rows] == ["plain fine-tuning"] + [
        f"pool, refresh {r}" for r in (1, 4, 16)
    ]
    assert all(row["step_s"] > 0 for row in found.rows)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [("nearest", {"rows": 0}, "rows must be"), ("pool-step", {"steps": 2}, "steps must be 4"),
     ("pool-step", {"size": 0}, "size")],
    ids=["rows", "steps", "size"],
)  # fmt: skip
def test_requests_that_cannot_be_right(name, options, said):
    with pytest.raises(RequestError, match=said):
        benchmarks.find(name).run(**options)
