"""Coordinate descent for many lasso problems that share one Gram matrix, compiled, a thread for each target.

Target t: minimise over θ with θ[own] = 0 the paper's Eq. 6, with a low-rank correction of the Gram matrix,

    θᵀ(G + Σ_r w_r x_r x_rᵀ)θ − 2cᵀθ + square + λ‖θ‖₁

The working set starts from the features that violate the KKT conditions most. On it, sweeps of coordinate
descent find the support and the signs, and a Newton step (one small Cholesky) then lands on the exact solution
for them. The gradient over all features is recomputed afterwards, and it is the certificate. Features that the
duality gap proves to be zero (gap-safe sphere) are not looked at again.
"""

from typing import NamedTuple

import numpy as np
from numba import njit, prange

#: sums may be taken in any order, which is what lets them run on vectors; NaN and infinity keep their meaning
_FAST = {"reassoc", "contract"}
_OUTER, _SWEEPS = 200, 3000  # at most so many working sets, and sweeps of one
_LEAVING = 400  # steps of one Newton, divided by the size of the working set: each costs its cube


@njit(cache=True, nogil=True, fastmath=_FAST)
def _soft(value, threshold):
    if value > threshold:
        return value - threshold
    if value < -threshold:
        return value + threshold
    return 0.0


@njit(cache=True, nogil=True, fastmath=_FAST)
def _toward(theta, active, size, goal, step):
    """Move the active coefficients by step · goal; those that reach zero (or would cross it) become zero."""
    for a in range(size):
        i = active[a]
        new = theta[i] + step * goal[a]
        theta[i] = 0.0 if new * theta[i] <= 0.0 or abs(new) <= 1e-13 * abs(theta[i]) else new


@njit(cache=True, nogil=True, fastmath=_FAST)
def _until_zero(theta, active, size, goal):
    """The step along goal at which the first active coefficient is zero; infinity if none ever is."""
    step = np.inf
    for a in range(size):
        if goal[a] * theta[active[a]] < 0.0:
            step = min(step, -theta[active[a]] / goal[a])
    return step


@njit(cache=True, nogil=True, fastmath=_FAST)
def _newton(sub, right, theta, half, factor, active, goal):
    """Towards the minimum for the signs as they are; what reaches zero on the way leaves, and again. True: there.

    Where the active features are dependent, the way leads along their null direction, in which the objective is
    linear, down to the first zero. The objective never rises.
    """
    for _ in range(max(2, _LEAVING // max(1, theta.size))):
        size = 0
        for a in range(theta.size):
            if theta[a] != 0.0:
                active[size] = a
                size += 1
        dependent = -1
        for a in range(size):
            i = active[a]
            for b in range(a + 1):
                total = sub[i, active[b]]
                for k in range(b):
                    total -= factor[a, k] * factor[b, k]
                if a > b:
                    factor[a, b] = total / factor[b, b]
                elif total <= 1e-11 * sub[i, i]:
                    dependent = a
                else:
                    factor[a, a] = np.sqrt(total)
            if dependent >= 0:
                break
            total = right[i] - half * np.sign(theta[i])
            for k in range(a):
                total -= factor[a, k] * goal[k]
            goal[a] = total / factor[a, a]
        solved = size
        if dependent >= 0:  # the null direction: 1 for this feature, minus its combination of those before
            solved = dependent
            for k in range(size):
                goal[k] = -factor[dependent, k] if k < dependent else 0.0
        for back in range(solved):
            a = solved - 1 - back
            total = goal[a]
            for k in range(a + 1, solved):
                total -= factor[k, a] * goal[k]
            goal[a] = total / factor[a, a]
        if dependent >= 0:
            goal[dependent] = 1.0
            slope = 0.0
            for a in range(dependent + 1):
                slope += goal[a] * (half * np.sign(theta[active[a]]) - right[active[a]])
            if slope > 0.0:
                for a in range(dependent + 1):
                    goal[a] = -goal[a]
            step = _until_zero(theta, active, size, goal)
            if step == np.inf:  # only if the slope is 0 up to rounding: the other way then
                for a in range(dependent + 1):
                    goal[a] = -goal[a]
                step = _until_zero(theta, active, size, goal)
            _toward(theta, active, size, goal, step)
            continue
        for a in range(size):
            goal[a] -= theta[active[a]]
        step = _until_zero(theta, active, size, goal)
        if step > 1.0:
            for a in range(size):
                theta[active[a]] += goal[a]
            return True
        _toward(theta, active, size, goal, step)
    return False


@njit(cache=True, nogil=True, fastmath=_FAST)
def _inner(sub, right, theta, half, tol):
    """The problem of one working set, solved until every coordinate's violation is below tol · half."""
    size = theta.size
    q = right.copy()  # the gradient's negative, half of it: right − sub·θ
    for a in range(size):
        if theta[a] != 0.0:
            for b in range(size):
                q[b] -= theta[a] * sub[a, b]
    factor = np.empty((size, size))
    active = np.empty(size, np.int64)
    goal = np.empty(size)
    wait = 1
    for sweep in range(_SWEEPS):
        worst, flipped = 0.0, False
        for a in range(size):
            diagonal = sub[a, a]
            if diagonal <= 0.0:
                continue
            old = theta[a]
            new = _soft(q[a] + diagonal * old, half) / diagonal
            if new != old:
                step = new - old
                theta[a] = new
                for b in range(size):
                    q[b] -= step * sub[a, b]
                worst = max(worst, abs(step) * diagonal)
                if new * old <= 0.0:
                    flipped = True
        if worst <= tol * half:
            return sweep
        wait -= 1
        if wait <= 0 and (not flipped or sweep % 20 == 19):
            wait = 1 if _newton(sub, right, theta, half, factor, active, goal) else 10
            for b in range(size):
                q[b] = right[b]
            for a in range(size):
                if theta[a] != 0.0:
                    for b in range(size):
                        q[b] -= theta[a] * sub[a, b]
    return _SWEEPS


@njit(cache=True, nogil=True, fastmath=_FAST)
def _gradient(gram, cross, theta, own, rows, first, last, index, weight, q):
    """q = c − (G + Σ w x xᵀ)θ over all features; zero at the target's own."""
    n = cross.size
    for j in range(n):
        q[j] = cross[j]
    support = np.flatnonzero(theta)
    paired = support.size - support.size % 2
    for a in range(0, paired, 2):  # two rows at once: q is read and written half as often
        one, two = gram[support[a]], gram[support[a + 1]]
        x, y = theta[support[a]], theta[support[a + 1]]
        for j in range(n):
            q[j] -= x * one[j] + y * two[j]
    if paired < support.size:
        one, x = gram[support[paired]], theta[support[paired]]
        for j in range(n):
            q[j] -= x * one[j]
    for e in range(first, last):
        r = index[e]
        value = 0.0
        for j in range(n):
            if theta[j] != 0.0:
                value += rows[r, j] * theta[j]
        value *= weight[e]
        if value != 0.0:
            for j in range(n):
                q[j] -= value * rows[r, j]
    if own >= 0:
        q[own] = 0.0


@njit(cache=True, nogil=True, fastmath=_FAST)
def _gap(theta, cross, square, q, half):
    """Duality gap of the halved problem, its dual's scale, from numbers the Gram form has at hand."""
    along, size, largest = 0.0, 0.0, 0.0
    product = 0.0
    for j in range(theta.size):
        largest = max(largest, abs(q[j]))
        if theta[j] != 0.0:
            along += cross[j] * theta[j]
            product += q[j] * theta[j]
            size += abs(theta[j])
    # ‖r‖² = square − 2cᵀθ + θᵀQθ, with θᵀQθ = cᵀθ − qᵀθ
    residual = max(square - along - product, 0.0)
    toward = square - along
    bound = half / largest if largest > half else 1.0
    scale = bound if residual <= 0.0 else min(max(toward / residual, -bound), bound)
    primal = 0.5 * residual + half * size
    dual = scale * toward - 0.5 * scale * scale * residual
    return max(primal - dual, 0.0), scale


@njit(cache=True, nogil=True, fastmath=_FAST)
def _violation(q, theta, half):
    if theta > 0.0:
        return abs(q - half)
    if theta < 0.0:
        return abs(q + half)
    return max(abs(q) - half, 0.0)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _sub_gram(gram, rows, first, last, index, weight, chosen, size):
    sub = np.empty((size, size))
    for a in range(size):
        for b in range(size):
            sub[a, b] = gram[chosen[a], chosen[b]]
    for e in range(first, last):
        r, w = index[e], weight[e]
        for a in range(size):
            value = w * rows[r, chosen[a]]
            for b in range(size):
                sub[a, b] += value * rows[r, chosen[b]]
    return sub


@njit(cache=True, nogil=True, fastmath=_FAST | {"nnan"})
def _largest(q, open_):
    """The largest |q| of the features that are open (1.0), 0 if none is."""
    result = 0.0
    for j in range(q.size):
        result = max(result, abs(q[j]) * open_[j])
    return result


@njit(cache=True, nogil=True, fastmath=_FAST)
def _enlarge(q, open_, chosen, size, bar, room):
    """Take open features whose |q| exceeds the bar into the working set, at most `room`, the largest first."""
    fresh = 0
    result = np.empty(q.size, np.int64)
    for j in range(q.size):
        result[fresh] = j  # overwritten unless it counts: no branch to guess
        fresh += abs(q[j]) * open_[j] > bar
    if fresh > room:
        values = np.abs(q[result[:fresh]])
        bar = np.partition(values, fresh - room)[fresh - room] * (1.0 - 1e-12)
    for a in range(fresh):
        j = result[a]
        if abs(q[j]) > bar:
            chosen[size] = j
            open_[j] = 0.0
            size += 1
    return size


class ExtraRows(NamedTuple):
    """Rows that weigh more in some targets' own Gram matrices: target t's are places[first[t] : first[t + 1]]."""

    rows: np.ndarray
    first: np.ndarray
    places: np.ndarray
    weight: np.ndarray


@njit(cache=True, nogil=True, fastmath=_FAST)
def _solve_one(gram, diagonal, cross, square, own, extra, t, half, tol, theta, q, ready):
    """Target t at one λ (half = λ/2); theta holds the start and gets the solution, q its gradient's negative."""
    rows, index, weight = extra.rows, extra.places, extra.weight
    first, last = extra.first[t], extra.first[t + 1]
    n = cross.size
    open_ = np.ones(n)  # 1.0: may still enter the working set
    if own >= 0:
        open_[own] = 0.0
    chosen = np.empty(n, np.int64)
    size, screened, outer = 0, False, 0
    for j in range(n):
        if theta[j] != 0.0:
            chosen[size] = j
            open_[j] = 0.0
            size += 1
    while True:
        if outer > 0 or not ready:
            _gradient(gram, cross, theta, own, rows, first, last, index, weight, q)
        kkt = max(_largest(q, open_) - half, 0.0)
        for a in range(size):
            kkt = max(kkt, _violation(q[chosen[a]], theta[chosen[a]], half))
        outer += 1
        if kkt <= tol * half or outer > _OUTER:
            if not screened:
                break
            screened = False  # the certificate is over all features, whatever was proved about some
            for j in range(n):
                open_[j] = 1.0
            if own >= 0:
                open_[own] = 0.0
            for a in range(size):
                open_[chosen[a]] = 0.0
            kkt = max(kkt, _largest(q, open_) - half)
            if kkt <= tol * half or outer > _OUTER:
                break
        elif outer == 4:
            # The dual solution lies in a ball around the dual point: what cannot reach the bound there is zero.
            gap, scale = _gap(theta, cross, square, q, half)
            radius = np.sqrt(2.0 * gap)
            screened = True
            for j in range(n):
                if abs(scale * q[j]) + radius * np.sqrt(diagonal[j]) < half * (1.0 - 1e-9):
                    open_[j] = 0.0
        size = _enlarge(q, open_, chosen, size, half * (1.0 + tol), max(8, size))
        sub = _sub_gram(gram, rows, first, last, index, weight, chosen, size)
        right, start = np.empty(size), np.empty(size)
        for a in range(size):
            right[a], start[a] = cross[chosen[a]], theta[chosen[a]]
        _inner(sub, right, start, half, 0.1 * tol)
        for a in range(size):
            theta[chosen[a]] = start[a]
    gap, _ = _gap(theta, cross, square, q, half)
    return kkt / half, gap, outer


@njit(cache=True, parallel=True, nogil=True)
def solve_all(gram, diagonal, cross, square, own, extra, half, tol, theta, q, ready):
    """Every target at its own λ: theta (T, n) and q (T, n) are overwritten; (kkt, gap, working sets) of each."""
    count = cross.shape[0]
    kkt, gap, outer = np.zeros(count), np.zeros(count), np.zeros(count, np.int64)
    for t in prange(count):
        result = _solve_one(gram, diagonal, cross[t], square[t], own[t], extra, t, half[t], tol, theta[t], q[t], ready)
        kkt[t], gap[t], outer[t] = result
    return kkt, gap, outer
