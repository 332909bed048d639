"""numba's threads beside torch's: both count on one OpenMP, and starting the one must not change the other."""

import contextlib
from collections.abc import Iterator

import torch

from brickwork.errors import RequestError


def start_threads() -> None:
    """Start numba's threads, once a process, and leave torch the number it had.

    numba's first parallel call sets OpenMP's own count to all cores. torch reads that count: a process that was
    told to use one thread would use them all from there on, and where others work beside it, many times as slowly.
    """
    import numba

    before = torch.get_num_threads()
    numba.get_num_threads()
    if torch.get_num_threads() != before:
        torch.set_num_threads(before)


@contextlib.contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Run numba with this many threads inside; None: as many as torch, which goes by OMP_NUM_THREADS."""
    import numba

    start_threads()
    before, most = numba.get_num_threads(), getattr(numba.config, "NUMBA_NUM_THREADS", 1)
    if count is not None and not 1 <= count <= most:
        raise RequestError(f"threads is {count}; it must be 1 to {most} here.")
    numba.set_num_threads(min(before, torch.get_num_threads()) if count is None else count)
    try:
        yield
    finally:
        numba.set_num_threads(before)
