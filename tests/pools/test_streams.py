"""The coder: what was written is read, at about the entropy, the same bytes always."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from brickwork.pools.streams import Stream, neighbours


@given(seed=st.integers(0, 2**20), size=st.integers(1, 40), count=st.integers(0, 300), sure=st.booleans())
@settings(max_examples=40, deadline=None)
def test_indices_on_their_own_come_back(seed, size, count, sure):
    draw = np.random.default_rng(seed)
    codes = draw.integers(0, size, count)
    if sure:  # long runs of one index drive the models, and the carry, to their ends
        codes[:] = np.where(draw.random(count) < 0.99, size - 1, codes)
    out = Stream()
    out.own(codes.copy(), size)
    assert np.array_equal(Stream(out.close()).own(np.zeros(count, np.int64), size), codes)


@given(
    seed=st.integers(0, 2**20),
    size=st.integers(1, 30),
    rows=st.integers(1, 12),
    columns=st.integers(1, 12),
    share=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
@settings(max_examples=40, deadline=None)
def test_indices_relative_to_others_come_back(seed, size, rows, columns, share):
    draw = np.random.default_rng(seed)
    order = neighbours(draw.standard_normal((size, 3)))
    old = draw.integers(0, size, rows * columns)
    new = np.where(draw.random(len(old)) < share, draw.integers(0, size, len(old)), old)
    out = Stream()
    out.relative(new.copy(), old, order, columns)
    assert np.array_equal(Stream(out.close()).relative(np.zeros(len(old), np.int64), old, order, columns), new)


@given(values=st.lists(st.integers(-(2**20), 2**20), max_size=50))
@settings(max_examples=40, deadline=None)
def test_numbers_come_back(values):
    numbers = np.array(values, np.int64)
    out = Stream()
    out.numbers(numbers.copy())
    assert Stream(out.close()).numbers(np.zeros(len(values), np.int64)).tolist() == values


def test_several_parts_share_a_stream():
    draw = np.random.default_rng(0)
    codes, numbers = draw.integers(0, 7, 1000), draw.integers(-50, 50, 100)
    out = Stream()
    out.own(codes.copy(), 7)
    out.numbers(numbers.copy())
    out.own(codes[::-1].copy(), 7)
    read = Stream(out.close())
    assert np.array_equal(read.own(np.zeros(1000, np.int64), 7), codes)
    assert np.array_equal(read.numbers(np.zeros(100, np.int64)), numbers)
    assert np.array_equal(read.own(np.zeros(1000, np.int64), 7), codes[::-1])


def test_the_length_is_about_the_entropy():
    draw = np.random.default_rng(0)
    chance = draw.dirichlet(np.full(64, 0.3))
    codes = draw.choice(64, 20_000, p=chance)
    out = Stream()
    out.own(codes, 64)
    share = np.bincount(codes, minlength=64) / len(codes)
    entropy = -(share[share > 0] * np.log2(share[share > 0])).sum() * len(codes) / 8
    assert entropy < len(out.close()) < 1.03 * entropy


def test_few_changes_to_neighbours_cost_few_bytes():
    draw = np.random.default_rng(0)
    order = neighbours(draw.standard_normal((256, 9)))
    old = draw.integers(0, 256, 20_000)
    new, where = old.copy(), draw.random(20_000) < 0.02
    new[where] = order[old[where], draw.integers(0, 8, where.sum())]
    out = Stream()
    out.relative(new, old, order, 100)
    flags = 20_000 * 0.1415 / 8  # entropy of a flag at 2 %
    assert len(out.close()) < 1.15 * (flags + where.sum() * 3 / 8)


def test_a_stream_that_ends_early_is_read_without_a_crash():
    out = Stream()
    out.own(np.arange(500) % 50, 50)
    data = out.close()
    assert Stream(data[: len(data) // 2]).own(np.zeros(500, np.int64), 50).max() < 64
    assert Stream(b"").own(np.zeros(5, np.int64), 4).max() < 4


def test_neighbours_are_sorted_by_distance():
    book = np.random.default_rng(0).standard_normal((40, 4))
    order = neighbours(book)
    for k in range(40):
        distance = np.square(book[order[k]] - book[k]).sum(1)
        assert (np.diff(distance) > -1e-2).all() and k not in order[k] and len(set(order[k])) == 39


@given(seed=st.integers(0, 2**20), size=st.sampled_from([1, 2, 5, 64, 65, 200]), length=st.sampled_from([1, 4, 9, 49]))
@settings(max_examples=25, deadline=None)
def test_neighbours_are_those_of_the_plain_rule(seed, size, length):
    """Files hold ranks among neighbours: the order is part of the format, ties included."""
    book = np.random.default_rng(seed).integers(-3, 4, (size, length)).astype(np.float32)  # many ties
    whole = np.rint(book.astype(np.float64) / (np.abs(book).max() or 1.0) * 2048).astype(np.int64)
    distance = np.square(whole[:, None] - whole[None]).sum(2)
    shift = max(0, int(distance.max()).bit_length() - (30 - size.bit_length()))
    for k, row in enumerate(neighbours(book).tolist()):
        wanted = sorted((j for j in range(size) if j != k), key=lambda j: (distance[k, j] >> shift, j))
        assert row == wanted
