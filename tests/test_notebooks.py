"""The notebooks run from top to bottom, each in a folder of its own, and say what their text promises."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
RECIPES = NOTEBOOKS.pop("recipes")  # made from docs/recipes.md, whose examples run with the docs
PROMISES = {
    "cut-and-join": "gap < 1e-5 and accuracy > 0.85 and first.parameters <= 0.25 and torch.equal(again(x), joined(x))",
    "merge": "min(accuracy.values()) > 0.85 and min(accuracy.values()) > min(right(by_weights['mean']).values())",
    "tasks-in-a-pool": "same and accuracy > 0.9 and folder.bytes('second') < 0.2 * dense",
}


def run(path: Path) -> dict[str, Any]:
    """The code cells in order, in one namespace; the last line of a cell is shown as a notebook would."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"]), f"{path.name}, cell {number}")
        last = body.body.pop() if isinstance(body.body[-1], ast.Expr) else None
        exec(compile(body, f"{path.name}, cell {number}", "exec"), names)
        if last is not None:
            shown = eval(compile(ast.Expression(last.value), f"{path.name}, cell {number}", "eval"), names)
            show = getattr(shown, "_repr_html_", shown.__repr__)
            assert show()
    return names


def test_every_notebook_has_a_promise():
    assert set(NOTEBOOKS) == set(PROMISES)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run(NOTEBOOKS[name])
    assert eval(PROMISES[name], names)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_stored_without_outputs(name):
    cells = json.loads(NOTEBOOKS[name].read_text(encoding="utf-8"))["cells"]
    assert all(not c.get("outputs") and c.get("execution_count") is None for c in cells)


def test_the_notebook_of_the_recipes_is_the_page():
    from brickwork_lab.recipes import PICTURES, notebook

    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert RECIPES.read_text(encoding="utf-8") == notebook(page), "make recipes"
    for name in PICTURES:
        assert f"(images/recipe-{name}.svg)" in page and (ROOT / "docs" / "images" / f"recipe-{name}.svg").exists()
