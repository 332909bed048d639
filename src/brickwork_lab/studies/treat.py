"""Paper 2, Table 3: fine-tuning with the route of each class as a constraint."""

from __future__ import annotations

from collections.abc import Iterator

from brickwork.bricks.treatment import RULES
from brickwork.bricks.treatment import treat as treated
from brickwork_lab.studies.registry import Row, Run, study
from brickwork_lab.studies.workshop import Workshop, accuracy

#: (set, network): the original, Model Doctor, the paper's own
PAPER = {
    ("cifar10", "simplenetv1"): (95.02, 95.58, 95.73),
    ("cifar10", "vgg16"): (94.76, 95.02, 95.83),
    ("cifar10", "resnet50"): (94.76, 95.11, 95.92),
    ("cifar100", "vgg16"): (77.76, 78.87, 80.33),
}


@study("treat", paper="2, Table 3")
def treat(
    run: Run, *, archs: tuple[str, ...] | None = None, sets: tuple[str, ...] | None = None, epochs: int = 5
) -> Iterator[Row]:
    """Fine-tune with the routes as a constraint, by Model Doctor's rule, and plainly, for as many epochs."""
    shop = Workshop.of(run)
    for source in sets or (("cifar10",) if run.full else ("digits",)):
        for arch in shop.archs(archs, ("simplenetv1", "vgg16")):
            half, net = shop.data(f"{source}:A"), shop.network(arch, f"{source}:A")
            before = accuracy(net, half)
            original, doctor, paper = PAPER.get((source, arch), (None, None, None))
            for rule in RULES:
                found = treated(
                    net,
                    half,
                    rule=rule,
                    epochs=epochs,
                    lr=0.01 if run.full else 0.002,
                    seed=run.seed,
                    progress=run.progress,
                    batch_size=256 if run.full else 32,
                    augment="crop+flip" if run.full else "none",
                )
                yield (
                    {
                        "what": f"{source} {arch}, {RULES[rule].about}",
                        "paper": {"route": paper, "doctor": doctor}.get(rule),
                        "ours": accuracy(found.model, half),
                        "before": before,
                        "paper_original": original,
                        "epochs": epochs,
                        "seed": run.seed,
                        "seconds": round(found.training.seconds, 1),
                    }
                )
