"""How a command fails: one sentence on stderr and an exit code; a traceback with --debug."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import click

from brickwork.errors import BrickworkError, Doubtful, RequestError, did_you_mean

STOPPED = "stopped by Ctrl-C; nothing half-written was left behind."


class UsageProblem(RequestError):
    """Something typed that cannot be right; the sentence ends with where to look."""


def reporting(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Run a command; every failure is one message on stderr and an exit code."""

    @functools.wraps(callback)
    def run(**words: Any) -> Any:
        debug = bool(words.get("debug"))
        try:
            with telling_doubts():
                return callback(**words)
        except (BrokenPipeError, click.exceptions.Exit, click.ClickException, click.Abort):
            raise  # `brickwork info … | head`: the reader has seen enough; click's own ways out are no faults
        except (Exception, KeyboardInterrupt) as error:
            sentence, code = _explained(error, debug)
            complain(sentence, debug)
            raise click.exceptions.Exit(code) from None

    return run


def _explained(error: BaseException, debug: bool) -> tuple[str, int]:
    """What is said of an error, and the exit code."""
    if isinstance(error, BrickworkError):
        return in_words_of_options(error), error.exit_code
    if isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
        return STOPPED, 130  # some imports swallow it
    if isinstance(error, OSError):
        return _machine(error), 1
    if isinstance(error, UnicodeEncodeError):
        where = error.object[max(0, error.start - 40) : error.end + 40]
        return f"a name has bytes that are no UTF-8 and cannot be recorded: {where!a}; rename it.", 2
    if isinstance(error, MemoryError):
        return "there is not enough memory; nothing half-written was left behind.", 1
    if "torch" in sys.modules:  # no network was run without it
        from brickwork.forward_fault import forward_fault

        fault = forward_fault(error)
        if fault is not None:
            return fault, 2
    hint = "" if debug else " This looks like a fault of Brickwork; run again with --debug to see where."
    return f"unexpected {type(error).__name__}: {error}.{hint}", 1


def _machine(error: OSError) -> str:
    """A fault of the machine: a disk that is full, broken or closed to us, a file that went away."""
    what = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
    name = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    return f"{name}{what}; nothing half-written was left behind."


@contextlib.contextmanager
def telling_doubts() -> Iterator[None]:
    """What a user should know of is one line on stderr, as everything else that people are told."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", Doubtful)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, Doubtful):
                complain(str(message))
            else:
                usual(message, category, *rest, **named)

        warnings.showwarning = show
        yield


def in_words_of_options(error: BrickworkError) -> str:
    """An error's sentence for a user of the command line: parameters as they are typed."""
    context = click.get_current_context(silent=True)
    spelled: dict[str, str] = {}
    for param in [] if context is None else context.command.params:
        typed = max(param.opts, key=len) if isinstance(param, click.Option) else str(param.metavar or param.name)
        spelled[str(param.name)] = typed
    text = error.in_words_of(lambda name: spelled.get(name, name))
    return with_help(text, context) if isinstance(error, UsageProblem) else text


def with_help(text: str, context: click.Context | None) -> str:
    """A sentence that ends with where to look."""
    where = "brickwork" if context is None else context.command_path
    return f"{text.removesuffix('.')}{' ' if text.endswith('?') else '; '}`{where} -h` shows what there is."


def usage_sentence(error: click.ClickException) -> str:
    """One sentence for what click refuses: an option that does not exist, a missing argument."""
    context: click.Context | None = getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption) and context is not None:
        return with_help(f"no such option {error.option_name!r}{_instead(error.option_name, context)}", context)
    text = " ".join(error.format_message().split())
    return with_help(text[:1].lower() + text[1:], context)


def _instead(name: str, context: click.Context) -> str:
    """Who has the option that was typed, or which of this command's is nearest to it."""
    places = [p for p in context.command.params if isinstance(p, click.Argument)]
    if any(p.name == name.lstrip("-") for p in places):
        line = " ".join([context.command_path, *(p.make_metavar(context) for p in places)])
        return f"; it is given by its place: {line}"
    group = context.parent.command if context.parent is not None else None
    if isinstance(group, click.Group) and context.parent is not None and context.parent.parent is not None:
        actions = {action: group.get_command(context.parent, action) for action in group.list_commands(context.parent)}
        owners = [action for action, command in actions.items() if command and name in _options(command, context)]
        if owners:
            return f"; it belongs to {context.parent.command_path} {', '.join(owners)}"
    known = {option.lstrip("-"): option for option in _options(context.command, context)}  # dashes are alike in all
    return did_you_mean(name.lstrip("-"), known).replace("mean '", "mean '--")


def _options(command: click.Command, context: click.Context) -> list[str]:
    return [name for p in command.get_params(context) for name in (*p.opts, *p.secondary_opts) if name[:1] == "-"]


def complain(message: str, debug: bool = False) -> None:
    if debug:
        traceback.print_exc()
    sys.stdout.flush()
    click.echo(f"brickwork: {message}", err=True)
