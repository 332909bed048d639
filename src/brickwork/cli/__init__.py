"""The command line: `brickwork VERB …`, one line of VERBS per verb.

A verb is a function of brickwork.cli; its parameters and options classes say what it takes (`command.py`). Only the
module of the verb that was typed is imported, and torch only when that verb runs.
"""

import functools
import importlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from brickwork.cli.command import Group, make_command
from brickwork.cli.failures import complain, in_words_of_options, usage_sentence
from brickwork.cli.printing import remember
from brickwork.errors import BrickworkError, RequestError

#: verb: module (of brickwork.cli, or with its whole name), and the function in it where that has another name;
#: GROUP: a verb with actions
VERBS = {
    "demo": "pages",
    "import": "exchange:import_model",
    "export": "exchange:export_model",
    "data": "data:GROUP",
    "info": "models",
    "train": "models",
    "eval": "models:evaluate",
    "disassemble": "bricks",
    "assemble": "bricks",
    "increment": "bricks",
    "compress": "bricks",
    "routes": "bricks",
    "treat": "tuning",
    "distil": "tuning",
    "transfer": "tuning",
    "adapt": "tuning",
    "forget": "tuning",
    "synthesise": "models",
    "depend": "depend:GROUP",
    "transplant": "transplant:GROUP",
    "pool": "pool:GROUP",
    "delta": "algebra",
    "assign": "algebra",
    "merge": "merging",
    "lora": "lora:GROUP",
    "sweep": "algebra",
    "cancel": "algebra",
    "continual": "continual",
    "report": "pages",
    "studio": "pages",
    "study": "brickwork_lab.commands",
    "bench": "brickwork_lab.commands",
}


#: what others call a verb, for the refusal of a word that there is none of
WORDS = {
    **dict.fromkeys(("prune", "shrink", "slim"), "compress"),
    **dict.fromkeys(("extract", "cut", "split"), "disassemble"),
    **dict.fromkeys(("join", "stitch"), "assemble"),
    **dict.fromkeys(("evaluate", "test"), "eval"),
    **dict.fromkeys(("inspect", "show", "summary"), "info"),
    **dict.fromkeys(("finetune", "fine-tune"), "train"),
    **dict.fromkeys(("convert", "quantize", "quantise"), "export"),
    "unlearn": "forget",
    "soup": "merge",
}


def find(verb: str) -> click.Command:
    """The command of a verb."""
    module, _, name = VERBS[verb].partition(":")
    try:
        home = importlib.import_module(module if "." in module else f"brickwork.cli.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "brickwork_lab":
            raise
        raise RequestError(
            "studies and benchmarks are in the package brickwork_lab of Brickwork's source tree, which is not "
            "installed here; in that folder: pip install -e ."
        ) from error
    result: Any = getattr(home, name or verb)
    return result if isinstance(result, click.Command) else make_command(result, verb)


def walk() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command there is with the words it is called by; a group is its actions."""
    for verb in VERBS:
        command = find(verb)
        if isinstance(command, Group):
            yield from (((verb, action), make()) for action, make in command.find.items())
        else:
            yield (verb,), command


def application() -> Group:
    """The whole command line."""
    return Group(
        "brickwork",
        {verb: functools.partial(find, verb) for verb in VERBS},
        "Take trained neural networks apart and build new ones from the parts.",
        WORDS,
        params=[click.Option(["--version"], is_flag=True, is_eager=True, callback=_version, expose_value=False)],
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; leaves with exit 0, 1 (the job failed) or 2 (the request was wrong)."""
    arguments = sys.argv[1:] if arguments is None else [str(word) for word in arguments]
    remember(arguments)
    try:
        code = application().main(args=list(arguments), prog_name="brickwork", standalone_mode=False)
    except click.Abort:
        complain("stopped; nothing half-written was left behind.")
        raise SystemExit(130) from None
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        raise SystemExit(2) from None
    except click.ClickException as error:
        complain(usage_sentence(error))
        raise SystemExit(2) from None
    except BrickworkError as error:  # a verb or an action that does not exist
        complain(in_words_of_options(error))
        raise SystemExit(error.exit_code) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def entry() -> None:
    """What a shell starts: `main` in a process of its own, where Ctrl-C always ends in exit 130.

    An interrupt in the middle of an import leaves a mark with which Python, though it was handled, would end by
    signal; everything is cleaned up by then, so the process leaves at once.
    """
    _use_utf8()
    try:
        main()
    except SystemExit as left:
        if left.code != 130:
            raise
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)


def _use_utf8() -> None:
    """Names of files are UTF-8 whatever the locale says; a terminal that lacks a letter shows its number instead."""
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _version(context: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted:
        import brickwork

        click.echo(f"brickwork {brickwork.__version__}")
        context.exit()
