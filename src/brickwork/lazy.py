"""Names of a package that are loaded on first use, so that importing one of its light modules does not import torch."""

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LINE = re.compile(r"^from (\S+) import (\w+) as (\w+)$|^# from (\S+) import (\w+)\ndef (\w+)", re.MULTILINE)


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__, __dir__, __all__ = attach(__name__, __file__)`.

    The names stand in `__init__.pyi` beside the file, which type checkers and editors read, and nowhere else: as
    `from brickwork.x import name as name`, or as `# from brickwork.x import name` above a function written out with its
    options (`brickwork_lab.stubs` writes these).
    """
    home = homes_of(Path(file).with_suffix(".pyi"))

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = home[name]
        if module == package:  # a module of the package itself
            return importlib.import_module(f"{module}.{original}")
        value = getattr(importlib.import_module(module), original)
        setattr(sys.modules[package], name, value)
        return value

    names = sorted(home)
    return load, lambda: sorted(names), names


def homes_of(stub: Path) -> dict[str, tuple[str, str]]:
    """{public name: (module, name in it)}, as a stub says."""
    found = _LINE.findall(stub.read_text("utf-8"))
    return {alias or function: (module or owner, name or own) for module, name, alias, owner, own, function in found}


class Elsewhere:
    """A function of another module as a static method, loaded on first use: `cluster = Elsewhere("brickwork.x", "cluster")`.

    For a class that its own makers import; with it goes the function's whole signature.
    """

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __get__(self, instance: object, owner: type) -> Any:
        return getattr(importlib.import_module(self.module), self.name)
