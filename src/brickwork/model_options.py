"""The options of looking at a model: `eval` and `info`."""

from typing import Literal

from brickwork.errors import RequestError
from brickwork.options import Options, option, parse_shape


class DataSplitOptions(Options):
    """Which images of a data set are looked at."""

    split: Literal["test", "train", "all"] | None = option(
        default=None,
        help="Which images of the data; @N limits these.",
        default_text="test, or all of a pile without splits that the model was not made from",
    )


class EvalOptions(DataSplitOptions):
    """Which images a model is measured on."""

    batch_size: int = option(default=512, at_least=1, help="Images at a time.")
    restrict: str | None = option(
        default=None,
        metavar="CLASSES",
        help="Judge among these classes of the model only, on their images: cat,deer or 0-4.",
    )


class InfoOptions(Options):
    """What to show of a model."""

    input_shape: tuple[int, ...] | None = option(
        default=None,
        parse=parse_shape,
        at_least=1,
        help="Shape of one example, as in 3x32x32.",
        default_text="the model's own",
        also=("--input",),
    )
    dry_run: tuple[str, ...] = option(
        default=(),
        metavar="SPACE=INDICES",
        help="Show what keeping only these channels would remove, e.g. conv1=0-3,7; repeatable.",
    )

    latency: bool = option(
        default=False, help="Measure the milliseconds of a forward pass of one example, and of 32, on this machine."
    )

    def keep(self) -> dict[str, list[int]]:
        """The channels of `dry_run` by space; indices are numbers and ranges.

        >>> InfoOptions(dry_run=["conv1=0-3,7", "classes=2"]).keep()
        {'conv1': [0, 1, 2, 3, 7], 'classes': [2]}
        """
        result: dict[str, list[int]] = {}
        for pair in self.dry_run:
            space, _, text = pair.rpartition("=")
            parts = [part.strip().partition("-") for part in text.split(",")]
            good = all(a.isdecimal() and (b.isdecimal() if dash else not b) for a, dash, b in parts)
            if not space or not good:
                raise RequestError(f"`dry_run` takes SPACE=INDICES, as in conv1=0-3,7, not {pair!r}.")
            if space in result:
                raise RequestError(f"space {space!r} is given twice; give all its indices at once, as in 0-3,7.")
            for a, dash, b in parts:
                if dash and int(b) < int(a):
                    raise RequestError(f"the range {a}-{b} of space {space!r} runs backwards; write {b}-{a}.")
                if dash and int(b) - int(a) > 1_000_000:
                    raise RequestError(f"the range {a}-{b} of space {space!r} is longer than any space.")
            result[space] = [k for a, dash, b in parts for k in range(int(a), int(b if dash else a) + 1)]
        return result
