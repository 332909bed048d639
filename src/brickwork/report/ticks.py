"""Where axes end and which numbers stand on them."""

import math
from collections.abc import Iterable


def log_range(values: Iterable[float]) -> tuple[float, float]:
    """The ends of a logarithmic axis, with some room."""
    logs = [math.log10(value) for value in values]
    room = max(0.15, 0.06 * (max(logs) - min(logs)))
    return 10 ** (min(logs) - room), 10 ** (max(logs) + room)


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, … between two numbers; over many decades the powers of ten alone.

    >>> log_ticks(0.9, 30), log_ticks(1, 1e5)
    ([1.0, 2.0, 5.0, 10.0, 20.0], [1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0])
    """
    kinds = (1, 2, 5) if high < 1e4 * low else (1,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [k * 10.0**d for d in decades for k in kinds if low <= k * 10.0**d <= high]


def percent_range(values: Iterable[float]) -> tuple[float, float]:
    """Whole fives around percentages, at most from 0 to 100."""
    known = list(values)
    low, high = 5 * math.floor(min(known) / 5), 5 * math.ceil(max(known) / 5)
    return float(max(0, low - (5 if low == high else 0))), float(max(5, min(100, high)))


def percent_levels(low: float, high: float) -> list[float]:
    """Six numbers from one to the other."""
    return [low + (high - low) * k / 5 for k in range(6)]


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers, at most so many, the first at or below `low` and the last at or above `high`; 0 where it is near.

    >>> round_ticks(73.8, 95.6), round_ticks(3.0, 95.6), round_ticks(0.5, 0.5)
    ([70.0, 80.0, 90.0, 100.0], [0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    """
    if low > 0 and low < 0.4 * high:
        low = 0.0
    high = high if high > low else low + (abs(low) or 1.0)
    power = math.floor(math.log10(high - low)) - 1
    for step in (factor * 10.0 ** (power + k) for k in range(4) for factor in (1, 2, 5)):
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first < most:
            return [round(k * step, 12) for k in range(first, last + 1)]
    raise AssertionError("a step of a hundred times the span has few ticks")
