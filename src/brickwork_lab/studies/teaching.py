"""Paper 2, Tables 8 and 9: a student cut out of one teacher or of two, and what an epoch of distillation adds."""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork.bricks import assemble as join
from brickwork.bricks.distillation import distil as teach
from brickwork_lab.judging import accuracy, mean_facts, side_by_side
from brickwork_lab.lab import Lab
from brickwork_lab.studies.joining import Pick, halves_of, parse_pick, parts_both_ways
from brickwork_lab.studies.registry import Names, Row, some_of, study
from brickwork_lab.studies.two_ways import HALF, PAPER, THEIRS, original, protocol, repeated

#: teachers and their classes; the paper's: the original, its own, the others that it compares
TEACHERS: dict[str, dict[str, float]] = PAPER["distil"]
SMALL_TEACHERS: dict[str, dict[str, float]] = {"A0-2": {}, "A0-1,B3-4": {}}
#: 79.00, 90.00 and 79.83 of these tables are the tuned numbers of Tables 1 and 2
TUNED = "paper: after an epoch, so compare + 1 epoch"


@study("distil", paper="2, Tables 8, 9")
def distil(
    lab: Lab, *, archs: Names = None, picks: Names = None, seeds: int | None = None, epochs: int = 10
) -> Iterator[Row]:
    """A student cut out of its teachers, before and after an epoch of distillation, against one from scratch."""
    source = "cifar100" if lab.full else "digits"
    for arch in lab.archs(archs, ("vgg16",)):
        for name, numbers in some_of(TEACHERS if lab.full else SMALL_TEACHERS, picks).items():
            known = {"paper_original": numbers.get("original")}
            known |= {f"paper_{other}": numbers[other] for other in ("lsr", "dr_kd", "ak") if other in numbers}
            common: Row = {"tuned": numbers.get("ours"), **known}
            asked: dict[str, Any] = {"source": source, "arch": arch, "name": name, "common": common, "epochs": epochs}
            yield from repeated(lab, source, seeds, partial(_student_rows, **asked))


def _student_rows(lab: Lab, source: str, arch: str, name: str, common: Row, epochs: int) -> Iterator[Row]:
    pick: Pick = parse_pick(name)
    halves = halves_of(lab, arch, source, pick)
    teachers = list(halves.values())
    ways = parts_both_ways(lab, halves, source, pick)
    parts = [(halves[letter], b.classes) for (letter, _), b in zip(pick, ways[THEIRS], strict=True)]
    chosen = lab.classes_of(source, [n for _, names in parts for n in names])
    beside: Row = {**common, "original": original(lab, source, parts), "whole": side_by_side(teachers, chosen)}
    beside |= {"measure": TUNED, "arch": arch, "seed": lab.seed, "protocol": protocol(lab, arch, source)}
    images, labels = chosen.train_images, chosen.train_labels
    given: dict[str, Any] = {"seed": lab.seed, "device": lab.where, "progress": lab.progress, **lab.batches}
    # one schedule, rate and number of epochs for both that start from nothing
    long: dict[str, Any] = {"epochs": epochs, "lr": 0.05, "schedule": "cosine", "weight_decay": 5e-4}
    for way, bricks in ways.items():
        student = join(bricks, calibrate="none") if way == THEIRS else join(bricks)
        epoch = partial(_taught, student, teachers, images)
        trained: dict[str, Callable[[], nn.Module]] = {
            "nothing trained": partial(copy.deepcopy, student),
            "+ 1 epoch, teachers alone": partial(epoch, None, given),
            "+ 1 epoch, teachers and labels": partial(epoch, labels, given),
        }
        if way == HALF:
            fresh, again = _from_scratch(student, lab.seed), f"its shape from scratch, {epochs} epochs"
            smooth = {"label_smoothing": 0.1, **long, **lab.batches}
            both = partial(_taught, fresh, teachers, images, labels, {**long, **given})
            trained[f"{again}, teachers and labels"] = both
            trained[f"{again}, smoothed labels"] = partial(lab.train, copy.deepcopy(fresh), chosen, **smooth)
        for what, make in trained.items():
            row: Row = {
                "what": f"{source} {arch} {name}, {way}, {what}",
                "paper": None,
                "ours": accuracy(make(), chosen),
            }
            if "+ 1 epoch" in what:
                row["paper"] = common["tuned"]
            elif "smoothed labels" in what:
                row["paper"] = common.get("paper_lsr")
            yield {**row, **{n: value for n, value in beside.items() if n != "tuned"}, **mean_facts(bricks)}


def _taught(
    student: nn.Module, teachers: list[nn.Module], images: Any, labels: np.ndarray | None, how: dict[str, Any]
) -> nn.Module:
    return teach(student, teachers, images, labels, **how).model


def _from_scratch(student: nn.Module, seed: int) -> nn.Module:
    """The student's shape with weights as they are before training."""
    fresh = copy.deepcopy(student)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in fresh.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()  # type: ignore[operator]
    return fresh
