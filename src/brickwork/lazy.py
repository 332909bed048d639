"""Names of a package that are loaded on first use, so that importing one of its light modules does not import torch."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LINE = re.compile(r"^from (\S+) import (\w+) as (\w+)$|^# from (\S+)\ndef (\w+)", re.MULTILINE)


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__, __dir__, __all__ = attach(__name__, __file__)`.

    The names stand in `__init__.pyi` beside the file, which type checkers and editors read, and nowhere else: as
    `from brickwork.x import name as name`, or as `# from brickwork.x` above a function written out with its options.
    """
    home: dict[str, tuple[str, str]] = {}
    for module, name, alias, owner, function in _LINE.findall(Path(file).with_suffix(".pyi").read_text("utf-8")):
        home[alias or function] = module or owner, name or function

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = home[name]
        if module == package:  # a module of the package itself
            return importlib.import_module(f"{module}.{original}")
        value = getattr(importlib.import_module(module), original)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted(home), sorted(home)
