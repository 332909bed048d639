"""What every recipe file shares: how it is read, and how an entry it does not have is told."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from brickwork.errors import BadFile, RequestError, UnknownName


def read_yaml(path: str | Path) -> Any:
    """What a YAML file says; no code in it is run."""
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise BadFile(f"{path} {what}; a recipe is a YAML file.")
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        where = f"line {at.line + 1}, column {at.column + 1}: " if at is not None else ""
        summary = " ".join(filter(None, (error.context, error.problem)))
        raise BadFile(f"{path} is not YAML: {where}{summary}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadFile(f"{path} is not YAML: {' '.join(str(error).split())}.") from error


def unknown_entries(entries: Any, keys: Collection[str], name: str, example: str) -> list[str]:
    """What a recipe says that none can; RequestError where it says nothing by name. example: what it should say."""
    if not isinstance(entries, Mapping):
        raise RequestError(f"{name} is a {type(entries).__name__}; it must say {example}.")
    return [unknown("entry of a recipe", key, keys) for key in entries if key not in keys]


def unknown(what: str, key: Any, known: Iterable[str]) -> str:
    """One of several things that are wrong: a name that is not known, and what was meant.

    >>> unknown("entry", "modles", ["models", "method"])
    "unknown entry 'modles'; did you mean 'models'? Known: models, method"
    """
    return str(UnknownName(what, str(key), known)).rstrip(".")
