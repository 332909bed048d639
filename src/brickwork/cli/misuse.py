"""What a shell is told when typer refuses what was typed: one sentence, with the value and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

#: how typer's checks speak, and what a person would say
_PLAIN = (
    (r"Input should be a valid integer.*", "it must be a whole number"),
    (r"Input should be a valid number.*", "it must be a number"),
    (r"Input should be a valid boolean.*", "it must be true or false"),
    (r"Input should be greater than or equal to (\S+)", r"it must be \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"it must be \1 or less"),
    (r"Input should be greater than (\S+)", r"it must be above \1"),
    (r"Input should be less than (\S+)", r"it must be below \1"),
    (r"Value error, '.*' is not one of (.*?)\.?", r"it must be one of \1"),
    (r"'.*' is not one of (.*?)\.?", r"it must be one of \1"),
    (r"'.*' is not a valid int(?:eger)?\.?", "it must be a whole number"),
    (r"'.*' is not a valid float\.?", "it must be a number"),
)


def told(error: Any, arguments: Sequence[str]) -> str:
    """One sentence for one of typer's refusals (an exception with `format_message`, `ctx` and perhaps `param`)."""
    names = getattr(getattr(error, "param", None), "opts", None) or []
    typed = _typed(names, arguments)
    message = str(getattr(error, "message", "") or "")
    if typed and message:
        said = _plainly(message)
        wrong = [v for v in typed if not _is_number(v)] if said.endswith("number") else []
        text = f"{names[0]} is {', '.join(map(repr, wrong or typed))}; {said}"
    else:
        text = " ".join(error.format_message().replace("Value error, ", "").split())
        text = text[:1].lower() + text[1:]
    verb = f"brickwork {arguments[0]}" if arguments and not arguments[0].startswith("-") else "brickwork"
    where = getattr(getattr(error, "ctx", None), "command_path", verb)
    return f"{text.removesuffix('.')}{' ' if text.endswith('?') else '; '}`{where} -h` shows what there is."


def _typed(names: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """The words that were typed for an option."""
    found = []
    for word, after in zip(arguments, [*arguments[1:], None], strict=True):
        name, equals, value = word.partition("=")
        if name.startswith("-") and name in names:
            found += [value] if equals else [after] if after is not None else []
    return found


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _plainly(message: str) -> str:
    for pattern, said in _PLAIN:
        if re.fullmatch(pattern, message, re.DOTALL):
            return re.sub(pattern, said, message, count=1, flags=re.DOTALL)
    return message[:1].lower() + message[1:]
