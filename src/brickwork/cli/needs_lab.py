"""Studies and benchmarks are in a package of their own, which an installation may not have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_lab() -> Iterator[None]:
    """Imports of brickwork_lab within this block end in one sentence where the package is missing.

    >>> with needs_lab():  # doctest: +ELLIPSIS
    ...     raise ModuleNotFoundError(name="brickwork_lab")
    Traceback (most recent call last):
    ...
    brickwork.errors.RequestError: studies and benchmarks are in ... installed here; in that folder: pip install -e .
    """
    from brickwork.errors import RequestError

    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "brickwork_lab":
            raise
        raise RequestError(
            "studies and benchmarks are in the package brickwork_lab of Brickwork's source tree, which is not "
            "installed here; in that folder: pip install -e ."
        ) from error
