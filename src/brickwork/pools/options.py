"""The options of kernel pools, paper 4's operations."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar

from brickwork.options import Options, fields_of, option, parse_bytes, seed_option
from brickwork.training.options import RUNNING, TRAINING, RunningOptions, TrainOptions

BITS = (32, 16, 12)  # of a stored value: float32, float16, and float16 with six bits behind the point
FREE = 0.6  # of a run in which the pool grows: weights that are used as they are show best what is missing
STAY = "Keep an index of the reference unless another kernel is nearer by this × the neighbours' squared distance."
STORED = "Bits per stored value of norms and head: 32, 16 or 12."
COMMITMENT = "Commitment weight β."
REFRESH = "Choose kernels anew every so many steps."
GROWTH = "A pool that grows"  # heading of the help

Kind = TypeVar("Kind", bound=Options)


def _most_bytes(help: str) -> Any:
    """The largest size of a file."""
    return option(default=None, at_least=1, parse=parse_bytes, metavar="BYTES", help=help)


class CodebookOptions(Options):
    """How the weights of a network become vectors, and how many of them a codebook holds."""

    size: int = option(default=512, at_least=1, help="Kernels per codebook.")
    group: int = option(default=1, at_least=1, help="Scalars of 1×1 and linear layers per vector.")
    head: str | None = option(default=None, help="Layer that makes the logits.", default_text="the last one")


class ClusterOptions(CodebookOptions):
    """A pool by k-means, without training."""

    seed: int = seed_option()


class PoolTrainOptions(TrainOptions):
    """Training in which a network uses a pool's kernels."""

    epochs: int = option(default=30, at_least=1, help="Passes over the images.", panel=TRAINING)
    lr: float = option(default=0.02, above=0, help="Peak learning rate.", panel=TRAINING)
    record: bool = option(default=False, help=fields_of(RunningOptions)["record"].setting.help, panel=RUNNING)

    def training(self) -> dict[str, Any]:
        """As keyword arguments of `train`."""
        return {name: getattr(self, name) for name in (*fields_of(TrainOptions), "record")}


class PretrainOptions(CodebookOptions, PoolTrainOptions):
    """A pool that is trained together with a network."""

    epochs: int = option(default=6, at_least=1, help="Passes over the images.", panel=TRAINING)
    commitment: float = option(default=0.5, at_least=0, help=COMMITMENT)
    decay: float = option(default=0.99, at_least=0, below=1, help="Decay of the running means that kernels follow.")
    refresh: int = option(default=1, at_least=1, help=REFRESH)
    revive: int = option(default=100, at_least=1, help="Replace unused kernels every so many steps.")


class GrowOptions(Options, panel=GROWTH):
    """How many kernels a task may bring."""

    grow: int | None = option(default=None, at_least=1, help="Kernels per layer that the task may add.")
    grow_bytes: int | None = _most_bytes("Size of the file of new kernels, at most, as in 20K.")

    def rules(self) -> Iterator[str]:
        yield from super().rules()
        if self.grow is None and self.grow_bytes is not None:
            yield f"`grow_bytes` is {self.grow_bytes}, and `grow`, kernels per layer at most, is not given"


class SearchOptions(Options):
    """How kernels are chosen while a network is trained, and what is kept of it."""

    commitment: float = option(default=0.5, at_least=0, help=COMMITMENT)
    refresh: int = option(default=4, at_least=1, help=REFRESH)
    free: float | None = option(
        default=None,
        at_least=0,
        below=1,
        help="Share of the run without the pool's kernels.",
        default_text="0; with --grow 0.6",
    )
    stay: float = option(default=0.0, at_least=0, help=STAY)
    budget: int | None = _most_bytes("Size of the task's file, at most, as in 100K.")
    norms: Literal["running", "measured"] = option(
        default="running", help="Statistics of batch norms: running ones, or measured anew after training."
    )
    fold: bool = option(
        default=False, help="Store norms with the start's statistics: half the bytes, the same function."
    )
    bits: int = option(default=16, metavar="32|16|12", help=STORED)

    def rules(self) -> Iterator[str]:
        yield from super().rules()
        yield from bits_rule(self.bits)
        if self.budget is not None and self.norms == "measured":
            yield "a `budget` is kept to the byte, which `norms` measured afterwards would undo; leave one out"


class LearnOptions(GrowOptions, SearchOptions, PoolTrainOptions):
    """A task that is learned by training."""

    @property
    def free_share(self) -> float:
        """The share of the run without the pool's kernels: what was asked for, or what suits the pool."""
        return self.free if self.free is not None else 0.0 if self.grow is None else FREE


class EncodeOptions(GrowOptions):
    """A network that is trained already, as a task."""

    metric: Literal["gram", "weight"] = option(
        default="gram", help="Choose kernels by a layer's responses (gram), or by its weights alone."
    )
    stay: float = option(default=0.0, at_least=0, help=STAY)
    bits: int = option(default=16, metavar="32|16|12", help=STORED)
    ridge: float = option(default=1e-2, at_least=0, help="Ridge penalty towards the network's own weights.")
    seed: int = seed_option()

    def rules(self) -> Iterator[str]:
        yield from super().rules()
        yield from bits_rule(self.bits)


def bits_rule(bits: int) -> Iterator[str]:
    """The problem of a number of bits that is none of those that there are."""
    if bits not in BITS:
        yield f"`bits` is {bits}; it must be one of {', '.join(map(str, BITS))}"


def restored(options: type[Kind], facts: Mapping[str, Any], **more: Any) -> Kind:
    """The options that a record names; all others as they are by default."""
    names = options.__dataclass_fields__
    return options(**{**{name: facts[name] for name in names if name in facts}, **more})
