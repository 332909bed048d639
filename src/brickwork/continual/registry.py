"""Methods by name: a decorator on a dataclass whose fields are the method's options.

@method("lora")
@dataclass(frozen=True)
class LowRank(Method):
    rank: int = 4
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from brickwork.continual.base import Method
from brickwork.errors import RequestError, UnknownName

REGISTRY: dict[str, type[Method]] = {}
#: modules of this package that register methods; the order here is the order of `names()`
MODULES = ("whole", "frozen", "masks", "quantised", "low_rank", "packnet", "pooled")
#: what the fields of a method may be, and how that is said
KINDS = {"bool": "true or false", "str": "a word", "int": "a whole number", "float": "a number", "None": "None"}
Kind = TypeVar("Kind", bound=type[Method])


def method(name: str) -> Callable[[Kind], Kind]:
    """Register a class under a name; the first line of its docstring is what lists show."""

    def register(kind: Kind) -> Kind:
        REGISTRY[name] = kind
        return kind

    return register


def names() -> list[str]:
    """Every method, in the order of MODULES, a user's own behind them."""
    _register()
    places = {f"brickwork.continual.{module}": k for k, module in enumerate(MODULES)}
    return sorted(REGISTRY, key=lambda name: places.get(REGISTRY[name].__module__, len(places)))


def make(text: str | Method) -> tuple[str, Method]:
    """`lora(rank=8, lr=0.01)` as a method, with the name it goes by: as written, options in their order.

    >>> make("lora( rank=8 )")
    ('lora(rank=8)', LowRank(rank=8, lr=0.004, epochs=None))
    """
    _register()
    if isinstance(text, Method):
        return _called(text), text
    found = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", text)
    if found is None:
        raise RequestError(f"{text!r} is not a method; write NAME or NAME(option=value), as in lora(rank=8).")
    if found[1] not in REGISTRY:
        raise UnknownName("method", found[1], REGISTRY)
    kind: Any = REGISTRY[found[1]]
    options: dict[str, object] = {}
    for part in filter(None, (piece.strip() for piece in (found[2] or "").split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise RequestError(f"{text!r}: an option is NAME=VALUE, not {part!r}.")
        known = [f.name for f in fields(kind)]
        if name not in known:
            raise UnknownName(f"option of {found[1]}", name, known)
        if name in options:
            raise RequestError(f"{text!r}: {name} is given twice.")
        options[name] = _value(value)
    for field in fields(kind):
        known = [k for k in KINDS if k in str(field.type).split(" | ")]
        value = options.get(field.name, field.default)
        if known and not any(_is(value, one) for one in known):
            raise RequestError(f"{field.name} is {value!r}; it must be {' or '.join(KINDS[one] for one in known)}.")
    made = kind(**options)
    return _called(made), made


def parse(text: str | Sequence[str | Method]) -> dict[str, Method]:
    """`finetune,lora(rank=8),pool` as methods by name; each once.

    >>> list(parse("probe,quantised(bits=8, aware=false)"))
    ['probe', 'quantised(aware=False)']
    """
    pieces = _pieces(text) if isinstance(text, str) else list(text)
    if not pieces:
        raise RequestError(f"no methods were asked for; known are {', '.join(names())}.")
    found: dict[str, Method] = {}
    for piece in pieces:
        name, made = make(piece)
        if name in found:
            raise RequestError(f"{name} is asked for twice.")
        found[name] = made
    return found


def _pieces(text: str) -> list[str]:
    """Split at commas outside brackets."""
    return [piece for piece in re.split(r",(?![^(]*\))", text) if piece.strip()]


def _value(text: str) -> object:
    """JSON where it reads as JSON; true and false also as Python writes them; else text."""
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _is(value: object, kind: str) -> bool:
    if isinstance(value, bool) or kind == "bool":
        return isinstance(value, bool) and kind == "bool"
    if value is None or kind == "None":
        return value is None and kind == "None"
    return isinstance(value, {"str": str, "int": int}.get(kind, int | float))


def _called(made: Any) -> str:
    """NAME(option=value, …) with the options that are not the defaults."""
    name = next(name for name, kind in REGISTRY.items() if kind is type(made))
    told = [f"{f.name}={getattr(made, f.name)}" for f in fields(made) if getattr(made, f.name) != f.default]
    return f"{name}({', '.join(told)})" if told else name


def _register() -> None:
    for module in MODULES:
        importlib.import_module(f"brickwork.continual.{module}")
