"""Paper 2, Tables 10 and 11: ten classes more at a time, from a network that learned them elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from brickwork.bricks import disassemble
from brickwork.bricks.incremental import increment as extended
from brickwork_lab.judging import accuracy, restricted, side_by_side
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, study

#: network: the average accuracy of all classes after tasks 0 to 5, and of the new ones
PAPER = {
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
        averages, added = PAPER.get(arch, ((None,) * 6, (None,) * 6))
        row: Row = {"what": f"{source} {arch}, task 0: the network itself", "paper": averages[0]}
        yield {**row, "ours": accuracy(base, old), "classes": len(old.classes), "seed": lab.seed}
        bricks = []
        for task in range(1, len(new.classes) // step + 1):
            names = list(new.classes[(task - 1) * step : task * step])
            bricks.append(disassemble(other, names, new, budget=budget, seed=lab.seed, progress=lab.progress))
            known = [*old.classes, *(n for brick in bricks for n in brick.classes)]
            chosen, latest = lab.classes_of(source, known), lab.classes_of(source, names)
            model = extended(base, bricks, images=old.train_images[:3000])
            target = chosen.train_images[:: max(1, len(chosen.train_images) // 2000)]
            on_target = extended(base, bricks, calibrate="target", target=target)
            tuned = lab.fine_tuned(model, chosen) if lab.full else model
            yield {
                "what": f"{source} {arch}, task {task}: {len(names)} classes more",
                "paper": averages[min(task, 5)],
                "ours": accuracy(model, chosen),
                "calibrated_on_target": accuracy(on_target, chosen),
                "new": accuracy(model, latest),
                "paper_new": added[min(task, 5)],
                "ours_tuned": accuracy(tuned, chosen),
                "new_tuned": accuracy(tuned, latest),
                "whole": side_by_side([base, other], chosen),
                "new_alone": restricted(bricks[-1].model, latest),
                "classes": len(known),
                "seed": lab.seed,
            }
