"""Paper 2, Tables 10 and 11: a network of half the classes grows by parts of another that knows the other half."""

from collections.abc import Iterator
from functools import partial

from torch import nn

from brickwork.bricks import Brick
from brickwork.bricks import assemble as join
from brickwork.data.images import ImageData
from brickwork.zoo.summary import parameters_of
from brickwork_lab.judging import accuracy, mean_facts, side_by_side
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, study
from brickwork_lab.studies.two_ways import HALF, PAPER, THEIRS, both_ways, original, protocol, repeated, tuned

#: by network: accuracy after tasks 0 to 5 of the originals, of the new classes, and of all
GROWN = PAPER["increment"]
#: other methods, of Table 11: the same for VGG-16
OTHERS = PAPER["increment_others"]
GROWS = "ours, the network itself and parts of 50% of the multiply-adds"
#: task 0 equals the tuned network of Table 6; of the others the paper does not say whether they were tuned
TUNED = "paper: task 0 is tuned, so compare ours_tuned"


@study("increment", paper="2, Tables 10, 11")
def increment(lab: Lab, *, archs: Names = None, seeds: int | None = None) -> Iterator[Row]:
    """A network of half the classes grows by bricks of the other half's: old, new and all classes after each."""
    source = "cifar100" if lab.full else "digits"
    for arch in lab.archs(archs, ("vgg16",)):
        yield from repeated(lab, source, seeds, partial(_grown_rows, source=source, arch=arch))


def _grown_rows(lab: Lab, source: str, arch: str) -> Iterator[Row]:
    base, other = (lab.network(arch, f"{source}:{letter}") for letter in "AB")
    old, new = lab.data(f"{source}:A"), lab.data(f"{source}:B")
    step = 10 if lab.full else 2
    ways = {way: [brick] for way, brick in both_ways(lab, base, None, old).items()}
    ways[GROWS] = ways.pop(HALF)[:0]
    for task in range(len(new.classes) // step + 1):
        first = (task - 1) * step
        latest = list(range(first, first + step)) if task else []
        if task:
            made = both_ways(lab, other, latest, new)
            for way, bricks in ways.items():
                bricks.append(made[HALF if way == GROWS else way])
        names = [new.classes[k] for k in latest]
        known = [*old.classes, *new.classes[: task * step]]
        chosen = lab.classes_of(source, known)
        # before anything was added, the new classes are those of the network itself
        newest = lab.classes_of(source, names or old.classes)
        parts = [(base, old.classes), (other, known[len(old.classes) :])]
        beside: Row = {"original": original(lab, source, [part for part in parts if part[1]])}
        beside |= {"whole": side_by_side([base, other], chosen), **_papers(arch, task, lab.full), "arch": arch}
        beside |= {"classes": len(known), "seed": lab.seed, "measure": TUNED, "protocol": protocol(lab, arch, source)}
        for way, bricks in ways.items():
            row: Row = {"what": f"{source} {arch}, task {task}, {way}"}
            model = _grown(way, bricks, base, other, (old, new))
            after = tuned(lab, model, chosen, source)
            row |= {"ours": accuracy(model, chosen), "ours_tuned": accuracy(after, chosen)}
            row |= {"new": accuracy(model, newest), "new_tuned": accuracy(after, newest)}
            row |= mean_facts([Brick.whole(base), *bricks] if way == GROWS else bricks)
            yield {**row, "size": round(parameters_of(model) / parameters_of(base), 4), **beside}


def _grown(
    way: str, bricks: list[Brick], base: nn.Module, other: nn.Module, halves: tuple[ImageData, ImageData]
) -> nn.Module:
    """The network itself, or its part, with the parts of the other one; channels that several of them need are there once."""
    old, new = (half.train_images[:3000] for half in halves)
    if way == THEIRS:
        return join(bricks, calibrate="none")
    every = [Brick.whole(base, images=old), *bricks] if way == GROWS else bricks
    return join(every, source=other, data=new)


def _papers(arch: str, task: int, full: bool) -> Row:
    """What the paper prints of a task, and for VGG-16 of other methods.

    >>> row = _papers("vgg16", 1, True)
    >>> row["paper"], row["paper_new"], row["paper_il2m"], row["paper_il2m_new"]
    (72.93, 64.7, 77.0, 82.8)
    """
    if arch not in GROWN or not full:
        return {"paper": None}
    row = {"paper": GROWN[arch]["average"][task], "paper_tuned": GROWN[arch]["average"][task]}
    row |= {"paper_new": GROWN[arch]["new"][task], "paper_original": GROWN[arch]["original"][task]}
    for name, numbers in OTHERS.items() if arch == "vgg16" else ():
        row |= {f"paper_{name}": numbers["average"][task], f"paper_{name}_new": numbers["new"][task]}
    return row
