"""`python -m brickwork_lab.reference build/docs`: a reference of all public names, from their docstrings (`make docs`).

pdoc reads the names that packages list; here functions get the options that they take, and options their help.
"""

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from brickwork.options import Field, Options, fields_of

#: packages that list their public names, and modules whose names are public
MODULES = (
    "",
    *(
        "options",
        "results",
        "data",
        "blueprint",
        "moments",
        "store",
        "training",
        "evaluation",
        "prediction",
        "inspection",
    ),
    *("bricks", "algebra", "transplant", "pools", "dependencies", "continual", "report", "engine", "origin", "devices"),
)


def main(folder: str | Path) -> None:
    """Write the reference as HTML pages that open offline."""
    import pdoc
    import pdoc.render

    names = [f"brickwork.{name}".rstrip(".") for name in MODULES]
    for name in names:
        for value in _public(importlib.import_module(name)):
            explain(value)
    pdoc.render.configure(docformat="markdown", show_source=False, footer_text="Brickwork")
    pdoc.pdoc(*names, output_directory=Path(folder))


def _public(module: ModuleType) -> Iterator[Any]:
    for name in getattr(module, "__all__", vars(module)):
        yield getattr(module, name, None)


def explain(value: Any) -> None:
    """Say in a docstring what options there are.

    >>> from brickwork.options import option
    >>> class Cut(Options):
    ...     '''How a network is cut.'''
    ...     budget: float = option(default=0.5, above=0, at_most=1, help="Share that may stay.")
    >>> explain(Cut)
    >>> print(Cut.__doc__)
    How a network is cut.
    <BLANKLINE>
    | option | default | meaning |
    |---|---|---|
    | `budget` | 0.5 | Share that may stay; above 0 and at most 1 |
    """
    if inspect.isclass(value) and issubclass(value, Options) and value is not Options:
        known = list(fields_of(value).values())
    else:
        classes = getattr(value, "options", None) if inspect.isfunction(value) else None
        if not isinstance(classes, dict):
            return
        known = [field for cls in classes.values() for field in fields_of(cls).values()]
        vars(value).pop("__wrapped__", None)  # else the signature of the plain function is shown, without the options
    if known and _HEAD not in (value.__doc__ or ""):
        value.__doc__ = "\n".join([inspect.getdoc(value) or "", "", _HEAD, "|---|---|---|", *map(_row, known)])


_HEAD = "| option | default | meaning |"


def _row(field: Field) -> str:
    setting = field.setting
    if field.required:
        default = "required"
    else:
        default = setting.default_text or ("" if field.default in (None, ()) else str(field.default))
    bounds = setting.bounds()
    rule = f": {', '.join(setting.choices)}" if setting.choices else "" if bounds == "a number" else f"; {bounds}"
    return f"| `{field.name}` | {default} | {setting.help.removesuffix('.')}{rule} |".replace("\n", " ")


if __name__ == "__main__":
    main(sys.argv[1])
