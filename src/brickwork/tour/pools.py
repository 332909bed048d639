"""Part 4 of the tour: three tasks, one after another, as choices of kernels from one frozen pool."""

from dataclasses import replace
from typing import Any

from brickwork import continual
from brickwork.continual.result import MB
from brickwork.report.continual import draw_front
from brickwork.tour.stage import PartResult, Stage, as_options

METHODS = ("finetune", "sequential", "probe", "pool(size=48)")
WORDS = (
    "finetune keeps a whole network per task, sequential trains one network on and on, probe learns only a last layer per "
    "task, pool chooses from 48 frozen kernels per layer."
)


def pools(stage: Stage) -> PartResult:
    """Three tasks of two digits by weight search, beside a whole network per task, one network for all, and a probe."""
    tasks = continual.split_classes(stage.digits("digits:4-9"), tasks=3, per=2)
    start = stage.trained(stage.lenet(4), stage.digits("digits:0-3"))
    stage.save(start, "known", "digits:0-3")
    how: dict[str, Any] = {"epochs": stage.epochs(8), "batch_size": 16, "augment": "none"}
    comparison = continual.run(tasks, list(METHODS), start, out=stage.folder / "tasks", **stage.place, **how)
    results = comparison.results
    pool, whole = (results[name] for name in (METHODS[-1], "finetune"))
    sizes = " / ".join(f"{result.bytes_per_task / 1000:.0f}" for result in (pool, whole))
    cards = (
        ("a task from the pool, and a whole network", f"{sizes} kB"),
        ("three tasks from one pool, nothing forgotten", f"{pool.average_accuracy:.0%}"),
    )
    scenario = f"digits:4-9 --tasks 3 --classes-per-task 2 --start @known --methods {','.join(METHODS)}"
    command = stage.command(f"continual {scenario} {as_options(how)} {stage.seeded} --out tasks")
    numbers = {
        name: {"accuracy": r.average_accuracy, "forgetting": r.forgetting, "mb": r.total_bytes / MB}
        for name, r in results.items()
    }
    figure = draw_front(comparison)
    purpose, seen, so = figure.about.split("\n")
    so += f" Nothing is forgotten by pool; sequential loses {100 * results['sequential'].forgetting:.1f} points on earlier tasks."
    about = "\n".join([purpose, f"{seen} {WORDS}", so])
    return [replace(figure, about=about, part="pools", cards=cards, command=command)], numbers
