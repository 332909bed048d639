"""Paper 2, Table 3: fine-tuning with the route of each class as a constraint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from brickwork.bricks.treatment import RULES
from brickwork.bricks.treatment import treat as treated
from brickwork_lab.judging import accuracy
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, study

#: (set, network): the original, Model Doctor, the paper's own
PAPER = {
    ("cifar10", "simplenetv1"): (95.02, 95.58, 95.73),
    ("cifar10", "vgg16"): (94.76, 95.02, 95.83),
    ("cifar10", "resnet50"): (94.76, 95.11, 95.92),
    ("cifar100", "vgg16"): (77.76, 78.87, 80.33),
}


@study("treat", paper="2, Table 3")
def treat(lab: Lab, *, archs: Names = None, sets: Names = None, epochs: int = 5) -> Iterator[Row]:
    """Fine-tune with the routes as a constraint, by Model Doctor's rule, and plainly, for as many epochs."""
    settings: dict[str, Any] = {"lr": 0.002, "batch_size": 32, "augment": "none"}
    if lab.full:
        settings = {"lr": 0.01, "batch_size": 256, "augment": "crop+flip"}
    settings |= {"epochs": epochs, "seed": lab.seed, "progress": lab.progress}
    for source, arch in lab.cases(sets, archs, ("simplenetv1", "vgg16")):
        half, net = lab.data(f"{source}:A"), lab.network(arch, f"{source}:A")
        before = accuracy(net, half)
        original, doctor, paper = PAPER.get((source, arch), (None, None, None))
        for rule in RULES:
            result = treated(net, half, rule=rule, **settings)
            yield {
                "what": f"{source} {arch}, {RULES[rule].about}",
                "paper": {"route": paper, "doctor": doctor}.get(rule),
                "ours": accuracy(result.model, half),
                "before": before,
                "paper_original": original,
                "epochs": epochs,
                "seed": lab.seed,
                "seconds": round(result.training.seconds, 1),
            }
