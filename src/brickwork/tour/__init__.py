"""The tour: every part of Brickwork once, on embedded digits, with the figures of a report."""

from brickwork.tour.run import PARTS, take

__all__ = ["PARTS", "take"]
