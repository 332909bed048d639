"""`brickwork continual DATA … --tasks 20 --methods finetune,pool --start MODEL --out FOLDER`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brickwork.cli.common import (
    ArgsOption,
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    OutOption,
    SeedOption,
    emit,
    log,
    parse_args,
)
from brickwork.errors import RequestError
from brickwork.words import counted

if TYPE_CHECKING:
    from brickwork.continual import Scenario

TASKS, TRAINING, START = "The tasks", "The training", "The start"  # headings of the help
RUN = "continual.json"  # marks a folder as ours; holds the numbers when the run is done


def command(
    data: Annotated[
        list[str], typer.Argument(help="A data set to split by classes; several: one task each, in this order.")
    ],
    out: OutOption,
    start: Annotated[
        str,
        typer.Option(
            rich_help_panel=START, help="What every method starts from: a model folder, or an architecture, untrained."
        ),
    ],
    methods: Annotated[
        str, typer.Option(help="Comma-separated, with options in brackets, as in lora(rank=8).")
    ] = "finetune,joint,sequential,probe,bn-head,lora,pool",
    tasks: Annotated[
        int | None, typer.Option(min=1, rich_help_panel=TASKS, help="Tasks to split one data set into.")
    ] = None,
    classes_per_task: Annotated[
        int | None, typer.Option(min=1, rich_help_panel=TASKS, help="Classes of a task.")
    ] = None,
    class_seed: Annotated[
        int | None,
        typer.Option(min=0, rich_help_panel=TASKS, help="Shuffle the classes first.", show_default="their order"),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, rich_help_panel=TRAINING, help="Of each task, for every method.")] = 30,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1, rich_help_panel=TRAINING, help="Images a step.", show_default="up to 128, fewer for small tasks"
        ),
    ] = None,
    augment: Annotated[
        str | None,
        typer.Option(rich_help_panel=TRAINING, help="none, flip, crop or crop+flip; default: what suits the data."),
    ] = None,
    pool: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=START, help="A pool folder for the methods that need one; default: clustered from --start."
        ),
    ] = None,
    holdout: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=TASKS,
            help="Judge on this share of the training images instead of the test images: to choose options.",
        ),
    ] = None,
    forward: Annotated[
        bool,
        typer.Option("--forward", rich_help_panel=TASKS, help="Also measure every task just before it is learned."),
    ] = False,
    size: Annotated[
        int | None,
        typer.Option(min=1, rich_help_panel=START, help="Height and width of the images, for an architecture."),
    ] = None,
    arg: ArgsOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Learn task after task with several methods; accuracy against megabytes on disk, as a page and a CSV file.

    Each method leaves its real files in OUT/METHOD. A run that was stopped goes on with the same command; --force
    starts the methods asked for over.

    brickwork continual digits --tasks 5 --classes-per-task 2 --methods finetune,probe --start lenet --out tasks
    """
    from brickwork import data as images_of
    from brickwork.cli.train_start import find_start
    from brickwork.continual import parse, run
    from brickwork.continual.running import JOURNAL, folder_name
    from brickwork.devices import pick
    from brickwork.training import settings_for

    # Everything that can be refused is refused here, before an image is read.
    where = pick(str(device))
    chosen = parse(methods)
    specs = [images_of.check(spec, size=size) for spec in data]
    if len(specs) > 1 and (tasks is not None or classes_per_task is not None or class_seed is not None):
        raise RequestError(
            "several data sets are one task each; leave out --tasks, --classes-per-task and --class-seed."
        )
    if len(specs) == 1 and tasks is None and classes_per_task is None:
        raise RequestError("give --tasks or --classes-per-task to split the data set, or several data sets.")
    if holdout is not None and not 0 < holdout < 1:
        raise RequestError(f"--holdout is {holdout:g}; it must be above 0 and below 1.")
    settings_for(None, 1000, specs[0].source, augment=augment)
    begun = find_start(start, parse_args(arg), size)
    if begun.segments:
        raise RequestError(f"{start} is a segmenter; tasks here are of classes.")
    _check_out(out)
    pool_read = _pool(pool)

    scenario = _scenario(
        [images_of.load(s, seed=seed, size=begun.shape[1:], channels=begun.shape[0]) for s in specs],
        tasks,
        classes_per_task,
        class_seed,
    )
    if holdout is not None:
        scenario = scenario.held_out(holdout)
    if force:
        for name in chosen:
            folder = out / folder_name(name)
            if (folder / JOURNAL).exists():
                shutil.rmtree(folder)
    out.mkdir(parents=True, exist_ok=True)
    if not (out / RUN).exists():
        _write(out / RUN, json.dumps({"scenario": scenario.to_dict()}) + "\n")
    log(f"{scenario}; {counted(len(chosen), 'method')} from {start} …")
    try:
        found = run(
            scenario,
            list(chosen.values()),
            _network(begun, scenario, seed),
            out=out,
            epochs=epochs,
            batch_size=batch_size,
            augment=augment,
            forward=forward,
            pool=pool_read,
            seed=seed,
            device=where,
            progress=not as_json,
        )
    except KeyboardInterrupt:
        log(f"the tasks learned so far are in {out}; the same command goes on from there.")
        raise
    from brickwork.report.continual import draw_comparison
    from brickwork.report.runs import save_figures

    report: dict[str, Any] = {
        "folder": str(out),
        "start": start,
        "data": [str(s) for s in specs],
        "epochs": epochs,
        "seed": seed,
        **found.to_dict(),
        "tasks": scenario.to_dict()["tasks"],
    }
    _write(out / "continual.csv", found.csv())
    _write(out / RUN, json.dumps(report, indent=1) + "\n")
    page = draw_comparison(found)
    page.save(out / "continual.html")
    save_figures(out, page.drawings)
    emit(report, f"{found}\nsaved in {out}: continual.html, continual.csv, {RUN}", as_json=as_json)


def _scenario(sets: list[Any], tasks: int | None, per: int | None, seed: int | None) -> Scenario:
    from brickwork.continual import sequence, split_classes

    if len(sets) > 1:
        return sequence(sets)
    scenario = split_classes(sets[0], tasks=tasks, per=per, seed=seed)
    every, used = len(sets[0].classes), sum(len(task.classes) for task in scenario.tasks)
    if used < every:
        log(f"{every - used} of {counted(every, 'class')} of {sets[0].name} are left out: {scenario.name}.")
    return scenario


def _network(begun: Any, scenario: Scenario, seed: int) -> Any:
    """The start: a model folder whatever its classes, or an architecture with weights of this seed."""
    from brickwork import store

    if begun.folder is not None:
        return store.load(begun.folder)
    return begun.network(scenario.tasks[0].classes, seed)


def _pool(path: Path | None) -> Any:
    if path is None:
        return None
    from brickwork.pools import PoolFolder

    return PoolFolder.open(path).pool


def _check_out(out: Path) -> None:
    """A folder of an earlier run is gone on with; one of somebody else's is left alone."""
    from brickwork.atomic import check_output

    if not out.exists():
        check_output(out)
    elif not out.is_dir():
        raise RequestError(f"{out} is not a folder; choose another --out.")
    elif any(out.iterdir()) and not (out / RUN).exists():
        raise RequestError(
            f"{out} holds files and no run of this command (no {RUN}); choose another --out, or an empty folder."
        )


def _write(path: Path, text: str) -> None:
    from brickwork.atomic import write_file

    with write_file(path) as draft:
        Path(draft).write_text(text, encoding="utf-8")
