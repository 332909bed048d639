"""Solving with numba leaves torch's threads alone; in a process of its own, as numba starts its threads once."""

from __future__ import annotations

import os
import subprocess
import sys

import numba
import pytest
import torch

from brickwork.dependencies.threads import threads

SOLVE = """
import numpy as np, torch
from brickwork.dependencies import CovLasso
from brickwork.dependencies.gram import LogitGram
from brickwork.dependencies.problem import Problem
told = torch.get_num_threads()
f = np.random.default_rng(0).normal(size=(50, 4))
{work}
import numba
print(told, torch.get_num_threads(), numba.get_num_threads())
"""
WORK = {
    "a problem": (
        "g = f.T @ f / 50; p = Problem.plain(LogitGram(g, g, g.diagonal().copy(), 0, True), np.arange(4)); "
        "p.solve(p.lam_max / 2, tol=1e-6)"
    ),
    "a fit": "CovLasso(lam=0.1, threads=2).fit(f)",
}


@pytest.mark.parametrize("work", WORK)
def test_torch_keeps_its_threads(work):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
    code = SOLVE.format(work=WORK[work])
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["1", "1", "2"]


def test_as_many_as_torch_unless_told():
    before = numba.get_num_threads()
    with threads(None):
        assert numba.get_num_threads() == min(before, torch.get_num_threads())
    with threads(before):
        assert numba.get_num_threads() == before
    assert numba.get_num_threads() == before
