"""Run methods over a scenario: learn, judge every task so far, weigh the files, and go on where a killed run stopped."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork.atomic import write_file
from brickwork.continual.base import ContinualMethod
from brickwork.continual.bench import DEFAULTS, Bench
from brickwork.continual.files import fingerprint, weigh
from brickwork.continual.options import ContinualOptions
from brickwork.continual.readout import readout
from brickwork.continual.registry import parse
from brickwork.continual.result import Comparison, ContinualResult
from brickwork.continual.scenario import Scenario
from brickwork.copying import copy_module
from brickwork.data.images import ImageData
from brickwork.devices import DeviceLike, pick
from brickwork.errors import RequestError
from brickwork.options import takes
from brickwork.origin import attach, origin_of
from brickwork.outputs import accuracy_of
from brickwork.pools import KernelPool
from brickwork.pools.layers import head_of as last_layer
from brickwork.prediction import predict
from brickwork.progress import bar
from brickwork.store.config import origin_config
from brickwork.store.weights import state_hash
from brickwork.training import default_augment

JOURNAL = "journal.json"
VERSION = 1  # of the methods' numbers: journals of another one are not gone on with


@takes(ContinualOptions)
def run(
    scenario: Scenario,
    methods: str | Sequence[str | ContinualMethod],
    start: nn.Module,
    *,
    out: str | os.PathLike[str] | None = None,
    pool: KernelPool | None = None,
    device: DeviceLike | None = None,
    progress: bool = True,
    options: ContinualOptions,
) -> Comparison:
    """Learn the tasks of a scenario with each method, all from the same start, and compare accuracy and bytes.

    methods: "finetune,lora(rank=8)", or a list. out: a folder with a sub-folder per method, found again by a second run;
    without one the files are weighed and thrown away. augment: as in `train`; by default what suits the data of the first
    task. forward: also measure each task just before it is learned. pool: else one is clustered from the start. protocol:
    "task" judges an image among the classes of its own task, "class" among all classes learned so far, of whatever task.

    >>> from brickwork import data, zoo
    >>> from brickwork.continual import split_classes
    >>> two = split_classes(data.load("digits@5", size=8), tasks=2, per=2)
    >>> run(two, "probe", zoo.build("lenet", num_classes=2, seed=0), epochs=1, device="cpu").front()
    ['probe']
    """
    chosen = parse(methods)
    check_pool(chosen.values(), pool)
    where = pick(device)
    options = replace(options, augment=options.augment or default_augment(scenario.tasks[0].source.split("#")[0]))
    results = {}
    with _folder(out) as folder, bar("tasks", len(chosen) * len(scenario), show=progress) as advance:
        begun = _ready(start, scenario, where)
        for name, method in chosen.items():
            bench = Bench(scenario, begun, folder / folder_name(name), where, options, pool=pool)
            results[name] = run_method(name, method, bench, advance=advance)
    unknown = "; the task of an image is not known" if options.protocol == "class" else ""
    return Comparison(f"{scenario}{unknown}", results, options)


def check_pool(methods: Iterable[ContinualMethod], pool: KernelPool | None) -> None:
    """Refuse a pool that none of the methods would use."""
    if pool is not None and not any(method.pooled for method in methods):
        raise RequestError("`pool` is given, and none of `methods` uses one; leave it out, or add the method pool.")


def run_method(name: str, method: ContinualMethod, bench: Bench, *, advance: Any = None) -> ContinualResult:
    """One method over the tasks of a bench, going on after the last task on record."""
    forward = bench.options.forward
    journal = Journal(bench.folder / JOURNAL, facts_of(name, method, bench))
    if not journal.tasks:
        bench.folder.mkdir(parents=True, exist_ok=True)
        method.begin(bench)
    for number in range(len(journal.tasks), len(bench.scenario)):
        began = time.perf_counter()
        before = None
        if forward and number:
            before = readout(method.opening(bench, number), bench.task(number), bench.device, bench.head)
        method.learn(bench, number)
        spent = time.perf_counter() - began
        row = _judged(method, bench, number, journal.tasks)
        journal.add({**row, "seconds": round(spent, 3), "before": before})
        method.tidy(bench, number)
        if advance is not None:
            last = row["accuracy"][-1]
            advance(1, f"{name}, {bench.task(number).name}: {'–' if last is None else f'{last:.1%}'}")
    matrix = np.full((len(bench.scenario),) * 2, np.nan)
    for i, row in enumerate(journal.tasks):
        matrix[i, : i + 1] = [np.nan if value is None else value for value in row["accuracy"]]
        if row["before"] is not None:
            matrix[i - 1, i] = row["before"]
    untouched = None
    if forward:
        first = method.opening(bench, 0)  # a method's own form of the start: rounded, or in kernels
        untouched = np.array([readout(first, task, bench.device, bench.head) for task in bench.scenario.tasks])
    return ContinualResult(
        name,
        tuple(task.name for task in bench.scenario.tasks),
        matrix,
        tuple(row["own"] for row in journal.tasks),
        tuple(row["total"] for row in journal.tasks),
        round(sum(row["seconds"] for row in journal.tasks), 3),
        untouched,
        method,
        journal.facts,
    )


def _judged(method: ContinualMethod, bench: Bench, after: int, earlier: list[dict[str, Any]]) -> dict[str, Any]:
    """Accuracy on every task so far and the bytes; a task whose files did not change keeps its accuracy."""
    signs = [fingerprint(method.sources(bench, number, after)) for number in range(after + 1)]
    if bench.options.protocol == "class":
        accuracy = _among_all(method, bench, signs)
    else:
        accuracy = []
        for number, sign in enumerate(signs):
            if number < after and earlier[-1]["signs"][number] == sign and earlier[-1]["accuracy"][number] is not None:
                accuracy.append(earlier[-1]["accuracy"][number])
                continue
            model = method.network(bench, number, after)
            accuracy.append(None if model is None else share_right(model, bench.task(number), bench.device))
    own = [weigh(method.own(bench, number)) for number in range(after + 1)]
    total = sum(own) + weigh(method.shared(bench, after))
    return {"accuracy": accuracy, "signs": signs, "own": own[-1], "total": total}


def _among_all(method: ContinualMethod, bench: Bench, signs: list[str]) -> list[float | None]:
    """Share right on every task so far where its classes compete with those of all others: the highest logit wins.

    signs: of the files that each task's network is read from.
    """
    tasks = [bench.task(number) for number in range(len(signs))]
    whole = method.whole(bench, len(signs) - 1)
    if whole is not None:
        answers = [predict(whole, task.test_images, device=bench.device) for task in tasks]
    else:
        columns = _side_by_side(method, bench, signs)
        if columns is None:
            return [None] * len(tasks)
        answers = [torch.cat(parts, 1) for parts in zip(*columns, strict=True)]
    firsts = np.cumsum([0, *(len(task.classes) for task in tasks)])
    judged = zip(answers, tasks, firsts, strict=False)
    return [accuracy_of(logits, task.test_labels + first) for logits, task, first in judged]


def _side_by_side(method: ContinualMethod, bench: Bench, signs: list[str]) -> list[list[torch.Tensor]] | None:
    """The logits of each task's network on each task's test images; None where a network is not there yet.

    What a network whose files did not change has said before is not asked again.
    """
    said, new = bench.held.get("said", {}), {}
    for number, sign in enumerate(signs):
        asked = [k for k in range(len(signs)) if (number, sign, k) not in said]
        model = method.network(bench, number, len(signs) - 1) if asked else None
        if asked and model is None:
            return None
        for k in range(len(signs)):
            if model is not None and k in asked:
                new[number, sign, k] = predict(model, bench.task(k).test_images, device=bench.device)
            else:
                new[number, sign, k] = said[number, sign, k]
    bench.held["said"] = new
    return [[new[number, sign, k] for k in range(len(signs))] for number, sign in enumerate(signs)]


def share_right(model: nn.Module, task: ImageData, device: torch.device) -> float:
    """Of the test images of a task."""
    return accuracy_of(predict(model, task.test_images, device=device), task.test_labels)


class Journal:
    """What is done, one entry per task; a file that is replaced in one step after every task."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path, self.facts = path, facts
        self.tasks: list[dict[str, Any]] = []
        if not path.exists():
            return
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            theirs, tasks = record["facts"], record["tasks"]
        except (ValueError, KeyError, TypeError) as error:
            raise RequestError(f"{path} is damaged; remove {path.parent} to start over.") from error
        # a journal that was written before there was an option had what is its default now; before another fact was
        # recorded it cannot tell, and is gone on with
        unsaid = {**facts, **DEFAULTS.to_dict()}
        different = [key for key in facts if theirs.get(key, unsaid[key]) != facts[key]]
        if different:
            raise RequestError(
                f"{path.parent} holds another run (other {', '.join(different)}); choose another `out`, or give `force` "
                "to start over."
            )
        self.tasks = tasks

    def add(self, row: dict[str, Any]) -> None:
        self.tasks = [*self.tasks, row]
        text = json.dumps({"facts": self.facts, "tasks": self.tasks}, indent=1)
        with write_file(self.path) as draft:
            Path(draft).write_text(text + "\n", encoding="utf-8")


def facts_of(name: str, method: ContinualMethod, bench: Bench) -> dict[str, Any]:
    """Everything that a run's numbers depend on, as JSON values; inputs by hash."""
    digest = hashlib.sha256()
    for task in bench.scenario.tasks:
        for part in (task.train_images, task.train_labels, task.test_images, task.test_labels):
            digest.update(np.ascontiguousarray(part).data)
    origin = origin_config(origin_of(bench.start))
    pool = bench.pool if method.pooled else None
    return {
        "version": VERSION,
        "method": name,
        "options": method.to_dict(),
        "tasks": bench.scenario.to_dict(),
        "images": digest.hexdigest(),
        "start": state_hash(bench.start),
        # the same values can still be another start: prepared for otherwise, built otherwise, with another head
        "preprocessing": origin["preprocessing"],
        "architecture": [origin["arch"], origin["args"]],
        "head": last_layer(bench.start),
        "pool": None if pool is None else pool.hash,
        "pool's base": None if pool is None or pool.base is None else pool.base.hash,
        **bench.options.to_dict(),
    }


def folder_name(name: str) -> str:
    """A method's name as the name of a folder.

    >>> folder_name("lora(rank=8, lr=0.01)")
    'lora-rank=8-lr=0.01'
    """
    return re.sub(r"[^\w.=+-]+", "-", name).strip("-")


def _ready(start: nn.Module, scenario: Scenario, where: torch.device) -> nn.Module:
    """A copy of the start on the device; it prepares images as it always did, or as suits the first task."""
    model = copy_module(start).to(where).eval().requires_grad_(True)
    origin = origin_of(model)
    prepared = origin.preprocessing or scenario.tasks[0].preprocessing()
    attach(model, replace(origin, preprocessing=prepared))
    return model


@contextlib.contextmanager
def _folder(out: str | os.PathLike[str] | None) -> Iterator[Path]:
    if out is not None:
        yield Path(out)
        return
    folder = Path(tempfile.mkdtemp(prefix="brickwork-continual-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
