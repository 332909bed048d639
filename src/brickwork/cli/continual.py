"""`brickwork continual DATA … --tasks 20 --methods finetune,pool --start MODEL --out FOLDER`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from brickwork.atomic import write_text
from brickwork.cli.command import Argument, Report
from brickwork.cli.parameters import ArchArguments, ImageSize, Running, check_data
from brickwork.cli.printing import log
from brickwork.continual.options import ContinualOptions, SplitOptions
from brickwork.engine.options import EngineOptions
from brickwork.errors import RequestError
from brickwork.options import Setting, refuse
from brickwork.words import counted

START = "The start"  # heading of the help
RUN = "continual.json"  # marks a folder as ours; holds the numbers when the run is done
METHODS = "finetune,joint,sequential,probe,bn-head,lora,pool"


def _methods(text: str, given: Mapping[str, Any]) -> Any:
    from brickwork.continual import parse

    return parse(text)


def _out(out: Path, given: Mapping[str, Any]) -> Path:
    """A folder of an earlier run is gone on with; one of somebody else's is left alone."""
    from brickwork.atomic import check_output

    if not out.exists():
        check_output(out)
    elif not out.is_dir():
        raise RequestError(f"{out} is not a folder; choose another `out`.")
    elif any(out.iterdir()) and not (out / RUN).exists():
        raise RequestError(
            f"{out} holds files and no run of this command (no {RUN}); choose another `out`, or an empty folder."
        )
    return out


def _pool(path: Path, given: Mapping[str, Any]) -> Any:
    from brickwork.pools import PoolFolder

    return PoolFolder.open(path, arch=given.get("arch"))


def continual(
    data: Annotated[
        tuple[str, ...],
        Argument("A data set to split by classes; several: one task each, in this order.", "DATA...", check=check_data),
    ],
    *,
    out: Annotated[Path, Setting("Folder to write.", metavar="FOLDER", check=_out)],
    start: Annotated[
        str, Setting("What every method starts from: a model folder, or an architecture, untrained.", panel=START)
    ],
    methods: Annotated[
        str, Setting("Methods, separated by commas, with options in brackets, as in lora(rank=8).", check=_methods)
    ] = METHODS,
    split: SplitOptions,
    options: ContinualOptions,
    pool: Annotated[
        Path | None,
        Setting(
            "Pool folder for the methods that need one.",
            metavar="FOLDER",
            default_text="clustered from --start",
            panel=START,
            check=_pool,
        ),
    ] = None,
    size: ImageSize = None,
    arg: ArchArguments = None,
    run: Running,
    running: EngineOptions,
) -> Report:
    """Learn task after task with several methods; accuracy against megabytes on disk, as a page and a CSV file.

    Each method leaves its real files in OUT/METHOD. A run that was stopped goes on with the same command; --force
    starts the methods asked for over.

    brickwork continual digits --tasks 5 --classes-per-task 2 --methods finetune,probe --start lenet --out tasks
    """
    from brickwork.continual import run as learn_tasks
    from brickwork.continual.jobs import open_tasks, run_methods
    from brickwork.continual.running import JOURNAL, check_pool, folder_name
    from brickwork.data.class_groups import class_groups
    from brickwork.report.continual import draw_comparison
    from brickwork.report.runs import save_figures

    chosen: Any = methods  # by name: `_methods` has read them
    folder: Any = pool  # and that one, too
    specs: Any = data
    given = None if folder is None else folder.pool
    refuse([*split.rules_for(len(data))])
    if split.groups is not None:
        class_groups(split.groups)
    check_pool(chosen.values(), given)
    scenario, network = open_tasks(data, start, arg or {}, size, split, options.seed, run.arch)
    if scenario.left_out:
        every = counted(scenario.left_out + sum(len(task.classes) for task in scenario.tasks), "class")
        log(f"{scenario.left_out} of {every} of {data[0]} are left out: {scenario.name}.")
    for old in [out / folder_name(name) for name in chosen] if run.force else []:
        if (old / JOURNAL).exists():
            shutil.rmtree(old)
    out.mkdir(parents=True, exist_ok=True)
    if not (out / RUN).exists():
        write_text(out / RUN, json.dumps({"scenario": scenario.to_dict()}) + "\n")
    log(f"{scenario}; {counted(len(chosen), 'method')} from {start} …")
    try:
        if running.elsewhere:
            request = {
                "data": [str(replace(spec, source=_absolute(spec.source))) for spec in specs],
                "names": [str(spec) for spec in specs],
                "start": str(Path(start).resolve()) if Path(start).is_dir() else start,
                "split": {**split.to_dict(), "groups": split.groups and _absolute(split.groups)},
                "pool": folder and str(folder.path.resolve()),
                "out": str(out.resolve()),
                "device": str(run.where),
                "options": options.to_dict(),
            }
            run_methods(
                list(chosen), running, {**request, "arg": arg or {}, "arch": run.arch and list(run.arch), "size": size}
            )
        result = learn_tasks(
            scenario, list(chosen.values()), network, out=out, pool=given, device=run.where, options=options
        )
    except KeyboardInterrupt:
        log(f"the tasks learned so far are in {out}; the same command goes on from there.")
        raise
    about = {"start": start, "data": [str(spec) for spec in data], "epochs": options.epochs, "seed": options.seed}
    report = {"folder": str(out), **about, **result.to_dict(), "tasks": scenario.to_dict()["tasks"]}
    page = draw_comparison(result)
    page.save(out / "continual.html")
    save_figures(out, page.drawings)
    write_text(out / "continual.csv", result.csv())
    write_text(out / RUN, json.dumps(report, indent=1) + "\n")
    return Report(report, f"{result}\nsaved in {out}: continual.html, continual.csv, {RUN}")


def _absolute(name: str) -> str:
    """A path as another process finds it, wherever that works; the name of a set stays as it is."""
    from brickwork.data.named import known_names

    return str(Path(name).resolve()) if name not in known_names() and Path(name).exists() else name
