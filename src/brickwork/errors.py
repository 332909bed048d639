"""Every refusal of Brickwork is a BrickworkError, and reads as one sentence or two.

    BrickworkError
    ├── RequestError          the request was wrong (command line: exit 2, nothing written)
    │   ├── UnknownName       a name that does not exist; carries the nearest ones
    │   ├── MissingExtra      an optional package is not installed
    │   ├── OutputExists      the output is there already and it was not said to replace it
    │   ├── BadFile           a file or folder that cannot be read as what it should be
    │   ├── BadData           images, labels or logits that cannot be used
    │   └── BadModel          a model, tensor or index that does not fit the operation
    │       └── Unsupported   an operation of the model that cannot be kept exact, by name
    └── JobFailed             the request was right and the work failed (command line: exit 1)

A message says what was wrong, the value, what is allowed, and what to do next. Low-level code raises a
short fact; the public function adds the context once.
"""

import difflib
import re
from collections.abc import Callable, Iterable

from brickwork.words import some_of


class BrickworkError(Exception):
    """Base of every error Brickwork raises on purpose.

    A parameter stands in the message in backticks: "`budget` is 2". A Python caller reads its name, a user of the command
    line the option that was typed (`in_words_of`).

    >>> str(BrickworkError("`round_to` is 0")), BrickworkError("`round_to` is 0").in_words_of(lambda n: f"--{n}")
    ('round_to is 0', '--round_to is 0')
    """

    exit_code = 1

    def __init__(self, message: str = "") -> None:
        self.template = message
        super().__init__(self.in_words_of(lambda name: name))

    def in_words_of(self, spell: Callable[[str], str]) -> str:
        """The message with every parameter as `spell` writes it."""
        return re.sub(r"`([a-z][a-z0-9_]*)`", lambda match: spell(match[1]), self.template)


class RequestError(BrickworkError):
    """The request was wrong; nothing was written."""

    exit_code = 2


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a refusal that names the nearest name there is; "" where none is near.

    >>> did_you_mean("trian", ["train", "treat"]), did_you_mean("nope", ["train", "treat"])
    ("; did you mean 'train'?", '')
    """
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


class UnknownName(RequestError):
    """A name that does not exist.

    >>> raise UnknownName("architecture", "lenett", ["lenet", "vgg16"])
    Traceback (most recent call last):
    ...
    brickwork.errors.UnknownName: unknown architecture 'lenett'; did you mean 'lenet'? Known: lenet, vgg16.
    >>> str(UnknownName("option of ncm", "k", []))
    "unknown option of ncm 'k'. There is none."
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind, self.name, self.known = kind, name, list(known)
        guess = did_you_mean(name, self.known) or "."
        shown = some_of(self.known, 40)
        others = f"Known: {shown}." if shown else "There is none."
        super().__init__(f"unknown {kind} {name!r}{guess} {others}{' ' + hint if hint else ''}")


class MissingExtra(RequestError):
    """An optional package is not installed.

    >>> raise MissingExtra("timm", "timm models")
    Traceback (most recent call last):
    ...
    brickwork.errors.MissingExtra: timm models need the extra 'timm'; in Brickwork's folder: pip install -e '.[timm]'
    """

    def __init__(self, extra: str, what: str) -> None:
        self.extra = extra
        super().__init__(f"{what} need the extra {extra!r}; in Brickwork's folder: pip install -e '.[{extra}]'")


class OutputExists(RequestError):
    """The output is there already."""

    def __init__(self, path: object, parameter: str = "out") -> None:
        super().__init__(f"{path} exists already; choose another `{parameter}`, or give `force` to replace it.")


class BadFile(RequestError):
    """A file or folder that cannot be read as what it should be."""


class BadData(RequestError):
    """Images, labels or logits that cannot be used."""


class BadModel(RequestError):
    """A model, tensor or index that does not fit the operation."""


class Unsupported(BadModel):
    """An operation of the model that cannot be kept exact; the message names it and its place."""


class JobFailed(BrickworkError):
    """The request was right and the work failed."""


class Doubtful(UserWarning):
    """Something that was done as asked, and that the user should know of."""


class NegativeVariance(Doubtful):
    """Batch-norm statistics were added up to a variance below 0."""


class Unverified(Doubtful):
    """A file was read that carries no hash to compare it with: a stranger's, or one of an older version."""
