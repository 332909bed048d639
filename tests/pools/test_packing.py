"""Packed indices: what was packed comes back, in the bytes that were promised."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brickwork.pools import KernelPool
from brickwork.pools.packing import bits_of, pack, packed_size, unpack
from brickwork.pools.streams import Stream
from brickwork.pools.taskfile import read_header, read_task, write_task


@given(
    seed=st.integers(0, 2**20),
    size=st.sampled_from([1, 2, 3, 24, 255, 256, 257, 512, 1000, 70_000]),
    count=st.integers(0, 70),
)
@settings(max_examples=60, deadline=None)
def test_indices_come_back(seed, size, count):
    codes = np.random.default_rng(seed).integers(0, size, count, dtype=np.int32)
    data = pack(codes, size)
    assert len(data) == packed_size(count, size) and 8 * len(data) < bits_of(size) * (count + 8)
    found = unpack(data, count, size)
    assert np.array_equal(found, codes) and found.dtype == np.int32


def test_missing_bytes_are_refused():
    with pytest.raises(ValueError, match="3 bytes where 3 indices below 512 take 4"):
        unpack(pack(np.array([1, 2, 3]), 512)[:-1], 3, 512)


def test_indices_are_packed_only_where_coding_them_gains_nothing(network):
    """Evenly chosen kernels: packed. A kernel that is chosen most of the time: coded, in fewer bytes."""
    pool = KernelPool.cluster([network], size=16)
    even, uneven = dict(pool.base.codes), dict(pool.base.codes)
    layer = max(pool.shapes, key=lambda name: pool.shapes[name].count)
    draw, count = np.random.default_rng(0), pool.shapes[layer].count
    kind = type(even[layer])
    even[layer] = kind(draw.permutation(count) % 16).int()
    uneven[layer] = kind(np.where(draw.random(count) < 0.9, 3, even[layer].numpy())).int()
    place = list(pool.shapes).index(layer)
    for codes, mode in ((even, "p"), (uneven, "o")):
        task = type(pool.base)(pool.hash, pool.base.origin, codes, pool.base.own)
        data = write_task(task, pool)
        assert read_header(data, "here")["codes"][place] == mode
        assert read_task(data, pool, "here").hash == task.hash
    coded = Stream()
    coded.own(uneven[layer].numpy(), 16)
    assert len(coded.close()) < packed_size(count, 16) / 1.5
