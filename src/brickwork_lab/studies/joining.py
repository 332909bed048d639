"""Paper 2, Tables 2 and 8 to 11: parts of one network or of two that never saw each other's classes, joined.

Two networks are trained on the halves of a data set. The parts of some classes are cut out of each, repaired
by response matching on unlabelled images of their own half, and joined into one network, without training.
"""

import copy
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from brickwork import zoo
from brickwork.bricks import Brick, disassemble
from brickwork.bricks import assemble as join
from brickwork.bricks.distillation import distil as teach
from brickwork.bricks.incremental import increment as extended
from brickwork.data import class_indices
from brickwork.zoo.summary import parameters_of
from brickwork_lab.judging import accuracy, mean_facts, side_by_side
from brickwork_lab.lab import SMOKE, Lab
from brickwork_lab.studies.cutting import PAPERS_WAY
from brickwork_lab.studies.registry import Names, Row, read_json, some_of, study

Pick = tuple[tuple[str, str], ...]  # (half, its classes by their number within the half), a part each


def parse_pick(text: str) -> Pick:
    """The parts that a text names.

    >>> parse_pick("A0-2,B3-4")
    (('A', '0-2'), ('B', '3-4'))
    """
    return tuple((part[0], part[1:]) for part in text.split(","))


def cut_parts(lab: Lab, nets: Mapping[str, nn.Module], source: str, pick: Pick, **options: Any) -> list[Brick]:
    """A brick per part, each cut out of the network of its half."""
    bricks = []
    for letter, classes in pick:
        half = lab.data(f"{source}:{letter}")
        numbers = class_indices(classes, [f"class {k}" for k in range(len(half.classes))])  # whatever they are called
        bricks.append(disassemble(nets[letter], numbers, half, seed=lab.seed, progress=lab.progress, **options))
    return bricks


def halves_of(lab: Lab, arch: str, source: str, pick: Pick) -> dict[str, nn.Module]:
    """The networks that a pick takes parts of, by the letter of their half."""
    return {letter: lab.network(arch, f"{source}:{letter}") for letter, _ in pick}


PICKS = {name: name for name in ("A0,A4", "A0-1,A3-4", "A0,B0", "A0-2,B3-4")} | {"all": "A0-4,B0-4"}
PICKS_100 = {name: name for name in ("A0-9,A30-49", "A0,B0", "A0-9,B20-39")}
#: by set, network and classes: the original, assembled, after one epoch of fine-tuning
ASSEMBLED = read_json("paper2.json")["assemble"]


@study("assemble", paper="2, Table 2")
def assemble(
    lab: Lab, *, archs: Names = None, sets: Names = None, picks: Names = None, budgets: tuple[float, ...] = (0.25, 0.5)
) -> Iterator[Row]:
    """Join parts of one network or of two trained on different classes, with no training."""
    for source, arch in lab.cases(sets, archs, ("simplenetv1", "vgg16", "resnet50")):
        for name, pick in some_of(PICKS_100 if source == "cifar100" else PICKS, picks).items():
            yield from _joined_rows(lab, source, arch, name, parse_pick(pick), budgets)


def _joined_rows(lab: Lab, source: str, arch: str, name: str, pick: Pick, budgets: tuple[float, ...]) -> Iterator[Row]:
    halves = halves_of(lab, arch, source, pick)
    nets = list(halves.values())
    given: dict[str, Any] = {}
    if len(nets) == 1:  # both parts of one network
        given = {"source": nets[0], "data": lab.data(f"{source}:{pick[0][0]}").train_images[:3000]}
    original, paper, paper_tuned = ASSEMBLED.get(f"{source} {arch} {name}", (None, None, None))
    theirs = cut_parts(lab, halves, source, pick, **PAPERS_WAY)
    chosen = lab.classes_of(source, [n for brick in theirs for n in brick.classes])
    base: Row = {"paper": paper, "paper_original": original, "whole": side_by_side(nets, chosen), "seed": lab.seed}
    plain = accuracy(join(theirs, calibrate="none"), chosen)
    yield {"what": f"{source} {arch} {name}, the paper's way", **base, "ours": plain, **mean_facts(theirs)}
    for budget in budgets:
        began = time.perf_counter()
        bricks = cut_parts(lab, halves, source, pick, budget=budget)
        joined = join(bricks, **given)
        seconds = round(time.perf_counter() - began, 1)
        what = f"{source} {arch} {name}, {budget:.0%} of the parameters"
        row: Row = {"what": what, **base, "ours": accuracy(joined, chosen)}
        row["uncalibrated"] = accuracy(join(bricks, calibrate="none", **given), chosen)
        row |= {**mean_facts(bricks), "latency": lab.latency_ratio(joined, nets, chosen)}
        row |= {"joined": type(joined).__name__, "seconds": seconds}
        if given:
            row["united"] = round(parameters_of(joined) / parameters_of(nets[0]), 4)
        else:
            target = chosen.train_images[:: max(1, len(chosen.train_images) // 1000)]
            on_target = join(bricks, calibrate="target", target=target)
            row["calibrated_on_target"] = accuracy(on_target, chosen)
        if budget == max(budgets):
            row |= {"paper_tuned": paper_tuned, "ours_tuned": accuracy(lab.fine_tuned(joined, chosen), chosen)}
        yield row


#: teachers and their classes; the paper's: the original, the best of the others it compares, its own
TEACHERS = {
    "A0-9": (78.50, 82.25, 88.40),
    "A10-49": (77.58, 82.12, 79.00),
    "A0-9,B0-9": (76.35, 77.24, 82.10),
    "A0-9,B20-39": (77.58, 78.41, 79.83),
    "A0-49,B0-49": (78.13, 78.67, 68.02),
}
SMALL_TEACHERS = {"A0-2": (None,) * 3, "A0-1,B3-4": (None,) * 3}


@study("distil", paper="2, Tables 8, 9")
def distil(
    lab: Lab, *, archs: Names = None, picks: Names = None, budget: float = 0.25, epochs: int = 10
) -> Iterator[Row]:
    """A student cut out of its teachers, before and after an epoch of distillation, against one from scratch."""
    source = "cifar100" if lab.full else "digits"
    for arch in lab.archs(archs, ("vgg16",)):
        for name, (original, best_other, paper) in some_of(TEACHERS if lab.full else SMALL_TEACHERS, picks).items():
            pick = parse_pick(name)
            halves = halves_of(lab, arch, source, pick)
            bricks, teachers = cut_parts(lab, halves, source, pick, budget=budget), list(halves.values())
            chosen = lab.classes_of(source, [n for brick in bricks for n in brick.classes])
            student = join(bricks)
            fresh = _from_scratch(student)
            images, labels = chosen.train_images, chosen.train_labels
            common: dict[str, Any] = {"seed": lab.seed, "device": lab.where, "progress": lab.progress, **lab.batches}
            long: dict[str, Any] = {"epochs": epochs, "lr": 0.05}
            again = f"the same student from scratch, {epochs} epochs"
            settings = {**long, **lab.batches, "label_smoothing": 0.1}
            ways = {
                "cut and joined, nothing trained": student,
                "+ 1 epoch, teachers alone": teach(student, teachers, images, **common).model,
                "+ 1 epoch, teachers and labels": teach(student, teachers, images, labels, **common).model,
                f"{again}, teachers and labels": teach(fresh, teachers, images, labels, **long, **common).model,
                f"{again}, smoothed labels": lab.train(copy.deepcopy(fresh), chosen, **settings),
            }
            whole = side_by_side(teachers, chosen)
            for what, model in ways.items():
                row: Row = {"what": f"{source} {arch} {name}, {what}", "paper": paper, "ours": accuracy(model, chosen)}
                row |= {"whole": whole, "paper_original": original, "paper_best_other": best_other}
                yield {**row, **mean_facts(bricks), "seed": lab.seed}


def _from_scratch(student: nn.Module) -> nn.Module:
    """The student's shape with weights as they are before training."""
    fresh = copy.deepcopy(student)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for module in fresh.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()  # type: ignore[operator]
    return fresh


#: network: the average accuracy of all classes after tasks 0 to 5, and of the new ones
GROWN = {
    "vgg16": ((77.42, 72.93, 71.96, 70.46, 68.38, 68.02), (77.52, 64.70, 73.00, 71.20, 62.50, 73.20)),
    "simplenetv1": ((79.84, 76.22, 74.90, 73.03, 71.26, 70.41), (79.84, 71.40, 76.70, 73.30, 68.90, 75.00)),
    "resnet50": ((77.56, 74.48, 73.76, 71.66, 70.27, 69.50), (77.56, 70.30, 76.30, 73.10, 69.60, 73.60)),
}


@study("increment", paper="2, Tables 10, 11")
def increment(lab: Lab, *, archs: Names = None, budget: float = 0.5) -> Iterator[Row]:
    """A network of half the classes grows by bricks of the other half's: old, new and all classes after each."""
    source, step = ("cifar100", 10) if lab.full else ("digits", 2)
    for arch in lab.archs(archs, ("vgg16",)):
        base, other = (lab.network(arch, f"{source}:{h}") for h in "AB")
        old, new = lab.data(f"{source}:A"), lab.data(f"{source}:B")
        averages, added = GROWN.get(arch, ((None,) * 6, (None,) * 6))
        row: Row = {"what": f"{source} {arch}, task 0: the network itself", "paper": averages[0]}
        yield {**row, "ours": accuracy(base, old), "classes": len(old.classes), "seed": lab.seed}
        bricks = []
        for task in range(1, len(new.classes) // step + 1):
            names = list(new.classes[(task - 1) * step : task * step])
            bricks.append(disassemble(other, names, new, budget=budget, seed=lab.seed, progress=lab.progress))
            known = [*old.classes, *(n for brick in bricks for n in brick.classes)]
            chosen, latest = lab.classes_of(source, known), lab.classes_of(source, names)
            model = extended(base, bricks, data=old.train_images[:3000])
            target = chosen.train_images[:: max(1, len(chosen.train_images) // 2000)]
            on_target = extended(base, bricks, calibrate="target", target=target)
            tuned = lab.fine_tuned(model, chosen) if lab.full else model
            row = {"what": f"{source} {arch}, task {task}: {len(names)} classes more", "paper": averages[min(task, 5)]}
            row |= {"ours": accuracy(model, chosen), "calibrated_on_target": accuracy(on_target, chosen)}
            row |= {"new": accuracy(model, latest), "paper_new": added[min(task, 5)]}
            row |= {"ours_tuned": accuracy(tuned, chosen), "new_tuned": accuracy(tuned, latest)}
            row |= {"whole": side_by_side([base, other], chosen), "new_alone": side_by_side([bricks[-1].model], latest)}
            yield {**row, "classes": len(known), "seed": lab.seed}


#: Which training makes networks whose parts can be joined? Measured on one H200, 2026-11-15, seed 0: VGG-16 halves of
#: CIFAR-10, side by side on A0-2,B3-4, whole | 25 % | 50 % of the parameters, uncalibrated: 80 epochs of 1024 at 0.2
#: 89.26 | 87.90 | 89.48; 40 of 512 at 0.1 89.60 | 88.26 | 88.40; 30 of 128 at 0.05 90.22 | 89.34 | 90.36; 60 of 512 at
#: 0.1 with weight decay 1e-3 87.44 | 85.26 | 87.16. The more a network has been pressed onto its own classes, the surer it
#: is of foreign ones. Whole networks scaled to one spread of logits (assemble's default): 90.12, 89.98, 90.46, 87.12.
RECIPES: dict[str, dict[str, Any]] = {
    "vgg16, 80 epochs of 1024": {"epochs": 80, "batch_size": 1024, "lr": 0.2},
    "vgg16, 40 epochs of 512": {"epochs": 40, "batch_size": 512, "lr": 0.1},
    "vgg16, 30 epochs of 128": {"epochs": 30, "batch_size": 128, "lr": 0.05},
    "vgg16, 60 epochs of 512, decay 1e-3": {"epochs": 60, "batch_size": 512, "lr": 0.1, "weight_decay": 1e-3},
    "resnet50, 40 epochs of 512": {"epochs": 40, "batch_size": 512, "lr": 0.2},
}
SMALL_RECIPES = {"lenet, 8 epochs of 32": SMOKE}


@study("joining-recipes", paper="2, Table 2", trains=False)
def joining_recipes(lab: Lab, *, picks: Names = None, budgets: tuple[float, ...] = (0.25, 0.5)) -> Iterator[Row]:
    """Train halves by several recipes and join their parts: side by side, uncalibrated and calibrated."""
    source = "cifar10" if lab.full else "digits"
    chosen = some_of({name: PICKS[name] for name in ("A0,B0", "A0-2,B3-4", "all")}, picks)
    for name, recipe in (RECIPES if lab.full else SMALL_RECIPES).items():
        nets = {}
        for seed, letter in enumerate("AB", 2 * lab.seed):
            half = lab.data(f"{source}:{letter}")
            model = zoo.build(name.split(",")[0], num_classes=5, seed=seed, in_channels=half.shape[2])
            given = {"seed": seed, "label_smoothing": 0.0, **recipe}
            nets[letter] = lab.taught(model, half, source, record=False, **given)
        for pick, parts in chosen.items():
            for budget in budgets:
                bricks = cut_parts(lab, nets, source, parse_pick(parts), budget=budget)
                images = lab.classes_of(source, [n for brick in bricks for n in brick.classes])
                none, ours = (accuracy(join(bricks, calibrate=c), images) for c in ("none", "source"))
                row: Row = {"what": f"{name}, {pick}, {budget:.0%}", "paper": None, "ours": ours}
                yield {
                    **row,
                    "uncalibrated": none,
                    "whole": side_by_side(list(nets.values()), images),
                    "seed": lab.seed,
                }
