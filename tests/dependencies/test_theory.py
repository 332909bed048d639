"""Theorem 2 and Remark 3 in float64: they hold on random logits, and are met where they can be."""

import numpy as np
import pytest

from brickwork.dependencies import CovLasso
from brickwork.dependencies.gram import LogitGram, logit_gram
from brickwork.dependencies.theory import error_bounds, redundancies, slope_bounds


def problem(seed, between):
    """Correlated logits of eight classes, uncentred; with `between` the targets are another network's."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(300, 3))
    mix = lambda: shared @ rng.normal(size=(3, 8)) + 0.7 * rng.normal(size=(300, 8)) + rng.normal(size=8)  # noqa: E731
    x = mix()
    moments = logit_gram(x, mix()) if between else logit_gram(x)
    own = np.arange(8)
    return moments, own, redundancies(moments, own)["redundancy"]


def solved(moments, lam):
    cross = {} if moments.within else {"cross": moments.cross, "squares": moments.squares}
    return CovLasso(lam=lam, tol=1e-10).fit_gram(moments.gram, **cross).coef_


def slopes(moments, coef, lam):
    return (coef @ moments.gram - moments.cross) / lam[:, None]


def errors(moments, coef):
    return moments.squares - 2 * (coef * moments.cross).sum(1) + ((coef @ moments.gram) * coef).sum(1)


def top(moments, own):
    cross = np.abs(moments.cross.copy())
    cross[np.arange(len(own)), own] = 0
    return 2 * cross.max(1)


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_theorem_2_and_the_error_bounds_hold(seed, between):
    moments, own, least = problem(seed, between)
    largest = top(moments, own)
    lams = [share * largest for share in (0.01, 0.1, 0.3, 0.6, 0.9, 1.0)]
    coefs = [solved(moments, lam) for lam in lams]
    free = ~np.eye(8, dtype=bool)
    for lam, coef in zip(lams, coefs, strict=True):
        assert coef.dtype == np.float64
        left = errors(moments, coef)
        low, high = error_bounds(moments, own, least, lam)
        slack = 1e-8 * moments.squares
        assert (low <= left + slack).all() and (left <= high + slack).all()
        assert (low >= least).all() and (high <= moments.squares + slack).all()  # finer than Eq. 5
        for other, there in zip(lams, coefs, strict=True):
            gap = np.abs(slopes(moments, coef, lam) - slopes(moments, there, other))
            assert (gap <= slope_bounds(moments, least, lam, other) + 1e-7)[free].all()
    assert (error_bounds(moments, own, least, lams[3])[0] > 1.01 * least).all()
    assert (error_bounds(moments, own, least, lams[0])[1] < 0.9 * moments.squares).any()


def test_both_are_met_where_the_target_is_a_multiple_of_one_class():
    x = np.random.default_rng(0).normal(size=(200, 4)) + 0.5
    gram = logit_gram(x).gram
    moments = LogitGram(gram, 3 * gram[[2]], 9 * gram[[2], 2], 200, False)
    own, least = np.array([-1]), np.zeros(1)
    largest = 2 * np.abs(moments.cross).max(1)
    assert moments.cross[0].argmax() == 2
    for share in (0.1, 0.5, 0.9):
        left = errors(moments, solved(moments, share * largest))
        assert left == pytest.approx(error_bounds(moments, own, least, share * largest)[0], rel=1e-6)
    one, two = largest, 3 * largest  # θ is 0 at both
    nothing = np.zeros((1, 4))
    gap = np.abs(slopes(moments, nothing, one) - slopes(moments, nothing, two))
    bound = slope_bounds(moments, least, one, two)
    assert gap[0, 2] == pytest.approx(bound[0, 2], rel=1e-9)
    assert (gap[0, [0, 1, 3]] < 0.99 * bound[0, [0, 1, 3]]).all()  # Cauchy and Schwarz: only for a multiple
    assert errors(moments, nothing) == pytest.approx(error_bounds(moments, own, least, largest)[1], rel=1e-9)
