"""The options of bringing a network in: `import`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from brickwork.errors import RequestError
from brickwork.options import Options, option, parse_shape
from brickwork.origin import Interpolation


def parse_classes(text: str) -> list[str]:
    """Class names: a text file with one on each line, or a list with commas.

    >>> parse_classes("cat, dog")
    ['cat', 'dog']
    """
    path = Path(text)
    if path.suffix.lower() in (".txt", ".names", ".labels", ".csv") or path.is_file():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise RequestError(f"`classes` {text} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError:
            raise RequestError(f"`classes` {text} is no UTF-8 text; save it as UTF-8.") from None
        names = [line.strip() for line in lines if line.strip()]
    else:
        names = [name.strip() for name in text.split(",")]
    if not all(names) or not names:
        raise RequestError(
            f"`classes` is {text!r}; it must be names with commas, or a text file with one on each line."
        )
    return names


def parse_channel_numbers(text: str) -> list[float]:
    """A number per channel, or one for all.

    >>> parse_channel_numbers("0.485,0.456,0.406")
    [0.485, 0.456, 0.406]
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(f"{text!r} is no number per channel; write 0.5, or 0.485,0.456,0.406.") from None


def _channel_numbers(help: str, **bounds: float) -> Any:
    said = "what the library says"
    parse = parse_channel_numbers
    return option(default=None, parse=parse, metavar="NUMBERS", help=help, default_text=said, **bounds)


def _image_size(help: str, default: str) -> Any:
    sides = {"at_least": 1, "at_most": 4096}
    return option(default=None, parse=parse_shape, metavar="SIZE", help=help, default_text=default, **sides)


class ImportOptions(Options):
    """What a file of weights does not say: its classes, and how its images are prepared."""

    classes: tuple[str, ...] | None = option(
        default=None,
        parse=parse_classes,
        metavar="FILE|NAMES",
        help="Class names in the order of the outputs: a text file with one on each line, or cat,dog.",
        default_text="what the folder says, or numbers",
    )
    mean: tuple[float, ...] | None = _channel_numbers(
        "Mean that is subtracted from images of 0..1, per channel or one for all; 0 where none is."
    )
    std: tuple[float, ...] | None = _channel_numbers(
        "Standard deviation that they are divided by, likewise; 1 where they are not.", above=0
    )
    size: tuple[int, ...] | None = _image_size(
        "Height and width that the network is given: 224, or 224x192.", "the architecture's"
    )
    resize: tuple[int, ...] | None = _image_size(
        "Scaling before the middle of --size is cut out: 256 (the shorter side), or 224x224 (both, stretched).",
        "what the library says, or to the size",
    )
    interpolation: Interpolation | None = option(
        default=None, help="How images are scaled.", default_text="what the library says, or bilinear"
    )
    key: str | None = option(
        default=None,
        help="Entry of a .pth file that holds the weights.",
        default_text="state_dict, model_state_dict or model, where there is one",
    )

    skip: tuple[str, ...] = option(
        default=(),
        metavar="PATTERN",
        help="Names of tensors of the file that are left out, as in 'aux*' for heads that the network has not; repeatable.",
    )

    def rules(self) -> Iterator[str]:
        if self.classes is not None and len(set(self.classes)) < len(self.classes):
            twice = next(name for name in self.classes if self.classes.count(name) > 1)
            yield f"`classes` name {twice!r} twice; every output needs a name of its own"
        for name in ("size", "resize"):
            if len(getattr(self, name) or ()) > 2:
                yield f"`{name}` is {getattr(self, name)}; it must be one number, or height and width"
        for name in ("mean", "std"):
            if len(getattr(self, name) or (0,)) not in (1, 3):
                yield f"`{name}` has {len(getattr(self, name))} numbers; it must have one, or one per channel (1 or 3)"
