"""Moments collected in a stream are the moments of all rows at once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brickwork.errors import BadData
from brickwork.moments import Moments, gram


def rows(n: int, width: int, seed: int, *lead: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*lead, n, width, generator=rng, dtype=torch.float64).to(dtype)


def once(x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    x, y = x.double(), y.double()
    return {"gram": x.mT @ x, "cross": x.mT @ y, "sum_x": x.sum(-2), "sum_y": y.sum(-2), "sum_yy": y.square().sum(-2)}


def agree(seen: Moments, wanted: dict[str, torch.Tensor], tolerance: float) -> None:
    for name, value in wanted.items():
        torch.testing.assert_close(getattr(seen, name), value, rtol=tolerance, atol=tolerance)


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 9), max_size=6),
    d=st.integers(1, 5),
    m=st.integers(1, 3),
    groups=st.sampled_from([None, 1, 3]),
    seed=st.integers(0, 1000),
)
def test_any_chunking_gives_the_same_sums(sizes, d, m, groups, seed):
    lead = () if groups is None else (groups,)
    x, y = rows(sum(sizes), d, seed, *lead), rows(sum(sizes), m, seed + 1, *lead)
    seen = Moments.empty(d, m, groups=groups)
    for a, b in zip(x.split(sizes, -2), y.split(sizes, -2), strict=True) if sizes else ():
        seen.add(a, b)
    agree(seen, once(x, y), 1e-12)
    assert seen.rows == sum(sizes)


def test_blocks_and_pieces_change_nothing(monkeypatch):
    x, y = rows(50, 7, 0), rows(50, 2, 1)
    monkeypatch.setattr(gram, "_BLOCK", 3)
    monkeypatch.setattr(gram, "_PIECE", 4)
    agree(Moments.empty(7, 2).add(x, y), once(x, y), 1e-12)
    agree(Moments.empty(7, 2).add(x.float(), y.float()), once(x.float(), y.float()), 1e-5)


def test_groups_are_apart():
    x, y = rows(20, 4, 0, 3), rows(20, 2, 1, 3)
    seen = Moments.empty(4, 2, groups=3).add(x, y)
    for g in range(3):
        alone = Moments.empty(4, 2).add(x[g], y[g])
        agree(alone, {k: getattr(seen, k)[g] for k in once(x, y)}, 1e-12)


def test_float32_in_float64_sums():
    """Rows that are all alike round to the same side: one float32 product of a million is 1.3 % off."""
    chunk = torch.full((10_000, 1), 0.1, dtype=torch.float32)
    seen = Moments.empty(1, 1)
    for _ in range(100):
        seen.add(chunk, chunk)
    assert seen.gram.dtype == seen.cross.dtype == seen.sum_x.dtype == torch.float64
    exact = 1_000_000 * float(chunk[0, 0].double()) ** 2
    assert abs(float(seen.gram) / exact - 1) < 1e-4
    assert abs(float(seen.sum_yy) / exact - 1) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_products_are_not_rounded_to_lower_precision(dtype):
    x, y = rows(30, 3, 0, dtype=dtype), rows(30, 2, 1, dtype=dtype)
    agree(Moments.empty(3, 2).add(x, y), once(x, y), 1e-5)


def test_a_sum_of_squares_beyond_float16_is_finite():
    assert Moments.empty(3, 2).add(100 * rows(30, 3, 0).half(), rows(30, 2, 1).half()).finite


def test_plus_and_scaled():
    x, y = rows(12, 3, 0), rows(12, 2, 1)
    first, second = Moments.empty(3, 2).add(x[:5], y[:5]), Moments.empty(3, 2).add(x[5:], y[5:])
    before = first.gram.clone()
    both = first.plus(second)
    agree(both, once(x, y), 1e-12)
    assert both.rows == 12
    assert torch.equal(first.gram, before)
    half = first.plus(second.scaled(0.5))
    assert half.rows == 5 + 3.5
    torch.testing.assert_close(half.cross, first.cross + second.scaled(0.5).cross)


def test_unpaired_rows_are_refused():
    with pytest.raises(BadData, match="paired"):
        Moments.empty(3, 2).add(rows(4, 3, 0), rows(5, 2, 0))


def test_finite_says_whether_all_is():
    x, y = rows(4, 3, 0), rows(4, 2, 0)
    assert Moments.empty(3, 2).add(x, y).finite
    for bad in (float("nan"), float("inf")):
        y[1, 1] = bad
        assert not Moments.empty(3, 2).add(x, y).finite
