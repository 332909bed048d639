"""Part 4 of the tour: three tasks, one after another, as choices of kernels from one frozen pool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from brickwork import continual, store
from brickwork.continual.result import MB
from brickwork.report.continual import draw_front
from brickwork.tour.stage import Stage, as_options

METHODS = ("finetune", "sequential", "probe", "pool(size=48)")
ABOUT = (
    "finetune keeps a whole network for every task, sequential trains one network on and on, probe learns a last layer a "
    "task and nothing else, pool chooses from 48 frozen kernels a layer. Up and to the left is better."
)


def pools(stage: Stage) -> tuple[list[Any], dict[str, Any]]:
    """Three tasks of two digits by weight search, beside a whole network a task, one network for all, and a probe."""
    tasks = continual.split_classes(stage.digits("digits:4-9"), tasks=3, per=2)
    known = stage.digits("digits:0-3")
    start = stage.trained(stage.lenet(4), known)
    store.save(start, stage.folder / "known")
    how: dict[str, Any] = {"epochs": stage.epochs(8), "batch_size": 16, "augment": "none"}
    found = continual.run(
        tasks,
        list(METHODS),
        start,
        out=stage.folder / "tasks",
        seed=stage.seed,
        device=stage.device,
        progress=False,
        **how,
    )
    pool, whole = found.results[METHODS[-1]], found.results["finetune"]
    cards = (
        (
            "a task from the pool, and a whole network",
            f"{pool.bytes_per_task / 1000:.0f} / {whole.bytes_per_task / 1000:.0f} kB",
        ),
        ("three tasks from one pool, nothing forgotten", f"{pool.average_accuracy:.0%}"),
    )
    command = stage.said(
        "continual",
        "digits:4-9",
        "--tasks",
        3,
        "--classes-per-task",
        2,
        "--start",
        "@known",
        "--methods",
        ",".join(METHODS),
        *as_options(how),
        *stage.seeded,
        "--out",
        "tasks",
    )
    rows = {
        name: {"accuracy": r.average_accuracy, "forgetting": r.forgetting, "mb": r.total_bytes / MB}
        for name, r in found.results.items()
    }
    figure = draw_front(found)
    about = f"{ABOUT} {figure.about}"
    return [replace(figure, about=about, part="pools", cards=cards, command=command)], rows
