"""What an options class is: one declaration of an operation's options, from which everything else comes.

    class CutOptions(Options):
        budget: float | None = option(default=None, above=0, at_most=1, help="Share of the parameters that may stay.")

The fields give the keyword arguments of the Python function (`@takes(CutOptions)`), the check (every problem at once,
before a tensor is read), the options of the command line, the entries of a YAML recipe, and what is saved as provenance.
Nothing here imports torch, so that `brickwork VERB --help` stays fast.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import numbers
import operator
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from brickwork.errors import RequestError, UnknownName, did_you_mean

_KIND_NAMES = {int: "a whole number", float: "a number", str: "a word", bool: "true or false", Path: "a path"}
MOST_SEED = 2**63 - 1  # what every generator of random numbers takes
REQUIRED: Any = dataclasses.MISSING  # the default of an option that has none


@dataclass(frozen=True)
class Setting:
    """What is known of one option beside its name and type."""

    help: str
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    kind: str = ""  # what a choice is called in a refusal, as in "attribution"
    odd: bool = False
    parse: Callable[[str], Any] | None = None  # text to value, where the type alone does not say how
    separator: str = ""  # several values in one word, as in 30,45; otherwise the option is repeated
    metavar: str = ""
    default_text: str = ""  # what is shown where the default is None
    panel: str | None = None  # heading in the command's help; None: that of the options class
    also: tuple[str, ...] = ()  # further spellings on the command line
    check: Callable[[Any, Mapping[str, Any]], Any] | None = None  # (value, all that was given) -> value; may refuse

    def problem(self, value: Any) -> str:
        """What is wrong with a number or a choice, as the end of "it must be …"; nothing: ""."""
        if self.choices and value not in self.choices:
            return one_of(self.choices)
        if isinstance(value, numbers.Real) and not isinstance(value, bool):
            low = (self.above is None or value > self.above) and (self.at_least is None or value >= self.at_least)  # type: ignore[operator]
            high = (self.below is None or value < self.below) and (self.at_most is None or value <= self.at_most)
            if not (low and high and math.isfinite(value)):
                return self.bounds()
            if self.odd and value % 2 == 0:
                return "odd"
        return ""

    def bounds(self) -> str:
        """
        >>> Setting("", above=0, at_most=1).bounds(), Setting("", at_least=0, at_most=1).bounds()
        ('above 0 and at most 1', '0 to 1')
        """
        if self.at_least is not None and self.at_most is not None:
            return f"{self.at_least:g} to {self.at_most:g}"
        limits = (
            ("above {:g}", self.above),
            ("{:g} or more", self.at_least),
            ("below {:g}", self.below),
            ("at most {:g}", self.at_most),
        )
        return " and ".join(text.format(limit) for text, limit in limits if limit is not None) or "a number"


def one_of(names: Iterable[str]) -> str:
    """
    >>> one_of(["a"]), one_of("ab"), one_of("abc")
    ('a', 'a or b', 'one of a, b, c')
    """
    known = [str(name) for name in names]
    return " or ".join(known) if len(known) < 3 else f"one of {', '.join(known)}"


def option(*, default: Any = REQUIRED, **setting: Any) -> Any:
    """A field of an options class. A default of None means: decided later, where more is known."""
    return dataclasses.field(default=default, metadata={"setting": Setting(**setting)})


def seed_option() -> Any:
    """The seed, under the general heading of whatever takes one."""
    return option(default=0, at_least=0, at_most=MOST_SEED, help="Seed of every random number.", panel="")


@dataclass(frozen=True)
class Field:
    """One option: its name, its type taken apart, its default, its setting."""

    name: str
    kinds: tuple[type, ...]
    optional: bool  # None is a value
    many: bool  # a tuple of values
    default: Any
    setting: Setting

    @classmethod
    def of(cls, name: str, annotation: Any, default: Any, setting: Setting) -> Field:
        """Read a type: int, float | None, Literal["a", "b"], tuple[str, ...], Mapping[str, Any], str | int, …"""
        members = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
        optional = type(None) in members
        members = tuple(m for m in members if m is not type(None))
        many = any(typing.get_origin(m) in (tuple, list, Sequence) for m in members)
        if many:
            members = tuple(a for m in members for a in typing.get_args(m)[:1])
        kinds: list[type] = []
        for member in members:
            if typing.get_origin(member) is Literal:
                setting = dataclasses.replace(setting, choices=typing.get_args(member))
                member = str
            kinds.append(typing.get_origin(member) or member)
        return cls(name, tuple(kinds), optional or default is None, many, default, setting)

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def problem(self, value: Any, given: Any = None) -> str:
        """What is wrong with a value, as a sentence without its full stop; nothing: "". given: as it was typed."""
        if value is None and self.optional:
            return ""
        values = value if self.many else (value,)
        if self.many and (isinstance(value, str) or not isinstance(value, Sequence)):
            return f"`{self.name}` is {value!r}; it must be a list"
        for one in values:
            shown = one if given is None or self.many else given
            if not any(_is_a(one, kind) for kind in self.kinds):
                names = " or ".join(_KIND_NAMES.get(kind, kind.__name__) for kind in self.kinds)
                rule = one_of(self.setting.choices) if self.setting.choices else names
                return f"`{self.name}` is {shown!r}; it must be {rule}"
            rule = self.setting.problem(one)
            if rule:
                return f"`{self.name}` is {shown!r}; it must be {rule}{did_you_mean(str(one), self.setting.choices)}"
        return ""

    def normal(self, value: Any) -> Any:
        """The value in its own type: a NumPy integer as an int, a list as a tuple, text as what it says."""
        if value is None:
            return None
        if self.many and not isinstance(value, str):
            parts = value if isinstance(value, Iterable) and not isinstance(value, Mapping) else (value,)
            # a word of a list is one value as it stands; only a word that stands for a list is taken apart
            return tuple(one if isinstance(one, str) and str in self.kinds else self._normal(one) for one in parts)
        value = self._normal(value)
        return tuple(value) if self.many and isinstance(value, list) else value

    def _normal(self, value: Any) -> Any:
        if isinstance(value, str) and self.setting.parse is not None:
            return self.setting.parse(value)
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return Path(value) if isinstance(value, str) and self.kinds == (Path,) else value
        if isinstance(value, numbers.Integral):
            return operator.index(value) if int in self.kinds else float(value) if float in self.kinds else value
        return float(value)

    def read(self, words: str | Sequence[str]) -> Any:
        """The value of what was typed; RequestError where it cannot be one."""
        setting = self.setting
        if dict in self.kinds or Mapping in self.kinds:
            return parse_pairs(words, self.name)
        if self.many:
            parts = [words] if isinstance(words, str) else list(words)
            if setting.parse is None and setting.separator:
                parts = [part for word in parts for part in word.split(setting.separator)]
            read = [self._read(part) for part in parts]
            return tuple(one for value in read for one in (value if isinstance(value, list | tuple) else [value]))
        return self._read(words if isinstance(words, str) else words[-1])

    def _read(self, word: str) -> Any:
        if self.setting.parse is not None:
            return self.setting.parse(word)
        for kind in (int, float, Path):
            if kind in self.kinds:
                try:
                    return kind(word)
                except ValueError:
                    continue
        return word  # if it is not to be text, `problem` says so


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _is_a(value: Any, kind: type) -> bool:
    if kind in (int, float):
        wanted = numbers.Integral if kind is int else numbers.Real
        return isinstance(value, wanted) and not isinstance(value, bool)
    if kind is Path:
        return isinstance(value, str | Path)
    return kind is object or kind is Any or isinstance(value, kind)


_FIELDS: dict[type, dict[str, Field]] = {}


def fields_of(cls: type[Options]) -> dict[str, Field]:
    """The options of an options class by name, in their order."""
    if cls not in _FIELDS:
        hints = typing.get_type_hints(cls)
        _FIELDS[cls] = {
            f.name: Field.of(f.name, hints[f.name], f.default, f.metadata["setting"]) for f in dataclasses.fields(cls)
        }
    return _FIELDS[cls]


@typing.dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class Options:
    """Base of every options class: its subclasses are frozen dataclasses whose fields are `option(…)`.

    panel: the heading of these options in a command's help, as in `class TrainOptions(Options, panel="The training")`.

    >>> class Cut(Options):
    ...     budget: float | None = option(default=None, above=0, at_most=1, help="Share that may stay.")
    ...     of: Literal["parameters", "macs"] = option(default="parameters", help="What the budget counts.")
    >>> Cut(budget=0.5)
    Cut(budget=0.5)
    >>> Cut(budget=2, of="mac")
    Traceback (most recent call last):
    ...
    brickwork.errors.RequestError: budget is 2; it must be above 0 and at most 1; of is 'mac'; \
it must be parameters or macs; did you mean 'macs'?
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, panel: str | None = None) -> None:
        for field in vars(cls).values():
            if isinstance(field, dataclasses.Field) and field.metadata["setting"].panel is None:
                setting = dataclasses.replace(field.metadata["setting"], panel=panel)
                field.metadata = types.MappingProxyType({"setting": setting})
        dataclass(frozen=True, repr=False, kw_only=True)(cls)

    def __post_init__(self) -> None:
        problems = []
        for name, field in fields_of(type(self)).items():
            given = getattr(self, name)
            try:
                object.__setattr__(self, name, field.normal(given))
                problems.append(field.problem(getattr(self, name), given))
            except RequestError as error:
                problems.append(error.template.removesuffix("."))
        problems = [*filter(None, problems)]
        try:
            problems += self.rules()
        except (TypeError, ValueError):  # of a value that was refused already
            if not problems:
                raise
        refuse(problems)

    def rules(self) -> Iterator[str]:
        """Problems of several options together."""
        yield from ()

    def to_dict(self) -> dict[str, Any]:
        """JSON values, every option by its name."""
        return {name: _json(getattr(self, name)) for name in fields_of(type(self))}

    @classmethod
    def from_dict(cls: type[Self], given: Mapping[str, Any], what: str = "option") -> Self:
        """From a recipe or a saved record: names that are none are refused with the nearest that is."""
        known = fields_of(cls)
        problems = [str(UnknownName(what, name, known)).removesuffix(".") for name in given if name not in known]
        problems += [f"`{n}` is missing; {f.setting.help}" for n, f in known.items() if f.required and n not in given]
        try:
            return cls(**{name: value for name, value in given.items() if name in known and not problems})
        except (RequestError, TypeError) as error:
            problems += [] if isinstance(error, TypeError) else [error.template.removesuffix(".")]
        finally:
            refuse(problems)
        raise AssertionError("a problem was not said")

    def idle(self, names: Iterable[str], why: str) -> Iterator[str]:
        """A problem for each of these that was changed and has no use; why: as in "by `rule` plain"."""
        changed = self.changed()
        yield from (f"`{name}` is not used {why}; leave it out" for name in names if name in changed)

    def changed(self) -> dict[str, Any]:
        """What differs from the defaults."""
        values = {name: (getattr(self, name), field) for name, field in fields_of(type(self)).items()}
        # an array compares as an array: no default is one
        return {n: v for n, (v, f) in values.items() if f.required or (v != f.default) is not False}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.changed().items())})"


Self = TypeVar("Self", bound=Options)
Result = TypeVar("Result")


def refuse(problems: Sequence[str]) -> None:
    """One RequestError of all problems; none: nothing happens."""
    if problems:
        text = "; ".join(problems)
        raise RequestError(text if text.endswith("?") else f"{text}.")


def _json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_json(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def takes(
    options: type[Options] | None = None, **more: type[Options]
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """A function with a parameter for an options class takes the fields of that class as keyword arguments, too.

    `@takes(CutOptions)` fills the parameter `options`, `@takes(options=A, running=B)` several. The signature, and with it
    `help()` and completion, shows every field with its default.
    """
    classes = {**({"options": options} if options is not None else {}), **more}
    owner = {name: parameter for parameter, cls in classes.items() for name in fields_of(cls)}

    def wrap(function: Callable[..., Result]) -> Callable[..., Result]:
        plain = inspect.signature(function)
        open_ended = any(p.kind is p.VAR_KEYWORD for p in plain.parameters.values())

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Result:
            own: dict[str, dict[str, Any]] = {parameter: {} for parameter in classes}
            for name in [name for name in given if name in owner and name not in plain.parameters]:
                own[owner[name]][name] = given.pop(name)
            foreign = [name for name in given if name not in plain.parameters]
            if foreign and not open_ended:
                guess = did_you_mean(foreign[0], [*owner, *plain.parameters])
                raise TypeError(f"{function.__name__}() got an unexpected keyword argument {foreign[0]!r}{guess}")
            for parameter, cls in classes.items():
                whole = given.get(parameter)
                given[parameter] = cls(**own[parameter]) if whole is None else _replaced(whole, own[parameter])
            return function(*args, **given)

        call.__signature__ = _signature(plain, classes)  # type: ignore[attr-defined]
        call.options = classes  # type: ignore[attr-defined]
        return call

    return wrap


def _replaced(options: Options, changes: Mapping[str, Any]) -> Options:
    return dataclasses.replace(options, **changes) if changes else options


def _signature(plain: inspect.Signature, classes: Mapping[str, type[Options]]) -> inspect.Signature:
    shown = [p for name, p in plain.parameters.items() if name not in classes]
    rest = [p for p in shown if p.kind is p.VAR_KEYWORD]
    shown = [p for p in shown if p.kind is not p.VAR_KEYWORD]
    last = next((k for k, p in enumerate(shown) if p.kind >= p.KEYWORD_ONLY), len(shown))
    own: dict[str, inspect.Parameter] = {}
    for cls in classes.values():
        hints = typing.get_type_hints(cls)
        for name, field in fields_of(cls).items():
            default = inspect.Parameter.empty if field.required else field.default
            if name not in plain.parameters:
                kind = inspect.Parameter.KEYWORD_ONLY
                own[name] = inspect.Parameter(name, kind, default=default, annotation=hints[name])
    whole = [plain.parameters[name].replace(default=None) for name in classes]
    return plain.replace(parameters=[*shown[:last], *own.values(), *shown[last:], *whole, *rest])


# -- text to values ---------------------------------------------------------------------------------------------------


def parse_pairs(words: str | Sequence[str], name: str = "arg") -> dict[str, Any]:
    """`NAME=VALUE` words as a dictionary; a value is JSON where it reads as JSON, else text.

    >>> parse_pairs(["num_classes=5", "stem=imagenet", "batch_norm=false"])
    {'num_classes': 5, 'stem': 'imagenet', 'batch_norm': False}
    """
    result: dict[str, Any] = {}
    for pair in [words] if isinstance(words, str) else words:
        key, equals, text = pair.partition("=")
        if not (key and equals):
            raise RequestError(f"`{name}` takes NAME=VALUE, not {pair!r}; for example num_classes=5.")
        try:
            result[key] = json.loads(text)
        except json.JSONDecodeError:
            result[key] = text
    return result


def parse_bytes(text: str) -> int:
    """A number of bytes: 40000, 100K, 0.4M (thousands and millions).

    >>> parse_bytes("0.4M"), parse_bytes("100K"), parse_bytes("512")
    (400000, 100000, 512)
    """
    unit = {"K": 1e3, "M": 1e6}.get(text[-1:].upper(), 1.0)
    try:
        size = int(float(text.rstrip("kKmM")) * unit)
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise RequestError(f"a size is {text!r}; it must be a number of bytes, as in 40000, 100K or 0.4M.")
    return size


def parse_numbers(text: str) -> list[float]:
    """`0:1:0.25` (both ends) or `0,0.5,1` as numbers.

    >>> parse_numbers("0:1:0.25"), parse_numbers("2")
    ([0.0, 0.25, 0.5, 0.75, 1.0], [2.0])
    """
    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        start, stop, step = (float(part) for part in text.split(":"))
        count = round((stop - start) / step) if step else -1
    except (ValueError, OverflowError):
        raise RequestError(f"numbers are {text!r}; they must be as in 0:1:0.1 or 0,0.5,1.") from None
    if not 0 <= count <= 10_000:
        many = "there are more than 10,000" if count > 0 else "there is nothing"
        raise RequestError(f"numbers are {text!r}; from {start:g} to {stop:g} in steps of {step:g} {many}.")
    return [round(start + k * step, 10) for k in range(count + 1) if start + k * step <= stop + 1e-9]


def parse_shape(text: str) -> list[int]:
    """`3x32x32` (or `3,32,32`) as numbers.

    >>> parse_shape("3x32x32")
    [3, 32, 32]
    """
    parts = text.replace("×", "x").replace(",", "x").split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise RequestError(f"a shape is {text!r}; it must be that of one example, as in 3x32x32.")
    return [int(part) for part in parts]
