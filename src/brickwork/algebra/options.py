"""The options of weight algebra, paper 1's operations."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from brickwork.options import Options, option, parse_numbers, seed_option

BN = "Batch-norm statistics: added up like weights (linear), or kept."


class AssignOptions(Options):
    """How a delta is added to a network."""

    bn: Literal["linear", "keep"] = option(default="linear", help=BN)
    strict: bool = option(default=False, help="Only to the network that the delta was taken from.")


class MergeOptions(Options):
    """What becomes of the tensors that are not plain weights."""

    bn: Literal["linear", "keep"] = option(default="linear", help=BN)
    heads: Literal["refuse", "keep"] = option(default="refuse", help="Tensors whose shapes differ.")
    seed: int = seed_option()


class SweepRunOptions(Options):
    """How cells of a plane are measured."""

    bn: Literal["linear", "keep"] = option(default="linear", help=BN)
    batch_size: int | None = option(default=None, at_least=1, help="Images in a pass.", default_text="as fits")
    cells: int | None = option(default=None, at_least=1, help="Cells in a pass.", default_text="as fits")
    precision: Literal["auto", "bf16"] = option(
        default="auto", help="The networks' own precision, or bf16: faster on a GPU."
    )
    journal: Path | None = option(default=None, help="File to go on from when stopped; with an engine, a folder.")


class SweepOptions(SweepRunOptions):
    """The grid of a sweep."""

    alpha: tuple[float, ...] = option(
        default=tuple(parse_numbers("0:1:0.1")), parse=parse_numbers, metavar="NUMBERS", help="α: 0:1:0.1, or 0,0.5,1."
    )
    beta: tuple[float, ...] | None = option(
        default=None,
        parse=parse_numbers,
        metavar="NUMBERS",
        help="β, likewise, for the second network.",
        default_text="as alpha",
    )

    def rules(self) -> Iterator[str]:
        for name in ("alpha", "beta"):
            values = getattr(self, name)
            if values is not None and (not values or len(set(values)) < len(values)):
                yield f"`{name}` is {list(values)}; it must be one number or several different ones"


class BalancedPointOptions(SweepRunOptions):
    """The search for the balanced point."""

    start: tuple[float, ...] = option(default=(0.5, 0.5), separator=",", help="α and β where the search begins.")
    step: float = option(default=0.5, above=0, help="How far it looks at first.")
    smallest: float = option(default=0.02, above=0, help="Step below which it ends.")
    tries: int = option(default=80, at_least=1, help="Cells it looks at, about.")

    def rules(self) -> Iterator[str]:
        if len(self.start) != 2:
            yield f"`start` is {list(self.start)}; it must be two numbers, α and β"


class CancelOptions(Options):
    """The gradient descents that are compared."""

    lr: tuple[float, ...] = option(
        default=(0.001, 0.01), above=0, separator=",", help="Learning rates, as in 0.001,0.01."
    )
    steps: tuple[int, ...] = option(
        default=(1, 2, 5, 10), at_least=1, separator=",", help="Steps of gradient descent on each task, as in 1,2,5."
    )
    batch_size: int | None = option(default=None, at_least=1, help="Images per step.", default_text="all of them")
    bn: Literal["batch", "keep"] = option(
        default="batch", help="Batch norms use the batch, as in training, or keep statistics."
    )
    seed: int = seed_option()

    def rules(self) -> Iterator[str]:
        for name in ("lr", "steps"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                yield f"`{name}` is {list(values)}; it must be one number or several different ones"
