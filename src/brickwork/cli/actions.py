"""Verbs with several actions (`pool learn`, `depend fit`): which option belongs to which, in the help and in refusals."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand

from brickwork.cli.common import typed
from brickwork.errors import RequestError

Takes = Mapping[Any, set[str]]  # action: the names in Python of the parameters it takes
WHOLE = "\u2011"  # a hyphen at which lines are not broken: an option split in two cannot be copied


def refuse_foreign(
    context: typer.Context, action: str, takes: Takes, everywhere: set[str], said: Mapping[str, str]
) -> None:
    """An option of another action is refused, not ignored. `said`: names as typed, where they differ."""
    for name in typed(context):
        if name not in takes[action] | everywhere:
            word = said.get(name, name).replace("_", "-")
            owners = " and ".join(str(a) for a, names in takes.items() if name in names)
            verb = context.info_name
            raise RequestError(f"--{word} belongs to {verb} {owners}, not to {verb} {action}.")


class PanelCommand(TyperCommand):
    """A verb whose help puts options under the headings that they name (`rich_help_panel`), in plain text."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections = self.sections(ctx)
        sections["Options"] = sections.pop("Options")  # what most verbs have stands last; --help is always there
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl([(name, words.replace("-", WHOLE)) for name, words in records])

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        whole = self.help
        self.help = self.told(inspect.cleandoc(whole or "")).replace("-", WHOLE)
        try:
            super().format_help_text(ctx, formatter)
        finally:
            self.help = whole

    def get_help(self, ctx: Any) -> str:
        return super().get_help(ctx).replace(WHOLE, "-")

    def told(self, text: str) -> str:
        """What of the verb's own text is shown."""
        return text

    def sections(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """Headings, and what stands under each: names and words."""
        found: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for param in self.get_params(ctx):
            heading, record = self.heading(param), param.get_help_record(ctx)
            if heading is not None and record is not None:
                found.setdefault(heading, []).append(record)
        return found

    def heading(self, param: Any) -> str | None:
        """Where a parameter stands in the help; None: nowhere."""
        if param.param_type_name == "argument":
            return "Arguments"
        return getattr(param, "rich_help_panel", None) or "Options"


class ActionCommand(PanelCommand):
    """`VERB -h` names the options of every action, `VERB ACTION -h` explains those of one."""

    takes: ClassVar[Takes] = {}
    everywhere: ClassVar[set[str]] = set()
    asked: ClassVar[Any] = None  # the action that was typed

    def heading(self, param: Any) -> str | None:
        if param.param_type_name == "option" and param.name not in self.everywhere | {"help"}:
            mine = self.asked is not None and param.name in self.takes[self.asked]
            return f"Options of {self.asked}" if mine else None
        return super().heading(param)

    def sections(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        found = super().sections(ctx)
        if self.asked is not None:
            own = f"{self.asked}: "  # said by the heading already
            return {title: [(n, words.removeprefix(own)) for n, words in rows] for title, rows in found.items()}
        options = {p.name: max(p.opts, key=len) for p in self.params if p.param_type_name == "option"}
        title = f"Options of each action (brickwork {ctx.info_name} ACTION -h explains them)"
        found[title] = [
            (str(action), " ".join(said for name, said in options.items() if name in names) or "none")
            for action, names in self.takes.items()
        ]
        return found

    def told(self, text: str) -> str:
        """With the examples of the action asked for, and no others."""
        parts = text.split("\n\n")
        if self.asked is not None:
            parts = [p for p in parts if not p.startswith("brickwork ") or p.split()[2] == str(self.asked)]
        return "\n\n".join(parts)


def command_class(module: Any, words: Sequence[str]) -> type[TyperCommand]:
    """How the verb of a module prints its help; words: what was typed behind the verb."""
    if not hasattr(module, "TAKES"):
        return PanelCommand
    asked = next((action for word in words for action in module.TAKES if word == str(action)), None)
    about = {"takes": module.TAKES, "everywhere": module.EVERYWHERE, "asked": asked}
    return type("AskedCommand", (ActionCommand,), about)
