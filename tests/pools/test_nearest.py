"""Nearest assignment against brute force, whatever the way."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brickwork.errors import BadData, BadModel, RequestError
from brickwork.pools.nearest import Sorted, nearest


def brute(vectors, codebook):
    """Squared distances (n, K) in float64."""
    return (vectors.double()[:, None] - codebook.double()[None]).square().sum(2)


@given(
    seed=st.integers(0, 2**20),
    rows=st.integers(1, 40),
    size=st.integers(1, 30),
    length=st.sampled_from([1, 4, 9, 25, 32]),
    way=st.sampled_from(["auto", "compiled", "products"]),
)
@settings(max_examples=60, deadline=None)
def test_no_other_entry_is_closer(seed, rows, size, length, way):
    draw = torch.Generator().manual_seed(seed)
    vectors = torch.randn(rows, length, generator=draw, dtype=torch.float64)
    codebook = torch.randn(size, length, generator=draw, dtype=torch.float64)
    found = nearest(vectors, codebook, way=way)
    distances = brute(vectors, codebook)
    assert torch.allclose(distances.gather(1, found[:, None])[:, 0], distances.min(1).values, atol=1e-12)


@given(
    seed=st.integers(0, 2**20),
    length=st.sampled_from([1, 2, 9, 27]),
    way=st.sampled_from(["auto", "compiled", "products"]),
)
@settings(max_examples=40, deadline=None)
def test_ties_go_to_the_lowest_index(seed, length, way):
    draw = np.random.default_rng(seed)
    # small whole numbers: every distance is exact, and ties are frequent
    vectors = torch.from_numpy(draw.integers(-2, 3, (50, length)).astype(np.float32))
    codebook = torch.from_numpy(draw.integers(-2, 3, (20, length)).astype(np.float32))
    wanted = brute(vectors, codebook).argmin(1)
    assert torch.equal(nearest(vectors, codebook, way=way), wanted)


def test_halves_between_sorted_entries_go_to_the_lowest_index():
    codebook = torch.tensor([[2.0], [0.0], [4.0], [0.0]])
    assert Sorted(codebook).find(torch.tensor([[1.0], [3.0], [-9.0], [9.0], [0.0]])).tolist() == [0, 0, 1, 2, 1]


def test_several_threads_give_the_same():
    draw = torch.Generator().manual_seed(0)
    vectors, codebook = torch.randn(20_000, 9, generator=draw), torch.randn(64, 9, generator=draw)
    from brickwork.pools.nearest_cpu import search_cpu

    one, three = (search_cpu(vectors.numpy(), codebook.numpy(), n) for n in (1, 3))
    assert np.array_equal(one, three)


def test_inputs_that_do_not_fit():
    with pytest.raises(BadModel, match=r"vectors are \(2, 3\)"):
        nearest(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(BadData, match="empty"):
        nearest(torch.zeros(2, 3), torch.zeros(0, 3))
    with pytest.raises(RequestError, match="'magic'"):
        nearest(torch.zeros(2, 3), torch.zeros(1, 3), way="magic")
    with pytest.raises(BadModel, match="entries of 2 numbers"):
        nearest(torch.zeros(2, 2), torch.zeros(1, 2), way="sorted")
