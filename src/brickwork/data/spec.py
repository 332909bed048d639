"""The small language that names images: SOURCE[:CLASSES][@AMOUNT].

    cifar10                       all of it
    cifar10:0-4                   classes 0 to 4
    cifar10:A   cifar10:B         the first and the second half of the class list
    cifar100:seal,man,palm_tree   classes by name, in this order
    cifar10@4                     four images a class, drawn with the seed
    cifar10:A@100                 both
    photos/                       a folder with a sub-folder a class     (also photos/:cat,dog@10), or of one class
    set.npz    x.npy+y.npy        arrays
    hfds:NAME_OR_FOLDER           a Hugging Face data set                (also hfds:beans:0-1@20)

It is the same on the command line, in YAML and in Python.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from brickwork.errors import RequestError, UnknownName

HUGGING_FACE = "hfds:"


@dataclass(frozen=True)
class DataSpec:
    """A parsed request for images.

    >>> parse("cifar10:A@100")
    DataSpec(source='cifar10', classes='A', amount=100)
    >>> str(parse("hfds:user/beans:0-1"))
    'hfds:user/beans:0-1'
    """

    source: str
    classes: str | None = None
    amount: int | None = None  # images a class

    def __str__(self) -> str:
        classes = "" if self.classes is None else f":{self.classes}"
        return f"{self.source}{classes}" + ("" if self.amount is None else f"@{self.amount}")


def parse(text: str | DataSpec) -> DataSpec:
    """Read SOURCE[:CLASSES][@AMOUNT]; nothing is opened. Of a path that is there, ':' and '@' are part of its name."""
    if isinstance(text, DataSpec):
        return text
    prefix, rest = (HUGGING_FACE, text[len(HUGGING_FACE) :]) if text.startswith(HUGGING_FACE) else ("", text)
    # Only the last path component can carry a selection: folders higher up may hold ':' and '@' themselves.
    cut = rest.rfind("/") + 1
    if not prefix:  # of a folder whose own name has them, only what stands behind that name
        ends = [k for k, c in enumerate(rest) if k > cut and c in ":@"]
        odd = [k for k in [*ends, len(rest)] if set(rest[cut:k]) & set(":@") and os.path.exists(rest[:k])]
        cut = odd[-1] if odd else cut
    folder, name = rest[:cut], rest[cut:]
    name, at, amount_text = name.partition("@")
    if at and not re.fullmatch(r"[1-9][0-9]*", amount_text):
        raise RequestError(f"{text!r}: after '@' comes a number of images a class, 1 or more, as in 'cifar10@4'.")
    name, colon, classes = name.partition(":")
    if colon and not classes:
        raise RequestError(f"{text!r}: after ':' come classes, as in 'cifar10:0-4', 'cifar10:A' or 'cifar10:cat,dog'.")
    source = prefix + folder + name
    if source in ("", HUGGING_FACE):
        raise RequestError(f"{text!r} names no images; give a data set, a folder or a file, as in 'digits:A'.")
    return DataSpec(source, classes if colon else None, int(amount_text) if at else None)


def class_indices(selection: str | None, classes: Sequence[str]) -> list[int]:
    """The class numbers that a selection asks for, in the order asked. An exact class name goes first.

    Where all names are numbers themselves, a number is a name: digit 0 is not the first of the digits 5 to 9.

    >>> class_indices("2-3,cat", ["cat", "dog", "fox", "owl"])
    [2, 3, 0]
    >>> class_indices("B", ["cat", "dog", "fox", "owl"]), class_indices("6-7", ["5", "6", "7", "8"])
    ([2, 3], [1, 2])
    """
    if selection is None:
        return list(range(len(classes)))
    chosen: list[int] = []
    for item in _items(selection, classes):
        chosen += _item_indices(item, classes)
    repeated = sorted({classes[i] for i in chosen if chosen.count(i) > 1})
    if repeated:
        raise RequestError(f"classes {selection!r} name {', '.join(repeated)} more than once.")
    return chosen


def _items(selection: str, classes: Sequence[str]) -> list[str]:
    """What stands between the commas; a name that has commas itself is one item.

    >>> _items("dog,cat, small,0-1", ["cat, small", "dog"])
    ['dog', 'cat, small', '0-1']
    """
    words, items = selection.split(","), []
    while words:
        ends = range(len(words), 0, -1)
        count = next((n for n in ends if ",".join(words[:n]).strip() in classes), 1)
        items.append(",".join(words[:count]).strip())
        del words[:count]
    return items


def _named(item: str, first: int, last: int, classes: Sequence[str]) -> list[int]:
    """Numbers as names, of classes that are called by numbers."""
    wanted = [str(k) for k in range(first, min(last, first + len(classes)) + 1)]
    missing = [name for name in wanted if name not in classes]
    if first > last or missing:
        raise UnknownName("class", missing[0] if missing else item, classes, "Or a half (A, B).")
    return [list(classes).index(name) for name in wanted]


def _item_indices(item: str, classes: Sequence[str]) -> list[int]:
    count = len(classes)
    if item in classes:
        return [list(classes).index(item)]
    if item in ("A", "B"):
        middle = (count + 1) // 2
        half = list(range(middle)) if item == "A" else list(range(middle, count))
        if not half:
            raise RequestError(f"a data set of {count} class has no half {item!r}.")
        return half
    number = re.fullmatch(r"(\d+)(?:-(\d+))?", item)
    if number:
        first, last = int(number[1]), int(number[2] or number[1])
        if classes and all(name.isdigit() for name in classes):
            return _named(item, first, last, classes)
        if first > last or last >= count:
            raise RequestError(f"classes {item!r} are out of range; there are {count}, numbered 0 to {count - 1}.")
        return list(range(first, last + 1))
    raise UnknownName("class", item, classes, f"Or numbers (0-{count - 1}), or a half (A, B).")
