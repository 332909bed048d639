"""Paper 2, Table 2: parts of one network or of two that never saw each other's classes, joined.

Two networks are trained on the halves of a data set. The parts of some classes are cut out of each, repaired
by response matching on unlabelled images of their own half, and joined into one network, without training.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from torch import nn

from brickwork import zoo
from brickwork.bricks import Brick, disassemble
from brickwork.bricks import assemble as join
from brickwork.zoo.summary import parameters_of
from brickwork_lab.judging import accuracy, mean_facts, side_by_side
from brickwork_lab.lab import SMOKE, Lab
from brickwork_lab.studies.registry import Names, Row, some_of, study
from brickwork_lab.studies.two_ways import (
    ARCHS,
    THEIRS,
    both_ways,
    numbers_of,
    original,
    paper_of,
    picks_of,
    protocol,
    repeated,
    tuned,
)

Pick = tuple[tuple[str, str], ...]  # (half, its classes by their number within the half), a part each
#: not in the paper: every class of both halves
ALL = {"all": "A0-4,B0-4"}


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
        numbers = numbers_of(classes, half)
        bricks.append(disassemble(nets[letter], numbers, half, seed=lab.seed, progress=lab.progress, **options))
    return bricks


def parts_both_ways(lab: Lab, nets: Mapping[str, nn.Module], source: str, pick: Pick) -> dict[str, list[Brick]]:
    """The same by the paper's way and by ours, each part at the cost of the paper's."""
    ways: dict[str, list[Brick]] = {}
    for letter, classes in pick:
        half = lab.data(f"{source}:{letter}")
        for way, brick in both_ways(lab, nets[letter], numbers_of(classes, half), half).items():
            ways.setdefault(way, []).append(brick)
    return ways


def halves_of(lab: Lab, arch: str, source: str, pick: Pick) -> dict[str, nn.Module]:
    """The networks that a pick takes parts of, by the letter of their half."""
    return {letter: lab.network(arch, f"{source}:{letter}") for letter, _ in pick}


@study("assemble", paper="2, Table 2")
def assemble(
    lab: Lab, *, archs: Names = None, sets: Names = None, picks: Names = None, seeds: int | None = None
) -> Iterator[Row]:
    """Join parts of one network or of two trained on different classes, with no training."""
    for source, arch in lab.cases(sets, archs, ARCHS):
        known = picks_of("assemble", source) | (ALL if source in ("cifar10", "digits") else {})
        for name, pick in some_of(known, picks).items():
            rows_of = partial(_joined_rows, source=source, arch=arch, name=name, pick=parse_pick(pick))
            yield from repeated(lab, source, seeds, rows_of)


def _joined_rows(lab: Lab, source: str, arch: str, name: str, pick: Pick) -> Iterator[Row]:
    halves = halves_of(lab, arch, source, pick)
    nets = list(halves.values())
    given: dict[str, Any] = {}
    if len(nets) == 1:  # both parts of one network
        given = {"source": nets[0], "data": lab.data(f"{source}:{pick[0][0]}").train_images[:3000]}
    before, paper, paper_tuned = paper_of("assemble", f"{source} {arch} {name}", 3)
    ways = parts_both_ways(lab, halves, source, pick)
    parts = [(halves[letter], b.classes) for (letter, _), b in zip(pick, ways[THEIRS], strict=True)]
    chosen = lab.classes_of(source, [n for _, names in parts for n in names])
    beside: Row = {"original": original(lab, source, parts), "paper_original": before}
    beside |= {"whole": side_by_side(nets, chosen), "arch": arch, "seed": lab.seed}
    target = chosen.train_images[:: max(1, len(chosen.train_images) // 1000)]
    for way, bricks in ways.items():
        joined = join(bricks, calibrate="none") if way == THEIRS else join(bricks, **given)
        row: Row = {"what": f"{source} {arch} {name}, {way}", "paper": paper, "ours": accuracy(joined, chosen)}
        row |= {"paper_tuned": paper_tuned, "ours_tuned": accuracy(tuned(lab, joined, chosen, source), chosen)}
        # parts that never stood side by side have more to learn than the paper's rate lets them
        row["ours_tuned_fast"] = accuracy(lab.fine_tuned(joined, chosen, lr=0.01), chosen)
        row |= {**beside, **mean_facts(bricks), "joined": type(joined).__name__}
        if given:
            row["united"] = round(parameters_of(joined) / parameters_of(nets[0]), 4)
        if way != THEIRS:
            row["uncalibrated"] = accuracy(join(bricks, calibrate="none", **given), chosen)
            if not given:
                on_target = join(bricks, calibrate="target", target=target)
                row["calibrated_on_target"] = accuracy(on_target, chosen)
        yield {**row, "protocol": protocol(lab, arch, source)}


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
    chosen = some_of({"A0,B0": "A0,B0", "A0-2,B3-4": "A0-2,B3-4", **ALL}, picks)
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
