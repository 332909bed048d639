"""Paper 2, Figure 7: from colour to grey, training only what belongs to no class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from brickwork.bricks.adaptation import adapt
from brickwork.bricks.transferring import transfer as moved
from brickwork.data.images import ImageData
from brickwork.evaluation import evaluate
from brickwork_lab.studies.registry import Row, Run, study
from brickwork_lab.studies.workshop import Workshop


def grey(images: ImageData) -> ImageData:
    """The same images without colour (for grey ones: inverted), in as many channels."""

    def change(array: np.ndarray) -> np.ndarray:
        if array.shape[3] == 1:
            return 255 - array
        weights = np.array([0.299, 0.587, 0.114])
        return np.repeat(np.rint(array @ weights)[..., None], 3, axis=3).astype(np.uint8)

    return replace(images, train_images=change(images.train_images), test_images=change(images.test_images))


@study("transfer", paper="2, Figure 7")
def transfer(
    run: Run, *, archs: tuple[str, ...] | None = None, amounts: tuple[int, ...] | None = None, epochs: int = 5
) -> Iterator[Row]:
    """A network of colour images on grey ones: everything trained, only class-independent channels, or nothing."""
    shop = Workshop.of(run)
    source = "cifar10:A" if run.full else "digits:A"
    for arch in shop.archs(archs, ("vgg16",)):
        net, colour = shop.network(arch, source), shop.data(source)
        other = grey(colour)
        test = (other.test_images, other.test_labels)

        def judged(model: object, images: np.ndarray, labels: np.ndarray) -> float:
            return round(100 * evaluate(model, images, labels).accuracy, 2)  # type: ignore[arg-type]

        common = {"arch": arch, "seed": run.seed, "paper": None}
        yield (
            {
                "what": f"{arch} on colour, as trained",
                **common,
                "ours": judged(net, colour.test_images, colour.test_labels),
            }
        )
        yield ({"what": f"{arch} on grey, nothing done", **common, "ours": judged(net, *test)})
        few = 2000 if run.full else 300
        fixed = adapt(net, colour.train_images[:few], other.train_images[:few], progress=run.progress)
        yield (
            {"what": f"{arch} on grey, matched on {few} pairs without labels", **common, "ours": judged(fixed, *test)}
        )
        everything = len(colour.train_labels) // len(colour.classes)
        for amount in amounts or ((20, 100, 500, everything) if run.full else (20,)):
            some = other.take(amount, seed=run.seed) if amount < everything else other
            for what in ("all", "independent"):
                found = moved(
                    net,
                    some,
                    what=what,
                    routes=colour if what == "independent" else None,
                    epochs=epochs,
                    seed=run.seed,
                    lr=0.01 if run.full else 0.005,
                    batch_size=min(128, len(some.train_labels)) if run.full else 20,
                    progress=run.progress,
                    validation=test,
                    augment="crop+flip" if run.full else "none",
                )
                curve = [round(100 * row["validation_accuracy"], 2) for row in found.training.history]
                yield (
                    {
                        "what": f"{arch} on grey, {what} trained, {amount} images a class",
                        **common,
                        "ours": curve[-1],
                        "first_epoch": curve[0],
                        "curve": curve,
                        "free": round(found.free, 4),
                    }
                )
