"""Methods by name: a decorator on an options class, whose fields are what can be told in brackets.

@method("lora")
class LowRank(ContinualMethod):
    rank: int = option(default=4, at_least=1, help="Rank of the change.")
"""

import importlib
import json
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from brickwork.continual.base import ContinualMethod
from brickwork.errors import RequestError, UnknownName
from brickwork.options import fields_of

REGISTRY: dict[str, type[ContinualMethod]] = {}
#: modules of this package that register methods; the order here is the order of `names()`
MODULES = (
    "whole",
    "rehearsal",
    "regularised",
    "frozen",
    "statistics",
    "masks",
    "quantised",
    "low_rank",
    "signed",
    "packnet",
    "pooled",
)
Kind = TypeVar("Kind", bound=type[ContinualMethod])


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


def make(text: str | ContinualMethod) -> tuple[str, ContinualMethod]:
    """`lora(rank=8, lr=0.01)` as a method, with the name it goes by: as written, options in their order.

    >>> make("lora( rank=8 )")
    ('lora(rank=8)', LowRank(rank=8))
    """
    _register()
    if isinstance(text, ContinualMethod):
        return name_of(text), text
    parts = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", text)
    if parts is None:
        raise RequestError(f"{text!r} is not a method; write NAME or NAME(option=value), as in lora(rank=8).")
    if parts[1] not in REGISTRY:
        raise UnknownName("method", parts[1], REGISTRY)
    kind = REGISTRY[parts[1]]
    options: dict[str, object] = {}
    for piece in filter(None, (piece.strip() for piece in (parts[2] or "").split(","))):
        name, equals, value = (word.strip() for word in piece.partition("="))
        if not equals or not value:
            raise RequestError(f"{text!r}: an option is NAME=VALUE, not {piece!r}.")
        if name not in fields_of(kind):
            raise UnknownName(f"option of {parts[1]}", name, fields_of(kind))
        if name in options:
            raise RequestError(f"{text!r}: {name} is given twice.")
        options[name] = _value(value)
    method = kind(**options)
    return name_of(method), method


def parse(text: str | Sequence[str | ContinualMethod]) -> dict[str, ContinualMethod]:
    """`finetune,lora(rank=8),pool` as methods by name; each once.

    >>> list(parse("probe,quantised(bits=8, aware=false)"))
    ['probe', 'quantised(aware=False)']
    """
    pieces = _pieces(text) if isinstance(text, str) else list(text)
    if not pieces:
        raise RequestError(f"no methods were asked for; known are {', '.join(names())}.")
    methods: dict[str, ContinualMethod] = {}
    for piece in pieces:
        name, method = make(piece)
        if name in methods:
            raise RequestError(f"{name} is asked for twice.")
        methods[name] = method
    return methods


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


def name_of(method: ContinualMethod) -> str:
    """NAME(option=value, …) with the options that are not the defaults."""
    name = next(name for name, kind in REGISTRY.items() if kind is type(method))
    changed = [f"{option}={value}" for option, value in method.changed().items()]
    return f"{name}({', '.join(changed)})" if changed else name


def _register() -> None:
    for module in MODULES:
        importlib.import_module(f"brickwork.continual.{module}")
