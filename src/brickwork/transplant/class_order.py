"""The same classes in another order: which stands for which."""

from collections.abc import Sequence


def places_in(names: Sequence[str] | None, others: Sequence[str] | None) -> list[int] | None:
    """For each name its place among the others; None: they stand alike, or are not the same names, or are not known.

    >>> places_in(("cat", "dog", "fox"), ("fox", "cat", "dog")), places_in(("cat",), ("dog",))
    ([1, 2, 0], None)
    """
    if names is None or others is None or list(names) == list(others):
        return None
    if sorted(names) != sorted(others) or len(set(names)) < len(names):
        return None
    return [list(others).index(name) for name in names]
