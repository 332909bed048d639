"""Part 2 of the tour: both networks added up, over a grid of how much of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from brickwork.algebra import sweep
from brickwork.report.heat import draw_sweep
from brickwork.tour.stage import Stage


def algebra(stage: Stage) -> tuple[list[Any], dict[str, Any]]:
    """Every cell of θ₀ + α g_a + β g_b on both halves."""
    step, count = (0.5, 3) if stage.quick else (0.1, 13)
    grid = [round(step * k, 10) for k in range(count)]
    sets = {f"digits:{h}": stage.digits(f"digits:{h}") for h in "AB"}
    found = sweep(
        stage.nets["a"], stage.nets["b"], base=stage.nets["start"], data=sets, alpha=grid, beta=grid, progress=False
    )
    command = stage.said(
        "sweep",
        "@a",
        "@b",
        "--base",
        "@start",
        "--data",
        "digits:A",
        "--data",
        "digits:B",
        "--alpha",
        f"0:{grid[-1]:g}:{step:g}",
        "--out",
        "sum",
    )
    return [replace(draw_sweep(found), command=command)], {"balanced": found.balanced()}
