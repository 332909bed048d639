"""What every recipe file shares: how it is read, and how an entry it does not have is told."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from brickwork.errors import BadFile, RequestError, UnknownName

MOST, LARGEST, DEEP = (
    100_000,
    1 << 23,
    100,
)  # entries with aliases written out, bytes of the file, brackets within brackets


def read_yaml(path: str | Path) -> Any:
    """What a YAML file says; no code in it is run."""
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise BadFile(f"{path} {what}; a recipe is a YAML file.")
    try:
        if path.stat().st_size > LARGEST:
            raise BadFile(f"{path} has {path.stat().st_size >> 20} MB; a recipe has a few lines.")
        return _loaded(path.read_text(encoding="utf-8"), path)
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        where = f"line {at.line + 1}, column {at.column + 1}: " if at is not None else ""
        summary = " ".join(filter(None, (error.context, error.problem)))
        raise BadFile(f"{path} is not YAML: {where}{summary}.") from error
    except RecursionError:
        raise BadFile(f"{path} is not a recipe: its entries lie too deep within each other.") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise BadFile(f"{path} is not YAML: {' '.join(str(error).split())}.") from error


def unknown_entries(entries: Any, keys: Collection[str], name: str, example: str) -> list[str]:
    """What a recipe says that none can; RequestError where it says nothing by name. example: what it should say."""
    if not isinstance(entries, Mapping):
        raise RequestError(f"{name} is a {type(entries).__name__}; it must say {example}.")
    return [unknown("entry of a recipe", key, keys) for key in entries if key not in keys]


class _Loader(yaml.SafeLoader):
    """The safe loader, which takes a time that grows with the square of how deep brackets lie within each other."""

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        if self.flow_level > DEEP:
            raise RecursionError
        super().fetch_flow_collection_start(token)


def _loaded(text: str, path: Path) -> Any:
    """As yaml.safe_load, once it is known how much there is: a few lines of aliases can stand for billions of entries."""
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        if _entries(root, {}) > MOST:
            raise BadFile(f"{path} stands for more than {MOST} entries, by aliases (*) of aliases; write them out.")
        return loader.construct_document(root)
    finally:
        loader.dispose()


def _entries(node: yaml.Node, known: dict[int, int]) -> float:
    """How many nodes there are with every alias written out; infinite for one that holds itself."""
    if id(node) not in known:
        known[id(node)] = MOST + 1  # while it is open: met again, it is within itself
        parts = node.value if isinstance(node, yaml.CollectionNode) else ()
        inner = (n for part in parts for n in (part if isinstance(part, tuple) else (part,)))
        known[id(node)] = 1 + sum(int(min(_entries(n, known), MOST + 1)) for n in inner)
    return known[id(node)]


def unknown(what: str, key: Any, known: Iterable[str]) -> str:
    """One of several things that are wrong: a name that is not known, and what was meant.

    >>> unknown("entry", "modles", ["models", "method"])
    "unknown entry 'modles'; did you mean 'models'? Known: models, method"
    """
    return str(UnknownName(what, str(key), known)).rstrip(".")
