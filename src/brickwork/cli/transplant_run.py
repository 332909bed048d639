"""`brickwork transplant run RECIPE.yaml --out NET`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from brickwork.cli.common import emit, log, table


def run(
    recipe: Path, out: Path, *, checkpoint: Path | None, arch: str | None, device: str, force: bool, as_json: bool
) -> None:
    """Grow a net as the recipe says; a run that was stopped goes on after its last whole step."""
    from brickwork.cli.transplant_parts import described, percent
    from brickwork.devices import pick
    from brickwork.transplant.recipe import read_recipe
    from brickwork.transplant.recipe_run import run_recipe

    where = pick(device)
    plan = read_recipe(recipe)
    net, notes = run_recipe(
        plan, out, checkpoint=checkpoint, arch=arch, device=where, force=force, progress=not as_json, tell=log
    )
    rows = [_row(note, percent) for note in notes]
    text = table(["step", "test before", "after", "teacher's"], rows)
    emit(
        {"folder": str(out), "recipe": str(recipe), "steps": notes, **described(net)},
        f"{text}\nsaved in {out}",
        as_json=as_json,
    )


def _row(note: dict[str, Any], percent: Any) -> tuple[str, ...]:
    if "learned" in note:
        after = ", ".join(percent(found.get("after")) for found in note["learned"].values())
        return note["step"], "–", after, "–"
    return note["step"], *(percent(note.get(name)) for name in ("before", "after", "teacher_test"))
