"""Part 2 of the tour: both networks added up, over a grid of how much of each."""

from dataclasses import replace

from brickwork.algebra import sweep
from brickwork.report.heat import draw_sweep
from brickwork.tour.stage import PartResult, Stage


def algebra(stage: Stage) -> PartResult:
    """Every cell of θ₀ + α g_a + β g_b on both halves."""
    step, count = (0.5, 3) if stage.quick else (0.1, 13)
    grid = [round(step * k, 10) for k in range(count)]
    sets = {f"digits:{half}": stage.digits(f"digits:{half}") for half in "AB"}
    a, b, start = (stage.nets[name] for name in ("a", "b", "start"))
    result = sweep(a, b, base=start, data=sets, alpha=grid, beta=grid, progress=False)
    command = stage.command(
        f"sweep @a @b --base @start --data digits:A --data digits:B --alpha 0:{grid[-1]:g}:{step:g} --out sum"
    )
    return [replace(draw_sweep(result), command=command)], {"balanced": result.balanced()}
