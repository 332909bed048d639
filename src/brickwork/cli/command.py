"""A command of the command line from a Python function: its parameters, and the fields of its options classes.

    def disassemble(model: ModelFolder, *, classes: …, data: Data, out: OutFolder, options: DisassembleOptions) -> Report:

What stands before the star is an argument, what stands behind it an option; a parameter whose type is an options class
stands for all options of that class. Everything that can be refused is refused before the function is called, all at
once; what it returns is printed. `--json`, `--debug` and, where there are options, `--options FILE.yaml` come with it.
A parameter of type `Given` is told which of all these were given.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import click

from brickwork.cli.failures import UsageProblem, reporting
from brickwork.cli.printing import emit
from brickwork.errors import BrickworkError, RequestError, did_you_mean
from brickwork.options import REQUIRED, Field, Options, Setting, fields_of, one_of

WHOLE = "\u2011"  # a hyphen at which lines are not broken: an option split in two cannot be copied
JSON = "One JSON object on stdout; logs go to stderr."
DEBUG = "Show the traceback of an error."
SKIP_BAD = "skip_bad"
LEFT_OUT = "Leave out image files that cannot be read, with a warning, instead of refusing them."
FROM_FILE = "YAML file with options, by the same names; what is typed wins."


class Result(Protocol):
    """What a command returns: a result of the library, or a Report."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Report:
    """What a command has to say beyond a result of the library: as data, and as text for people."""

    data: dict[str, Any]
    text: str

    def to_dict(self) -> dict[str, Any]:
        return self.data

    def __str__(self) -> str:
        return self.text

    @classmethod
    def saved(cls, out: Path, data: Mapping[str, Any], text: object, more: str = "") -> Report:
        """Of something that was written: the data begins with where, the text ends with it, and what `more` there is."""
        return cls({"folder" if out.is_dir() else "file": out, **data}, f"{text}\nsaved in {out}{more}")


@dataclass(frozen=True)
class Argument:
    """A positional parameter, as in `Annotated[Path, Argument("A model folder.", "MODEL")]`."""

    help: str
    metavar: str = ""
    check: Callable[[Any, Mapping[str, Any]], Any] | None = None


class Given(frozenset[str]):
    """The names of the parameters that were typed or stand in the file of --options, be it with their defaults."""


@dataclass(frozen=True)
class _Parameters:
    """The parameters of a command's function, taken apart."""

    arguments: dict[str, tuple[Field, Argument]]
    options: dict[str, Field]
    classes: dict[str, type[Options]]  # parameter: its options class
    given: list[str]  # parameters that take the names of what was given

    @classmethod
    def of(cls, function: Callable[..., Any]) -> _Parameters:
        hints = typing.get_type_hints(function, include_extras=True)
        result = cls({}, {}, {}, [])
        for name, parameter in inspect.signature(function).parameters.items():
            if isinstance(hints[name], type) and issubclass(hints[name], Options):
                result.classes[name] = hints[name]
                result.options.update(fields_of(hints[name]))
                continue
            if hints[name] is Given:
                result.given.append(name)
                continue
            kind, about = typing.get_args(hints[name])
            default = REQUIRED if parameter.default is parameter.empty else parameter.default
            if isinstance(about, Argument):
                field = Field.of(name, kind, default, Setting(about.help, check=about.check))
                result.arguments[name] = field, about
            else:
                result.options[name] = Field.of(name, kind, default, about)
        if any(getattr(field.setting.check, "reads_images", False) for field in result._fields().values()):
            result.options[SKIP_BAD] = Field.of(SKIP_BAD, bool, False, Setting(LEFT_OUT))
        return result

    def read(self, words: Mapping[str, Any], file: str | None) -> dict[str, Any]:
        """What the function is to be called with; one error of everything that is wrong."""
        given = self._given(words, file)
        call: dict[str, Any] = {name: Given(given) for name in self.given}
        errors = []
        owned = {name for options in self.classes.values() for name in fields_of(options)}
        for name, field in self._fields().items():
            value = given.get(name, field.default)
            if field.setting.check is not None and value is not None:
                try:
                    value = field.setting.check(value, given)
                except BrickworkError as error:
                    errors.append(error)
            if name not in owned:  # an options class keeps what was typed
                call[name] = value
        for parameter, options in self.classes.items():
            try:
                call[parameter] = options(**{n: given[n] for n in fields_of(options) if n in given})
            except BrickworkError as error:
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise RequestError("; ".join(e.template.removesuffix(".") for e in errors) + ".")
        return call

    def _fields(self) -> dict[str, Field]:
        return {**{name: field for name, (field, _) in self.arguments.items()}, **self.options}

    def _given(self, words: Mapping[str, Any], file: str | None) -> dict[str, Any]:
        """The values of what was typed and of what stands in the file; each is good by itself."""
        given, problems = self._from_file(file) if file else ({}, [])
        for name, field in self._fields().items():
            typed = words[name]
            if typed is None or typed == ():
                continue
            if isinstance(typed, tuple) and not (field.many or dict in field.kinds):
                if len(typed) > 1:
                    problems.append(f"`{name}` is given {len(typed)} times; give it once")
                typed = typed[-1]
            read = (lambda value: value) if isinstance(typed, bool) else field.read
            problems.append(_take(given, field, read, typed))
        problems += [
            f"`{n}` is missing: {f.setting.help[:1].lower()}{f.setting.help[1:].removesuffix('.')}"
            for n, f in self.options.items()
            if f.required and n not in given
        ]
        if any(problems):
            raise UsageProblem("; ".join(filter(None, problems)))
        return given

    def _from_file(self, path: str) -> tuple[dict[str, Any], list[str]]:
        from brickwork.recipes import read_yaml

        entries = read_yaml(path)
        if not isinstance(entries, Mapping):
            raise RequestError(f"{path} is a {type(entries).__name__}; it must hold options, as in seed: 1.")
        values: dict[str, Any] = {}
        problems = []
        for name, value in {str(key).replace("-", "_"): value for key, value in entries.items()}.items():
            if name not in self.options:
                problems.append(f"{path}: there is no option {name!r}{did_you_mean(name, self.options)}")
                continue
            problem = _take(values, self.options[name], self.options[name].normal, value)
            problems.append(f"{path}: {problem}" if problem else "")
        return values, problems


def _take(values: dict[str, Any], field: Field, read: Callable[[Any], Any], said: Any) -> str:
    """Put a value under its field's name; what is wrong with it, or nothing: ""."""
    try:
        values[field.name] = read(said)
        return field.problem(values[field.name], said)
    except RequestError as error:
        return f"`{field.name}`: {error.template.removesuffix('.')}"


def make_command(function: Callable[..., Any], name: str) -> click.Command:
    """The click command of a function."""
    parameters = _Parameters.of(function)

    def callback(**words: Any) -> None:
        as_json = words.pop("json")
        words.pop("debug")
        call = parameters.read(words, words.pop("options_file", None))
        with _skipping(call.pop(SKIP_BAD, False)):
            report = function(**call)
        if report is not None:
            emit(report.to_dict(), str(report), as_json=as_json)

    params: list[click.Parameter] = [_argument(field, about) for field, about in parameters.arguments.values()]
    params += [_option(field) for field in parameters.options.values()]
    if parameters.classes:
        params.append(click.Option(["--options", "options_file"], metavar="FILE", help=FROM_FILE))
    params.append(click.Option(["--json"], is_flag=True, help=JSON))
    params.append(click.Option(["--debug"], is_flag=True, help=DEBUG))
    command = Command(name, params=params, callback=reporting(callback), help=inspect.getdoc(function))
    command.options_classes = tuple(parameters.classes.values())
    return command


@contextlib.contextmanager
def _skipping(skip: bool) -> Iterator[None]:
    """Unreadable images left out inside, in this process and those it starts."""
    name = f"BRICKWORK_{SKIP_BAD.upper()}"
    before = os.environ.get(name)
    if skip:
        os.environ[name] = "1"
    try:
        yield
    finally:
        if skip:
            os.environ.pop(name)
            os.environ.update({name: before} if before is not None else {})


def spelling(name: str) -> str:
    """How an option is typed.

    >>> spelling("round_to")
    '--round-to'
    """
    return f"--{name.replace('_', '-')}"


def _argument(field: Field, about: Argument) -> click.Argument:
    metavar = about.metavar or field.name.upper()
    argument = click.Argument([field.name], nargs=-1 if field.many else 1, required=field.required, metavar=metavar)
    argument.about = about.help  # type: ignore[attr-defined]
    return argument


def _option(field: Field) -> click.Option:
    setting = field.setting
    names = [spelling(field.name), *setting.also]
    about: dict[str, Any] = {"help": _help(field)}
    if field.kinds == (bool,):
        if field.default is not False:
            names[0] = f"{names[0]}/--no-{names[0][2:]}"
        option = click.Option([field.name, *names], is_flag=True, default=None, **about)
    else:
        # all may be typed twice: click would take the last of two without a word
        option = click.Option([field.name, *names], multiple=True, metavar=_metavar(field), **about)
    option.panel = setting.panel  # type: ignore[attr-defined]
    return option


def _metavar(field: Field) -> str:
    if field.setting.metavar:
        return field.setting.metavar
    if field.setting.choices and len(field.setting.choices) < 5:
        return "|".join(field.setting.choices)
    if dict in field.kinds:
        return "NAME=VALUE"
    return {int: "NUMBER", float: "NUMBER", str: "TEXT"}.get(field.kinds[0], field.kinds[0].__name__.upper())


def _help(field: Field) -> str:
    setting, notes = field.setting, []
    if setting.choices and len(setting.choices) >= 5:
        notes.append(f"one of {', '.join(setting.choices)}")
    if field.required:
        notes.append("required")
    elif setting.default_text:
        notes.append(f"default: {setting.default_text}")
    elif field.default not in (None, False, ()) and not isinstance(field.default, bool):
        default = ",".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
        notes.append(f"default: {default:g}" if isinstance(default, float) else f"default: {default}")
    return f"{setting.help} [{'; '.join(notes)}]" if notes else setting.help


class Command(click.Command):
    """Help in plain text: arguments, then options under their headings, what every command has last."""

    options_classes: tuple[type[Options], ...] = ()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            if isinstance(param, click.Argument):
                sections["Arguments"].append((param.make_metavar(ctx), param.about))  # type: ignore[attr-defined]
            else:
                record = param.get_help_record(ctx)
                if record is not None:
                    sections.setdefault(getattr(param, "panel", "") or "Options", []).append(record)
        sections["Options"] = sections.pop("Options")
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl([(name, words.replace("-", WHOLE)) for name, words in records])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:  # of an option without its value click does not say whose it is
            error.ctx = error.ctx or ctx
            raise

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        whole, self.help = self.help, _copyable(self.help or "").replace("-", WHOLE)
        try:
            super().format_help_text(ctx, formatter)
        finally:
            self.help = whole

    def get_help(self, ctx: click.Context) -> str:
        return super().get_help(ctx).replace(WHOLE, "-")


def _copyable(text: str) -> str:
    """A command's help with its examples marked (\\b) to stand on one line each: what is typed is not wrapped.

    >>> _copyable("Cut a part out.\\n\\nbrickwork disassemble a\\n--out b")
    'Cut a part out.\\n\\n\\x08\\nbrickwork disassemble a --out b'
    """
    parts = text.split("\n\n")
    return "\n\n".join("\b\n" + " ".join(p.split()) if p.startswith("brickwork ") else p for p in parts)


class Group(click.Group):
    """Commands by name, imported when they are asked for."""

    def __init__(
        self,
        name: str,
        find: Mapping[str, Callable[[], click.Command]],
        about: str,
        words: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, help=about, **options)
        self.find = find
        self.words = words or {}  # what others call a command: its name here

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.find)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.find[cmd_name]() if cmd_name in self.find else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.find:
            known = f"; it must be {one_of(self.find)}" if len(self.find) < 12 else ""  # all verbs are in -h
            meant = (
                f"; did you mean {self.words[args[0]]!r}?"
                if args[0] in self.words
                else did_you_mean(args[0], self.find)
            )
            raise click.UsageError(f"no such command {args[0]!r}{meant or known}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_sentence(find().help or "")) for name, find in self.find.items()])


def _first_sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split()).removesuffix(".")


def make_group(name: str, about: str, functions: Sequence[Callable[..., Any]]) -> Group:
    """`brickwork NAME ACTION …`: one command per function, named as the function is."""
    commands = {f.__name__.rstrip("_").replace("_", "-"): f for f in functions}
    return Group(name, {n: (lambda f=f, n=n: make_command(f, n)) for n, f in commands.items()}, about)  # type: ignore[misc]
