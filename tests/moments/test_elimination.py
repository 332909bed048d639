"""Backward elimination against least squares done the long way, in float64."""

import numpy as np
import pytest
import torch

from brickwork.moments.elimination import Reader, eliminate


def _rebuilt(x, weight, inputs):
    """What is left of x·weight when only these inputs may be used, by least squares."""
    y = x @ weight
    if not len(inputs):
        return y.square().sum(0)
    best = torch.linalg.lstsq(x[:, inputs], y).solution
    return (y - x[:, inputs] @ best).square().sum(0)


@pytest.fixture(params=[0, 2], ids=["alone", "beside others"])
def layers(request):
    """Two readers of six channels, and of some inputs before and behind them that never go."""
    g, size = torch.Generator().manual_seed(0), 12 + 2 * request.param
    mix = torch.randn(size, size, generator=g, dtype=torch.float64)
    xs = [torch.randn(200, size, generator=g, dtype=torch.float64) @ mix for _ in range(2)]
    weights = [torch.randn(size, m, generator=g, dtype=torch.float64) for m in (3, 5)]
    counts = [torch.rand(m, generator=g, dtype=torch.float64) for m in (3, 5)]
    channels = [np.repeat(np.arange(6), 2), np.concatenate([np.arange(6), np.arange(6)])]
    return xs, weights, counts, [np.pad(c, request.param, constant_values=-1) for c in channels]


def _readers(layers):
    return [Reader(w, x.T @ x / len(x), f, c) for x, w, f, c in zip(*layers, strict=True)]


def test_errors_are_those_of_least_squares_at_every_width(layers):
    gone = eliminate(_readers(layers), 6)
    assert sorted(gone.order) == sorted(set(gone.order)) and len(gone.order) == 5
    for k in range(6):
        left = 0.0
        for x, w, f, c in zip(*layers, strict=True):
            inputs = np.flatnonzero(~np.isin(c, gone.order[:k]))
            left += float((_rebuilt(x, w, inputs) * f).sum()) / len(x)
        assert gone.errors[k] == pytest.approx(left, rel=1e-9, abs=1e-9)


def test_each_step_takes_the_cheapest(layers):
    gone = eliminate(_readers(layers), 6)
    for k in range(5):
        costs = {}
        for channel in set(range(6)) - set(gone.order[:k]):
            costs[channel] = 0.0
            for x, w, f, c in zip(*layers, strict=True):
                inputs = np.flatnonzero(~np.isin(c, [*gone.order[:k], channel]))
                costs[channel] += float((_rebuilt(x, w, inputs) * f).sum()) / len(x)
        assert min(costs, key=costs.__getitem__) == gone.order[k]


def test_kept_weights_are_the_least_squares_ones(layers):
    gone = eliminate(_readers(layers), 6, keep_weights=[3])
    for (x, w, _, c), found in zip(zip(*layers, strict=True), gone.weights[3], strict=True):
        inputs = np.flatnonzero(~np.isin(c, gone.order[:3]))
        best = torch.linalg.lstsq(x[:, inputs], x @ w).solution
        torch.testing.assert_close(found[inputs], best)
        assert not found[np.flatnonzero(np.isin(c, gone.order[:3]))].any()


def test_what_is_fixed_stays_and_groups_go_together(layers):
    assert 4 not in eliminate(_readers(layers), 6, fixed=[4]).order
    cells = np.array([0, 0, 0, 1, 1, 1])
    order = eliminate(_readers(layers), 6, cells=cells).order
    assert [sorted(cells[list(order[k : k + 2])]) for k in (0, 2)] == [[0, 1], [0, 1]] and len(order) == 4


def test_a_copy_of_another_channel_goes_first_and_costs_nothing(layers):
    xs, weights, counts, _ = layers
    x = torch.cat([xs[0], xs[0][:, 3:4]], 1)
    w = torch.cat([weights[0], weights[0][:1]])
    gone = eliminate([Reader(w, x.T @ x / len(x) + 1e-9 * torch.eye(len(w)), counts[0], np.arange(len(w)))], len(w))
    assert gone.order[0] in (3, len(w) - 1) and gone.errors[1] == pytest.approx(0, abs=1e-6)
