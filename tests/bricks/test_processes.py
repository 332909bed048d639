"""Cutting under torchrun: the processes share the images, and come to what one alone comes to."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

import brickwork
from brickwork import data, zoo
from brickwork.moments import processes
from brickwork.moments.batches import ImageBatches
from brickwork.training import train

ASKED = ("--classes", "0-2", "--data", "digits:A", "--budget", "0.4", "--device", "cpu")


def test_two_processes_cut_what_one_cuts(tmp_path, run):
    digits = data.load("digits:A", channels=1)
    net = zoo.build("lenet", num_classes=5, in_channels=1, seed=0)
    train(net, digits, epochs=2, device="cpu", progress=False)
    brickwork.save(net, tmp_path / "whole")
    asked = ["disassemble", str(tmp_path / "whole"), *ASKED, "--out"]
    assert run(*asked, str(tmp_path / "one"))[0] == 0
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--standalone",
        "-m",
        "brickwork",
    ]
    together = [*launcher, *asked, str(tmp_path / "two")]
    two = subprocess.run(together, capture_output=True, text=True, timeout=300)
    assert two.returncode == 0, two.stderr
    assert two.stdout.count("saved in") == 1  # the first process alone writes and says so
    alone, both = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, tensor in alone.items():
        torch.testing.assert_close(both[name], tensor, rtol=1e-5, atol=1e-6)


def test_every_batch_belongs_to_one_process(monkeypatch):
    images, like = torch.arange(1007.0), torch.zeros(1)
    shares = []
    with monkeypatch.context() as patched:
        patched.setattr(processes.distributed, "get_world_size", lambda: 3)
        token = processes._sharing.set(True)
        for rank in range(3):
            patched.setattr(processes.distributed, "get_rank", lambda rank=rank: rank)
            every, own = processes.share_batches(images, 100, like)
            shares.append(own)
        with pytest.raises(brickwork.errors.RequestError, match="2 images for 3 processes"):
            processes.share_batches(images[:2], 100, like)
        few = processes.share_batches(images[:7], 100, like)[1]
        processes._sharing.reset(token)
    assert [bound for own in shares for bound in own.bounds] == ImageBatches(images, 100, like).bounds == every.bounds
    assert min(map(len, shares)) >= 3 and len(few) >= 1
