"""Part 5 of the tour: which digits' logits follow from others', and a tenth digit added to a network that knows nine."""

from dataclasses import replace

import numpy as np

from brickwork import store
from brickwork.data.images import SPLITS, hold_out
from brickwork.dependencies.mapping import fit_map
from brickwork.dependencies.new_classes import add_classes
from brickwork.prediction import predict
from brickwork.report.bars import Bar, draw_bars
from brickwork.report.dependencies import map_figure
from brickwork.tour.stage import PartResult, Stage

MOST, UNSEEN = 3, "unseen.npz"  # classes in an equation; images that the network was not trained on


def dependencies(stage: Stage) -> PartResult:
    """A map of nine digits, and the network with a tenth on top of its logits."""
    nine, new, ten = (stage.digits(spec) for spec in ("digits:0-8", "digits:9", "digits"))
    # logits of images a network was trained on are surer than others': a share is kept for the map
    seen, unseen = (
        replace(nine, train_images=nine.train_images[i], train_labels=nine.train_labels[i], train_masks=None)
        for i in hold_out(nine.train_labels, 0.3)
    )
    model = stage.trained(stage.lenet(9), seen)
    store.save(model, stage.folder / "nine")
    arrays = {name: getattr(unseen, name) for name in ("train_images", "train_labels", "test_images", "test_labels")}
    np.savez_compressed(stage.folder / UNSEEN, classes=np.array(nine.classes), **arrays)
    fit, test = ((predict(model, images).numpy(), labels) for images, labels, _ in map(unseen.split, SPLITS))
    mapped = fit_map(*fit, names=nine.classes, test=test, max_dependencies=MOST, seed=stage.seed)
    mapped.save(stage.folder / "map")
    grown = add_classes(model, new, base_data=unseen, seed=stage.seed)
    store.save(grown, stage.folder / "ten")
    before, after = stage.accuracy(model, nine), stage.accuracy(grown, ten)
    nines = ten.test_labels == 9
    tenth = float((predict(grown, ten.test_images[nines]).argmax(1).numpy() == 9).mean())
    figure = draw_bars(
        "A tenth digit on top of nine",
        [
            Bar("nine digits, before", before, f"{before:.1%}", 2),
            Bar("ten digits, after adding the nine", after, f"{after:.1%}"),
            Bar("nines found among all ten", tenth, f"{tenth:.1%}", 1),
        ],
        about="The network never saw a nine. A matrix on its nine logits, fitted in a moment, tells nines from the rest; "
        "the first nine logits are what they were, bit for bit. In the graph, a relative error near 1 says that a digit "
        "hardly follows from the others.",
        part="dependencies",
        cards=(("ten digits from a network that knows nine", f"{after:.0%}"),),
        command=stage.command(f"depend add @nine --data digits:9 --base-data @{UNSEEN} {stage.seeded} --out ten"),
    )
    fitting = stage.command(f"depend fit @nine --data @{UNSEEN} --max-dependencies {MOST} {stage.seeded} --out map")
    command = "\n".join([fitting, stage.command("depend show map --out map.html")])
    return [map_figure(mapped, command), figure], {"before": before, "after": after, "tenth": tenth}
