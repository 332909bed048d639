"""Writes the `__init__.pyi` files whose functions take options: every option by name, type and default, for completion.

    python -m brickwork_lab.stubs        (make stubs)

A stub says which names a package has (`brickwork.lazy` reads it): to add one, add its import line and run this. A function
that takes options is written out, since an editor does not run the decorator that gives it its keyword arguments.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import operator
import subprocess
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import brickwork
from brickwork.lazy import homes_of

PACKAGES = (
    "brickwork",
    *(
        f"brickwork.{name}"
        for name in ("algebra", "bricks", "continual", "dependencies", "pools", "training", "transplant")
    ),
)
EMPTY = inspect.Parameter.empty


class Names:
    """What the signatures of a stub mention, and from where it is imported."""

    def __init__(self) -> None:
        self.home: dict[str, str] = {}

    def of(self, value: Any) -> str:
        """A type as it is written; what has no name that could be imported is Any.

        >>> from collections.abc import Sequence
        >>> names = Names()
        >>> names.of(Sequence[int] | None), names.of(typing.Literal["a", "b"]), names.home
        ('Sequence[int] | None', 'Literal["a", "b"]', {'Sequence': 'collections.abc', 'Literal': 'typing'})
        """
        origin, arguments = typing.get_origin(value), typing.get_args(value)
        if value is None or value is type(None):
            return "None"
        if value is Ellipsis:
            return "..."
        if origin in (typing.Union, types.UnionType):
            return " | ".join(dict.fromkeys(self.of(one) for one in arguments))
        if origin is typing.Literal:
            return f"{self.imported('typing', 'Literal')}[{', '.join(_plain(one) for one in arguments)}]"
        if isinstance(value, list):  # the parameters of a Callable
            return f"[{', '.join(map(self.of, value))}]"
        if origin is not None and arguments and origin is not _array():
            return f"{self.of(origin)}[{', '.join(map(self.of, arguments))}]"
        found = origin or value
        if not isinstance(found, type):
            return self.imported("typing", "Any")
        if found.__module__ == "builtins":
            return found.__name__
        return self.imported(found.__module__, found.__qualname__)

    def imported(self, module: str, name: str) -> str:
        if self.home.setdefault(name, module) != module:
            raise AssertionError(f"{name} is of {self.home[name]} and of {module}; a stub can import one of them")
        return name


def _array() -> type:
    import numpy as np

    return np.ndarray


def _plain(value: Any) -> str:
    """A default as it is written, double quotes and all; what is no plain value is only said to be there."""
    if isinstance(value, str):
        return '"' + repr(value)[1:-1] + '"'
    if isinstance(value, tuple):
        return f"({', '.join(map(_plain, value))}{',' if len(value) == 1 else ''})"
    return repr(value) if value is None or isinstance(value, bool | int | float) else "..."


def _any_sequence(kind: Any) -> Any:
    """What an option of several values takes: any sequence of them; `normal` makes it a tuple.

    >>> _any_sequence(tuple[int, ...] | None)
    collections.abc.Sequence[int] | None
    """
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, map(_any_sequence, arguments))
    return Sequence[arguments[0]] if arguments[1:] == (Ellipsis,) else kind  # type: ignore[valid-type]


def signature_of(function: Callable[..., Any], name: str, names: Names) -> str:
    """`def name(…) -> …: ...`"""
    plain = typing.get_type_hints(inspect.unwrap(function))
    parts: list[str] = []
    star = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        kind = plain.get(parameter.name) or _any_sequence(parameter.annotation)
        text = "Any" if kind is EMPTY else names.of(kind)
        if parameter.default is None and "None" not in text.split(" | ") and text != "Any":
            text += " | None"
        default = "" if parameter.default is EMPTY else f" = {_plain(parameter.default)}"
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        parts.append(f"{stars}{parameter.name}: {text}{default}")
    return f"def {name}({', '.join(parts)}) -> {names.of(plain.get('return', Any))}: ..."


def stub(package: str) -> str:
    """The text of a package's stub, from the names that the present one says."""
    module = importlib.import_module(package)
    file = Path(str(module.__file__)).with_suffix(".pyi")
    homes = homes_of(file)
    names, exported, functions = Names(), [], []
    for alias, (home, original) in sorted(homes.items()):
        value = getattr(module, alias)
        elsewhere = _written_out(value) if package == "brickwork" else None
        if elsewhere is not None:
            exported.append(f"from {elsewhere[0]} import {elsewhere[1]} as {alias}")
        elif isinstance(getattr(value, "options", None), Mapping) and inspect.isfunction(value):
            text = signature_of(value, alias, names)
            functions.append(f"# from {value.__module__} import {value.__name__}\n{text}\n")
        else:
            exported.append(f"from {home} import {original} as {alias}")
    helpers = [
        f"from {home} import {name}" for name, home in names.home.items() if not _exports(homes, module, home, name)
    ]
    version = ["__version__: str"] if package == "brickwork" else []
    public = [
        *homes,
        *(["__version__"] if version else []),
    ]  # a name under another than its own is public by this alone
    return _formatted("\n".join([*exported, *helpers, f"__all__ = {sorted(public)}", *version, "", *functions]), file)


def _written_out(value: Any) -> tuple[str, str] | None:
    """The package, and the name there, whose stub has this function with its options."""
    for package in PACKAGES[1:] if inspect.isfunction(value) else ():
        module = importlib.import_module(package)
        for name in module.__all__:
            if getattr(module, name) is value:
                return package, name
    return None


def _exports(homes: Mapping[str, tuple[str, str]], module: Any, home: str, name: str) -> bool:
    """Whether the stub has a class by this name already, as one of its public ones."""
    if name not in homes:
        return False
    same = getattr(module, name) is getattr(importlib.import_module(home), name)
    if not same:
        raise AssertionError(f"{name} of {home} is another thing than {module.__name__}.{name}")
    return True


def _formatted(text: str, file: Path) -> str:
    """As `make format` would leave it."""
    for options in (["check", "--quiet", "--select", "I,RUF022", "--fix"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *options, "--stdin-filename", str(file), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


def stub_file(package: str) -> Path:
    """Where the stub of a package is."""
    return Path(brickwork.__file__).parent.joinpath(*package.split(".")[1:], "__init__.pyi")


def main() -> None:
    """Rewrite all of them."""
    for package in PACKAGES:
        stub_file(package).write_text(stub(package), encoding="utf-8")


if __name__ == "__main__":
    main()
