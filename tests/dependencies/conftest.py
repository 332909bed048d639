"""Small logits with real structure: some classes are mixtures of others, labels mostly follow the largest."""

from __future__ import annotations

import numpy as np
import pytest


def make_logits(rows=400, classes=12, seed=0):
    rng = np.random.default_rng(seed)
    basis = rng.normal(size=(classes // 2, classes))
    logits = rng.normal(size=(rows, classes // 2)) @ basis + 0.4 * rng.normal(size=(rows, classes)) + 0.2
    labels = (logits + 0.5 * rng.normal(size=logits.shape)).argmax(1)
    return (2 * logits).astype(np.float32), labels


@pytest.fixture
def logits():
    return make_logits()[0]


@pytest.fixture
def labels():
    return make_logits()[1]
