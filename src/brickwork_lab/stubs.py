"""Writes the `__init__.pyi` files whose functions take options: every option by name, type and default, for completion.

    python -m brickwork_lab.stubs        (make stubs)

A stub says which names a package has (`brickwork.lazy` reads it): to add one, add its import line and run this. A function
that takes options is written out, since an editor does not run the decorator that gives it its keyword arguments. The
formatter leaves these files alone: lists that only a program writes are filled, not one entry to a line.
"""

import ast
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
        for name in (
            "algebra",
            "bricks",
            "continual",
            "dependencies",
            "engine",
            "lora",
            "export",
            "pools",
            "store",
            "training",
            "transplant",
        )
    ),
)
EMPTY = inspect.Parameter.empty
WIDTH = 120


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
    """`def name(…) -> …: ...`, as many parameters to a line as fit."""
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
    return _filled(f"def {name}(", parts, f") -> {names.of(plain.get('return', Any))}: ...")


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
    # sorted as the linter wants it; a name under another than its own is public by this alone
    public = _sorted([*homes, *(["__version__"] if version else [])], file)
    listed = _filled("__all__ = [", [_plain(name) for name in public], "]")
    imports = _linted("\n".join([*exported, *helpers]), "I", file)
    return "\n".join([imports, listed, *version, "", "\n".join(functions)]).rstrip("\n") + "\n"


def _filled(head: str, parts: Sequence[str], tail: str) -> str:
    """A list in brackets: on one line, or as many parts to a line as fit.

    >>> _filled("f(", ["a", "b"], ")")
    'f(a, b)'
    """
    if len(whole := f"{head}{', '.join(parts)}{tail}") <= WIDTH:
        return whole
    lines = [""]
    for part in parts:
        if len(lines[-1]) + len(part) + 6 > WIDTH:  # four spaces before the line, a space and a comma around the part
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else ''}{part},"
    return "\n    ".join([head, *lines]) + f"\n{tail}"


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


def _linted(text: str, rule: str, file: Path) -> str:
    """As the linter leaves it by one of its rules."""
    words = f"-m ruff check --quiet --fix --select {rule} --stdin-filename".split()
    command = [sys.executable, *words, str(file), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _sorted(names: Sequence[str], file: Path) -> list[str]:
    return ast.literal_eval(_linted(f"__all__ = {names}", "RUF022", file).removeprefix("__all__ = "))


def stub_file(package: str) -> Path:
    """Where the stub of a package is."""
    return Path(brickwork.__file__).parent.joinpath(*package.split(".")[1:], "__init__.pyi")


def main() -> None:
    """Rewrite all of them."""
    for package in PACKAGES:
        stub_file(package).write_text(stub(package), encoding="utf-8")


if __name__ == "__main__":
    main()
