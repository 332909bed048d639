"""Eight networks fine-tuned from one start, merged into one by every method of the library, a head per task.

No method sees a label: what is tried at several settings is decided by agreement with the tasks' own networks on held-out
training images. Batch-norm statistics are those of the same unlabelled images, mixed, in every row. With `networks`, fine-tuned
networks and finished rows are kept there by hash, so that a run that was stopped goes on where it was. On an engine, starts,
fine-tuned networks and methods are jobs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from brickwork.atomic import write_text
from brickwork.engine import Job
from brickwork.errors import BrickworkError
from brickwork_lab.lab import Lab, digest
from brickwork_lab.studies.registry import Names, Parts, Row, averaged, check_names, study
from brickwork_lab.suite.merging import Sizes, Suite
from brickwork_lab.suite.methods import NOT_FOR_THIS, PUBLISHED, Candidate, candidates
from brickwork_lab.suite.starts import STARTS, load_start
from brickwork_lab.suite.tasks import load_tasks, task_names
from brickwork_lab.suite.tuning import FOLDER, Tuning, fine_tune, start_network

SMALL = Sizes(images=40, choosing=20, trial=20, damaged=10, readout=100, steps=3)
ALONE = "fine-tuned"  # the row of the tasks' own networks
VERSION = 1  # of what a row measures; rows that an earlier one kept are measured again


def parts(
    lab: Lab,
    *,
    starts: Sequence[str] | None = None,
    sets: Sequence[str] | None = None,
    picks: Sequence[str] | None = None,
    seeds: int = 3,
    **options: Any,
) -> Parts:
    """Starts first, then a network per task, then what every method is compared with; after that a job per method."""
    check_names("merge method of this study", picks, [*_picks(lab), ALONE])
    chosen, runs = _starts(lab, starts), range(seeds if lab.full else 1)
    where = {"full": lab.full, "device": lab.device, "networks": lab.networks}
    begun = [{"where": {**where, "seed": lab.seed + k}, "start": start} for start in chosen for k in runs]
    how = {name: options.get(name) for name in ("images", "epochs", "lr")}
    common = {**options, "seeds": seeds, **({"sets": list(sets)} if sets else {})}

    def rows(pick: str, start: str) -> dict[str, Any]:
        return {**common, "starts": [start], "picks": [pick]}

    compared = {"study": "eight-tasks", "where": {**where, "seed": lab.seed}}
    first = [
        [Job(begin, one, f"start {one['start']}") for one in begun],
        [
            Job(tune, {**one, "task": t, **how}, f"{one['start']} on {t}")
            for one in begun
            for t in task_names(lab, sets)
        ],
        [Job("brickwork_lab.studies.jobs:rows_of", {**compared, "options": rows(ALONE, s)}, s) for s in chosen],
    ]
    wanted = [pick for pick in _picks(lab) if not picks or pick in picks]
    return Parts([rows(pick, start) for start in chosen for pick in wanted] or [rows(ALONE, s) for s in chosen], first)


def begin(where: dict[str, Any], start: str) -> None:
    """A start, pretrained where it has to be, left in the folder of networks."""
    load_start(Lab(progress=False, **where), start)


def tune(
    where: dict[str, Any], start: str, task: str, images: int | None, epochs: int | None, lr: float | None
) -> dict[str, float]:
    """One task's own network, left in the folder of networks."""
    lab = Lab(progress=False, **where)
    one = fine_tune(lab, load_start(lab, start), load_tasks(lab, [task], images)[0], _how(lab, epochs, lr))
    return {"held": one.held, "lr": one.lr}


def _picks(lab: Lab) -> list[str]:
    """All rows that can be asked for by name, but for what they are compared with."""
    return [*(c.name for c in candidates(2, full=lab.full, steps=1)), *NOT_FOR_THIS]


def _starts(lab: Lab, asked: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(asked or (STARTS if lab.full else ("digits",)))


def _how(lab: Lab, epochs: int | None, lr: float | None) -> Tuning:
    how = Tuning() if lab.full else Tuning(epochs=2, batch_size=16, rates=(0.01,), statistics=100)
    return replace(how, epochs=epochs or how.epochs, rates=how.rates if lr is None else (lr,))


@study("eight-tasks", paper="", split=parts)
def eight_tasks(
    lab: Lab,
    *,
    starts: Names = None,
    sets: Names = None,
    picks: Names = None,
    seeds: int = 3,
    images: int | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    calibration: int | None = None,
) -> Iterator[Row]:
    """Eight fine-tuned networks merged into one: accuracy per task, under damage, on an unseen set, time and memory."""
    check_names("merge method of this study", picks, [*_picks(lab), ALONE])
    sizes = SMALL if not lab.full else Sizes() if calibration is None else _sizes(calibration)
    how = _how(lab, epochs, lr)
    for name in _starts(lab, starts):
        labs = [lab.reseeded(k) for k in range(seeds if lab.full else 1)]
        yield from _rows([_suite(one, name, sets, images, how, sizes) for one in labs], picks)


def _sizes(calibration: int) -> Sizes:
    """What a CPU can do: fewer images wherever some are looked at."""
    return Sizes(
        images=calibration, choosing=100, trial=min(100, calibration), judged=500, damaged=50, readout=1000, steps=60
    )


def _suite(lab: Lab, name: str, sets: Names, images: int | None, how: Tuning, sizes: Sizes) -> Suite:
    tasks = load_tasks(lab, sets, images)
    start = load_start(lab, name)
    return Suite(lab, start, tasks, [fine_tune(lab, start, task, how) for task in tasks], sizes)


def _rows(suites: Sequence[Suite], picks: Names) -> Iterator[Row]:
    first = suites[0]
    alone = [_kept(suite, ALONE, _judge_alone) for suite in suites]
    yield _row(suites, ALONE, alone, alone, "labels of all tasks; one network per task")
    begun = [_kept(suite, "start", _judge_start) for suite in suites]
    yield _row(suites, "start", begun, alone, "the start itself")
    for candidate in candidates(len(first.tasks), full=first.lab.full, steps=first.sizes.steps):
        if picks and candidate.name not in picks:
            continue
        facts = [candidate.name, [dict(o) for o in candidate.tries], dict(candidate.fixed)]
        found = [_kept(suite, facts, partial(_measured, candidate)) for suite in suites]
        yield _row(suites, candidate.name, found, alone, candidate.looks_at)
    for name, why in NOT_FOR_THIS.items():
        if not picks or name in picks:
            yield _row(suites, name, [{"ours": None, "refused": why}] * len(suites), alone, "nothing")


def _measured(candidate: Candidate, suite: Suite) -> Row:
    """A method's settings chosen, then the merge with all images, judged; a refusal is a row, too."""
    try:
        options = suite.chosen(candidate)
        trunk, cost = suite.cost(candidate, options)
        return {**_judged(suite, [trunk] * len(suite.tasks)), **cost, "chosen": _said(options)}
    except (BrickworkError, np.linalg.LinAlgError) as error:
        return {"ours": None, "refused": str(error)[:200]}
    except (RuntimeError, MemoryError) as error:  # of this machine or this hour, memory say: not kept
        return {"ours": None, "refused": str(error)[:200], "again": True}


def _judge_alone(suite: Suite) -> Row:
    return _judged(suite, [one.trunk for one in suite.tuned])


def _judge_start(suite: Suite) -> Row:
    trunk = start_network(suite.start, suite.tasks, suite.sizes.images, suite.lab.seed)
    return _judged(suite, [trunk] * len(suite.tasks))


def _judged(suite: Suite, trunks: Sequence[nn.Module]) -> Row:
    each = suite.accuracies(trunks)
    damaged = suite.damaged(trunks)
    return {
        "ours": round(float(np.mean(list(each.values()))), 2),
        **each,
        "damaged": round(float(np.mean(list(damaged.values()))), 2),
        "damaged_each": list(damaged.values()),
        "unseen": suite.unseen(trunks),
    }


def _said(options: Any) -> str:
    """Settings in a cell; as many equal weights as networks are one."""
    parts = []
    for name, value in options.items():
        shown = value[0] if isinstance(value, list) and len(set(value)) == 1 else value
        parts.append(f"{name} {shown:g}" if isinstance(shown, int | float) else f"{name} {shown}")
    return ", ".join(parts)


def _kept(suite: Suite, facts: Any, measure: Callable[[Suite], Row]) -> Row:
    """What was measured, found again in the folder of networks if it was kept there."""
    networks = suite.lab.networks
    if networks is None:
        return measure(suite)
    file = Path(networks) / FOLDER / "rows" / f"{digest([VERSION, suite.digest, facts])[:24]}.json"
    if not file.is_file():
        row = measure(suite)
        if row.pop("again", False):
            return row
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(row) + "\n")
    return dict(json.loads(file.read_text()))


def _row(suites: Sequence[Suite], name: str, found: Sequence[Row], alone: Sequence[Row], used: str) -> Row:
    """One method over all seeds, beside the networks it merges."""
    first = suites[0]
    published = PUBLISHED.get(name) if first.lab.full else None
    head: Row = {"what": f"{first.start.name}, {name}", "paper": None, "published": published}
    head["per_task"] = [task.name for task in first.tasks]
    rates = sorted({one.lr for suite in suites for one in suite.tuned})
    tail: Row = {"used": used, "lr": ", ".join(f"{lr:g}" for lr in rates), "labels": "all" if name == ALONE else "none"}
    counts = [len(task.train[1]) for task in first.tasks]
    tail |= {
        "train_images": f"{min(counts)} to {max(counts)}",
        "images": first.sizes.images,
        "judged": first.sizes.judged or "all",
        "seed": first.lab.seed,
    }
    refused = next((row["refused"] for row in found if row["ours"] is None), None)
    if refused is not None:
        return {**head, "ours": None, **tail, "refused": refused}
    rows = []
    for row, best in zip(found, alone, strict=True):
        share = round(100 * row["ours"] / best["ours"], 1)
        rows.append([{**head, "ours": row["ours"], "share": share, **row, **tail}])
    made = next(averaged(rows))
    if len(found) > 1:
        made["chosen"] = " / ".join(dict.fromkeys(str(row.get("chosen", "")) for row in found))
    return made
