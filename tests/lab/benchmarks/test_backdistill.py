"""`brickwork bench backdistill`: both sides compute the same loss and gradient; no time is asserted."""

import json
from functools import partial

import pytest
import torch

from brickwork.errors import JobFailed, RequestError
from brickwork_lab.benchmarks import backdistill


@pytest.fixture
def run(run):
    """Run `brickwork bench backdistill …` in this process: (exit code, stdout, stderr)."""
    return partial(run, "bench", "backdistill")


@pytest.mark.parametrize("arch", ["lenet", "vgg16"])
def test_both_compute_the_same(arch):
    assert max(backdistill.differences(arch, 32).values()) <= 1e-12


def test_a_row_for_each_and_ratios(run):
    tiny = ["--arg=arch=lenet", "--arg=size=32", "--arg=batch=3", "--arg=repeat=1", "--arg=separate=false"]
    threads = torch.get_num_threads()
    code, out, err = run(*tiny, "--json")
    torch.set_num_threads(threads)
    assert code == 0, err
    data = json.loads(out)
    assert [row["who"] for row in data["rows"]] == [backdistill.OURS, backdistill.PEER]
    assert data["rows"][0]["loss"] == pytest.approx(data["rows"][1]["loss"], rel=1e-4)  # float32, other orders of sums
    assert "32 px, double backward / brickwork: wall_s" in data["ratios"]


def test_wrong_requests(run, monkeypatch):
    for argument, message in (
        ("arch=resnet50", "must be one of vgg16, lenet"),
        ("size=4", "size must be 16 or more"),
        ("repeat=0", "repeat must be 1 or more"),
        ("device=tpu9", "tpu9"),
    ):
        code, out, err = run("--arg", argument)
        assert code == 2 and message in err and out == ""
    monkeypatch.setattr(backdistill, "TOLERANCE", -1.0)
    with pytest.raises(JobFailed, match="do not compute the same"):
        backdistill.differences("lenet", 32)
    with pytest.raises(RequestError, match="batch must be 0 or more"):
        backdistill.backdistill(batch=-1)
