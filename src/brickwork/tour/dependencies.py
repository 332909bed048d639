"""Part 5 of the tour: which digits' logits follow from others', and a tenth digit added to a network that knows nine."""

from dataclasses import replace

from brickwork.data.images import SPLITS, hold_out
from brickwork.dependencies.mapping import fit_map
from brickwork.dependencies.new_classes import add_classes
from brickwork.outputs import accuracy_of
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
    stage.save(model, "nine", "digits:0-8")
    stage.save_images(unseen, UNSEEN)
    fit, test = ((predict(model, images).numpy(), labels) for images, labels, _ in map(unseen.split, SPLITS))
    mapped = fit_map(*fit, names=nine.classes, test=test, max_dependencies=MOST, seed=stage.seed)
    mapped = mapped.of_images(str(stage.final / UNSEEN), "train")
    mapped.save(stage.folder / "map")
    grown = add_classes(model, new, base_data=unseen, seed=stage.seed)
    stage.save(grown, "ten", "digits")
    before, after = stage.accuracy(model, nine), stage.accuracy(grown, ten)
    nines = ten.test_labels == 9
    tenth = accuracy_of(predict(grown, ten.test_images[nines]), ten.test_labels[nines])
    figure = draw_bars(
        "A tenth digit on top of nine",
        [
            Bar("nine digits, before", before, f"{before:.1%}", 2),
            Bar("all ten digits, after", after, f"{after:.1%}"),
            Bar("nines alone, after", tenth, f"{tenth:.1%}", 1),
        ],
        about="To give a finished network a class that it was not trained for.\n"
        "Share of test images that are right: the network of nine digits on those nine; the same network with a tenth output "
        "on all ten; and, of the nines alone, those that are found.\n"
        f"It never saw a nine, and finds {tenth:.0%} of them: the tenth output is a fitted combination of its nine logits, and "
        "those stay what they were, bit for bit.",
        part="dependencies",
        cards=(("ten digits from a network that knows nine", f"{after:.0%}"),),
        command=stage.command(f"depend add @nine --data digits:9 --base-data @{UNSEEN} {stage.seeded} --out ten"),
    )
    asked = (
        f"--data @{UNSEEN} --split train --max-dependencies {MOST}"  # of these images, none of which it was trained on
    )
    fitting = stage.command(f"depend fit @nine {asked} {stage.seeded} --out map")
    command = "\n".join([fitting, stage.command("depend show map --out map.html")])
    return [map_figure(mapped, command), figure], {"before": before, "after": after, "tenth": tenth}
