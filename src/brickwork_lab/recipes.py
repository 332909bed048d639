"""The recipes' pictures and their notebook, from the page itself.

    python -m brickwork_lab.recipes docs/recipes.md docs/images notebooks/recipes.ipynb

runs every example of the page, draws one SVG per recipe from what it left, and writes the page as a notebook.
"""

import doctest
import json
import math
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from brickwork.report.bars import Bar, draw_bars
from brickwork.report.drawing import Drawing

Names = dict[str, Any]


def blocks(text: str) -> list[tuple[str, str]]:
    """The page in pieces: ("python", a block of examples) or ("", text), in order."""
    pieces = re.split(r"^```(\w*)\n(.*?)^```\n", text, flags=re.MULTILINE | re.DOTALL)
    made: list[tuple[str, str]] = []
    for k in range(0, len(pieces), 3):
        made.append(("", pieces[k]))
        if k + 2 < len(pieces):
            made.append((pieces[k + 1], pieces[k + 2]))
    return [(kind, piece) for kind, piece in made if piece.strip()]


def notebook(text: str, docs: str = "../docs/") -> str:
    """The page as a notebook without outputs: examples are cells, what they print is left to whoever runs them.

    >>> cells = json.loads(notebook("# Two\\n\\n```python\\n>>> 1 + 1\\n2\\n```\\n"))["cells"]
    >>> [(cell["cell_type"], cell["source"]) for cell in cells]
    [('markdown', ['# Two']), ('code', ['1 + 1'])]
    """
    cells: list[dict[str, Any]] = []
    for kind, piece in blocks(text):
        if kind == "python":
            source = "".join(example.source for example in doctest.DocTestParser().get_examples(piece))
            source = re.sub(r"\s*# doctest: \S+", "", source)
            cells.append(
                {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}
            )
        else:
            linked = re.sub(r"\]\((?!https?:|#)", f"]({docs}", piece if not kind else f"```{kind}\n{piece}```")
            cells.append({"cell_type": "markdown", "metadata": {}, "source": linked})
    for number, cell in enumerate(cells):
        cell |= {"id": f"cell-{number}", "source": cell["source"].strip().splitlines(keepends=True)}
    facts = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    whole = {"cells": cells, "metadata": facts, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def run(text: str) -> Names:
    """What the examples of the page leave behind, those that the tests skip, too."""
    names: Names = {}
    for kind, piece in blocks(text):
        for example in doctest.DocTestParser().get_examples(piece) if kind == "python" else ():
            exec(compile(example.source, "docs/recipes.md", "exec"), names)
    return names


def _milliseconds(n: Names) -> Drawing:
    """Of 64 images, the fastest of 60 passes, the two networks in turn: others on the machine slow down some of them."""
    import torch

    images, best = torch.zeros(64, 1, 16, 16), {"the whole": math.inf, "a budget of 70 % of its time": math.inf}
    with torch.no_grad():
        for _ in range(60):
            for words, model in zip(best, (n["slow"].eval(), n["fast"].model.eval()), strict=True):
                began = time.perf_counter()
                model(images)
                best[words] = min(best[words], 1000 * (time.perf_counter() - began))
    most = max(best.values())
    bars = [Bar(words, ms / most, f"{ms:.1f} ms", 2 - 2 * k) for k, (words, ms) in enumerate(best.items())]
    return draw_bars("64 images take", bars)


def _bars(title: str, *rows: tuple[str, float, int]) -> Drawing:
    return draw_bars(title, [Bar(words, value, f"{value:.1%}", kind) for words, value, kind in rows])


def _kilobytes(title: str, *rows: tuple[str, float, int]) -> Drawing:
    most = max(size for _, size, _ in rows)
    return draw_bars(title, [Bar(words, size / most, f"{size / 1000:.0f} kB", kind) for words, size, kind in rows])


def _budgets(n: Names) -> Drawing:
    rows = n["several"].table()
    shares = [("the whole" if row["budget"] is None else f"{row['parameters']:.0%} of the parameters") for row in rows]
    kinds = [2 if row["budget"] is None else 0 for row in rows]
    return _bars("Test images right", *zip(shares, [row["accuracy"] for row in rows], kinds, strict=True))


#: recipe: its picture
PICTURES: dict[str, Callable[[Names], Drawing]] = {
    "few": lambda n: _bars(
        "Three digits right",
        ("the whole network", n["part"].accuracy_before, 2),
        ("a tenth of it", n["part"].accuracy_after, 0),
    ),
    "teams": lambda n: _bars(
        "Test images right",
        *((f"team {k + 1}'s network", n["right"](net, n["digits"]), 2) for k, net in enumerate(n["teams"])),
        ("both by match", n["right"](n["one"], n["digits"]), 0),
        ("both averaged", n["right"](n["mean"], n["digits"]), 1),
    ),
    "more": lambda n: _bars(
        "All ten digits right",
        ("a part beside it, nothing trained", n["right"](n["more"], n["digits"]), 1),
        ("fitted on its features", n["right"](n["fitted"], n["digits"]), 0),
    ),
    "customers": lambda n: _kilobytes(
        "On disk, per customer",
        ("a network each", n["whole_each"].bytes_per_task, 2),
        ("choices from a pool", n["pool"].bytes_per_task, 0),
    ),
    "labels": lambda n: _bars(
        "What is left unexplained",
        ("a digit, least of ten", min(n["found_map"].columns["rel_error"]), 2),
        ("the label made of two others", n["tied"].columns["rel_error"][9], 0),
    ),
    "slow": _milliseconds,
    "big": _budgets,
    "join": lambda n: _bars(
        "Six digits right",
        ("parts of both, joined", n["right"](n["six"], n["six_digits"]), 0),
        ("both networks side by side", n["side_by_side"], 2),
    ),
    "ship": lambda n: _kilobytes(
        "Files that are shipped",
        ("the network with its part beside it", n["larger"], 2),
        ("six digits of both", n["shipped"], 0),
    ),
    "forget": lambda n: _bars(
        "Eights that a probe still finds",
        ("in the whole network", n["without"].before.probed, 2),
        ("after forgetting them", n["without"].after.probed, 0),
    ),
    "why": lambda n: _bars(
        "Channels that 4 and 9 share",
        *((layer, n["found_routes"].sharing(layer, "4", "9"), 0) for layer in ("conv1", "conv2", "fc1", "fc2")),
    ),
}


if __name__ == "__main__":
    page, images, out = map(Path, sys.argv[1:4])
    names = run(page.read_text(encoding="utf-8"))
    for name, draw in PICTURES.items():
        drawing = draw(names)
        (images / f"recipe-{name}.svg").write_text(drawing.svg(), encoding="utf-8")
        print(name, drawing.rows)
    out.write_text(notebook(page.read_text(encoding="utf-8")), encoding="utf-8")
