"""Ridge solves: the textbook's answer where it has one, a finite and certified one where it has not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brickwork.errors import BadData, RequestError
from brickwork.moments import Moments, Ridge, solve_ridge
from brickwork.moments.ridge import best_ridge


def draw(n: int, d: int, m: int, seed: int = 0, *lead: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*lead, n, k, generator=rng, dtype=torch.float64) for k in (d, m))  # type: ignore


def fitted(x: torch.Tensor, y: torch.Tensor, **options) -> Ridge:
    groups = x.shape[0] if x.dim() == 3 else None
    return solve_ridge(Moments.empty(x.shape[-1], y.shape[-1], groups=groups).add(x, y), **options)


def residual(x, y, fit):
    made = x @ fit.weight + (0 if fit.bias is None else fit.bias)
    return float((made - y).square().sum())


@settings(max_examples=25, deadline=None)
@given(d=st.integers(1, 6), m=st.integers(1, 3), more=st.integers(5, 30), seed=st.integers(0, 500), bias=st.booleans())
def test_least_squares_where_the_data_determine_it(d, m, more, seed, bias):
    x, y = draw(d + more, d, m, seed)
    full = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1) if bias else x
    wanted = torch.linalg.lstsq(full, y).solution
    fit = fitted(x, y, ridge=0.0, bias=bias)
    torch.testing.assert_close(fit.weight, wanted[:d], rtol=1e-6, atol=1e-7)
    if bias:
        torch.testing.assert_close(fit.bias, wanted[d], rtol=1e-6, atol=1e-7)
    else:
        assert fit.bias is None
    assert fit.error < 1e-8


@pytest.mark.parametrize("bias", [True, False])
def test_the_ridge_is_the_augmented_least_squares(bias):
    x, y = draw(40, 5, 2)
    prior = draw(5, 1, 2, 7)[1]
    fit = fitted(x, y, ridge=0.3, bias=bias, prior=prior)
    a, b = (x - x.mean(0), y - y.mean(0)) if bias else (x, y)
    strength = (0.3 * a.square().sum(0).mean()).sqrt()
    grown = torch.cat([a, strength * torch.eye(5, dtype=x.dtype)]), torch.cat([b, strength * prior])
    torch.testing.assert_close(fit.weight, torch.linalg.lstsq(*grown).solution)


def test_unexplained_is_the_share_left():
    x, y = draw(60, 4, 3)
    fit = fitted(x, y, ridge=0.0)
    left = residual(x, y, fit) / float((y - y.mean(0)).square().sum())
    assert fit.unexplained == pytest.approx(left, rel=1e-8)
    exact = fitted(x, x @ draw(4, 1, 3)[1] + 2, ridge=0.0)
    assert exact.unexplained < 1e-12
    constant = fitted(x, torch.full_like(y, 3.0), ridge=0.0)
    assert constant.unexplained == 0 and torch.allclose(constant.bias, torch.tensor(3.0, dtype=x.dtype))


@pytest.mark.parametrize("ridge", [0.0, 1e-12, 1e-4])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("case", ["too few rows", "repeated", "dead", "one row"])
def test_rank_deficient_systems(case, bias, ridge):
    x, y = draw({"too few rows": 4, "one row": 1}.get(case, 50), 8, 2)
    if case == "repeated":
        x[:, 4:] = x[:, :4]
    if case == "dead":
        x[:, 3:] = 0
    y = x @ draw(8, 1, 2, 5)[1]
    fit = fitted(x, y, ridge=ridge, bias=bias)
    assert torch.isfinite(fit.weight).all()
    assert fit.error < 1e-8
    assert residual(x, y, fit) <= 1e-3 * float(y.square().sum())
    if ridge == 0:
        assert residual(x, y, fit) <= 1e-16 * float(y.square().sum())


@pytest.mark.parametrize("power", [3, 6, 9])
def test_ill_conditioned_systems(power):
    x, y = draw(200, 10, 3)
    x = x * torch.logspace(0, -power, 10, dtype=x.dtype)
    for target in (y, x @ draw(10, 1, 3, 2)[1]):
        for ridge in (0.0, 1e-10):
            fit = fitted(x, target, ridge=ridge)
            assert torch.isfinite(fit.weight).all()
            assert fit.error < 1e-8


def test_inputs_far_from_zero():
    """Centring by subtraction loses digits; what is left is still solved, and certified."""
    x, _ = draw(500, 4, 1)
    weight = draw(4, 1, 1, 3)[1]
    for shift in (1e2, 1e4):
        fit = fitted(x + shift, x @ weight, ridge=0.0)
        torch.testing.assert_close(fit.weight, weight, rtol=1e-4, atol=1e-4)
        assert fit.error < 1e-8


@pytest.mark.parametrize("ridge", [0.0, 1e-4])
@pytest.mark.parametrize("bias", [True, False])
def test_the_prior_stays_where_the_data_say_nothing(ridge, bias):
    x, y = draw(50, 6, 2)
    x[:, 4:] = 0
    prior = draw(6, 1, 2, 9)[1]
    fit = fitted(x, y, ridge=ridge, bias=bias, prior=prior)
    torch.testing.assert_close(fit.weight[4:], prior[4:], rtol=0, atol=1e-10)
    nothing = fitted(torch.zeros_like(x), torch.zeros_like(y), ridge=ridge, bias=bias, prior=prior)
    assert torch.equal(nothing.weight, prior)


def test_a_prior_that_fits_is_returned():
    for n in (3, 100):
        x, _ = draw(n, 6, 2)
        prior = draw(6, 1, 2, 9)[1]
        fit = fitted(x, x @ prior + 1.5, ridge=1e-4, prior=prior)
        torch.testing.assert_close(fit.weight, prior, rtol=0, atol=1e-9)
        assert fit.error < 1e-8


def test_groups_are_solved_apart():
    x, y = draw(30, 4, 2, 0, 3)
    x[1, :, 2:] = 0  # one group has less to go by than the others
    fit = fitted(x, y, ridge=1e-3)
    for g in range(3):
        alone = fitted(x[g], y[g], ridge=1e-3)
        torch.testing.assert_close(fit.weight[g], alone.weight)
        torch.testing.assert_close(fit.bias[g], alone.bias)


def test_an_input_that_never_changes():
    x, y = draw(40, 3, 2)
    x[:, 1] = 1e3  # its centred moments are rounding errors
    fit = fitted(x, y, ridge=0.0)
    assert torch.isfinite(fit.weight).all() and fit.error < 1e-6
    without = fitted(x[:, [0, 2]], y, ridge=0.0)
    assert residual(x, y, fit) <= residual(x[:, [0, 2]], y, without) * (1 + 1e-6)


def test_refusals():
    x, y = draw(10, 3, 2)
    seen = Moments.empty(3, 2).add(x, y)
    with pytest.raises(RequestError, match=r"-0\.1"):
        solve_ridge(seen, ridge=-0.1)
    with pytest.raises(BadData, match="nothing to fit"):
        solve_ridge(Moments.empty(3, 2))
    with pytest.raises(BadData, match="weights to start from"):
        solve_ridge(seen, prior=torch.full((3, 2), float("nan")))
    for bad in (float("nan"), float("inf")):
        x[2, 1] = bad
        with pytest.raises(BadData, match="NaN or infinite"):
            fitted(x, y)


@pytest.mark.parametrize("bias", [True, False])
def test_the_squared_error_of_other_rows_is_what_the_rows_say(bias):
    torch.manual_seed(0)
    x, y = torch.randn(2, 60, 5).double(), torch.randn(2, 60, 3).double() + 1
    seen, held = (Moments.empty(5, 3, groups=2).add(x[:, some], y[:, some]) for some in (slice(40), slice(40, 60)))
    fit = solve_ridge(seen, ridge=0.1, bias=bias, prior=torch.ones(2, 5, 3).double())
    answers = x[:, 40:] @ fit.weight + (fit.bias.unsqueeze(-2) if bias else 0)
    assert fit.squared_error(held) == pytest.approx(float((answers - y[:, 40:]).square().sum()), rel=1e-10)


def test_held_out_rows_choose_the_ridge():
    torch.manual_seed(0)
    x = torch.randn(60, 40).double()
    true = torch.randn(40, 2).double()
    for noise, wanted in ((0.0, 0.0), (20.0, 10.0)):
        y = x @ true + noise * torch.randn(60, 2).double()
        seen, held = (Moments.empty(40, 2).add(x[some], y[some]) for some in (slice(50), slice(50, 60)))
        assert best_ridge(seen, held, ridges=(0.0, 0.1, 10.0)) == wanted
