"""The command line: `brickwork VERB …`. A verb is one line of VERBS and one module with a `command` function.

Only the module of the verb that was typed is imported, and torch only when that verb runs.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from brickwork.cli.actions import PanelCommand, command_class
from brickwork.cli.common import complain, is_typers, remember, reporting
from brickwork.cli.misuse import told

#: verb, module of brickwork.cli, help line
VERBS = (
    ("demo", "demo", "The tour: every part of Brickwork once, on embedded digits, ending in a page."),
    ("info", "info", "Layers, channel spaces, parameters and FLOPs of an architecture or a model folder."),
    ("train", "train", "Train an architecture on a data set and save a model folder."),
    ("eval", "eval", "Evaluate a model folder on a data set."),
    ("study", "study", "Run a paper's table: the paper's numbers and ours side by side."),
    ("disassemble", "disassemble", "Cut the part of some classes out of a model folder, as a brick."),
    ("assemble", "assemble", "Join bricks into one model folder."),
    ("increment", "increment", "Give a model folder the classes of bricks cut from others."),
    ("compress", "compress", "Drop what no class needs from a model folder."),
    ("routes", "routes", "Draw which channels decide for which class: SVG, PNG or an HTML page."),
    ("treat", "treat", "Fine-tune a model folder with the route of each class as a constraint."),
    ("distil", "distil", "Train a student model folder towards what its teachers answer."),
    ("transfer", "transfer", "Train a model folder on images of another kind, holding what belongs to a class."),
    ("adapt", "adapt", "Match a model folder to images of another kind on unlabelled pairs."),
    ("depend", "depend", "Find which classes' logits are combinations of a few others', and what they cost."),
    ("transplant", "transplant", "Plug category modules into task modules through small learned adapters."),
    ("pool", "pool", "Learn task after task by choosing kernels from a frozen pool, well under a megabyte each."),
    ("delta", "delta", "What training added to a network, as a file that knows its base."),
    ("assign", "assign", "Add what one network learned to another."),
    ("merge", "merge", "Merge networks of one architecture, tensor by tensor."),
    ("sweep", "sweep", "Accuracy of αA + βB over a grid: table, heat maps, the balanced point."),
    ("cancel", "cancel", "Why tasks cancel: training in sequence against assigning what was learned."),
    ("continual", "continual", "Learn task after task with several methods; accuracy against megabytes on disk."),
    ("report", "report", "One page of what other verbs found: key numbers, figures, tables; opens offline."),
    ("studio", "studio", "A local page: drag classes of networks onto a board, build one network of them."),
    ("bench", "bench", "Measure Brickwork against its peers: time, memory, exactness."),
)


def application(arguments: Sequence[str]) -> typer.Typer:
    """The typer application for these arguments: the typed verb for real, the others by help line."""
    app = typer.Typer(
        name="brickwork",
        help="Take trained neural networks apart and build new ones from the parts.",
        no_args_is_help=True,
        rich_markup_mode=None,  # plain text: quick to start, and the same in a pipe
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_top)
    place = next((k for k, word in enumerate(arguments) if not word.startswith("-")), len(arguments))
    typed = arguments[place] if place < len(arguments) else None
    completing = any(name.startswith("_") and name.endswith("_COMPLETE") for name in os.environ)
    for verb, module, line in VERBS:
        function: Callable[..., Any] = _elsewhere
        kind: type[TyperCommand] = PanelCommand
        if verb == typed or completing:
            found = importlib.import_module(f"brickwork.cli.{module}")
            function, kind = reporting(found.command), command_class(found, arguments[place + 1 :])
        app.command(verb, cls=kind, help=function.__doc__ or line, short_help=line)(function)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; leaves with exit 0, 1 (the job failed) or 2 (the request was wrong)."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    remember(arguments)
    try:
        code = application(arguments)(args=list(arguments), prog_name="brickwork", standalone_mode=False)
    except Exception as error:
        if not is_typers(error):
            raise
        if type(error).__name__ == "Abort":
            complain("stopped; nothing half-written was left behind.")
            raise SystemExit(130) from None
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
        else:
            complain(told(error, arguments))
        raise SystemExit(2) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def entry() -> None:
    """What a shell starts: `main` in a process of its own, where Ctrl-C always ends in exit 130.

    An interrupt in the middle of an import leaves a mark with which Python, though it was handled, would end by
    signal; everything is cleaned up by then, so the process leaves at once.
    """
    try:
        main()
    except SystemExit as left:
        if left.code != 130:
            raise
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)


def _elsewhere() -> None:  # never run: typer runs the typed verb only
    raise AssertionError("a verb was run that was not typed")


_elsewhere.__doc__ = None


def _show_version(wanted: bool) -> None:
    if wanted:
        import brickwork

        typer.echo(f"brickwork {brickwork.__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
