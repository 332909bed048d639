"""The tour opens: two networks that two teams trained apart become one, by matching responses and by averaging."""

from dataclasses import replace

from brickwork.algebra import merge, merge_on
from brickwork.report.bars import Bar, draw_bars
from brickwork.tour.stage import PartResult, Stage, as_options

TEAMS = ("team-1", "team-2")
METHODS = {"linear": "both, averaged", "rebasin": "both, aligned and averaged (rebasin)", "match": "both, by match"}


def merging(stage: Stage) -> PartResult:
    """Two LeNets with starts and images of their own, each on all ten digits; every method on the same two."""
    ten, commands, models, sets, parents = stage.digits(), [], [], [], {}
    for seed, team in enumerate(TEAMS):
        own = slice(seed, None, len(TEAMS))  # every second image
        images = replace(ten, train_images=ten.train_images[own], train_labels=ten.train_labels[own], train_masks=None)
        stage.save_images(images, f"{team}.npz")
        model = stage.trained(stage.start(f"start-{team}", "lenet", 10, seed=seed), images, seed=seed)
        models.append(model)
        sets.append(images)
        stage.save(model, team, str(stage.final / f"{team}.npz"))
        parents[team] = stage.accuracy(model, ten)
        how = f"{as_options(stage.training)} --seed {stage.seed + seed} --out {team}"
        commands.append(stage.command(f"train @start-{team} @{team}.npz {how}"))
    right = {}
    for method in METHODS:
        looks = method != "linear"  # at images
        merged = merge_on(models, sets, method, progress=False) if looks else merge(models, method)
        right[method] = stage.accuracy(merged, ten)
        stage.save(merged, f"by-{method}", "digits")
        data = " ".join(f"--data @{team}.npz" for team in TEAMS) if looks else ""
        commands.append(stage.command(f"merge @team-1 @team-2 --method {method} {data} --out by-{method}"))
    best = max(right, key=right.__getitem__)
    bars = [Bar(f"{team}'s network alone", value, f"{value:.1%}", 2) for team, value in parents.items()]
    bars += [Bar(METHODS[m], value, f"{value:.1%}", 0 if m == best else 1) for m, value in right.items()]
    figure = draw_bars(
        "Two networks become one",
        bars,
        about="To make one network of two that were trained apart, without the labels and without training.\n"
        "Share of test images that are right, all ten digits: grey the two teams' networks, trained from different starts on "
        "different images; coloured the one network made of both, as large as one of them.\n"
        f"Use {best}: it keeps {right[best]:.1%}, averaging the weights {right['linear']:.1%}, the better parent has "
        f"{max(parents.values()):.1%}. Averaging fails because unit 3 of one network is not unit 3 of the other.",
        part="merge",
        cards=(
            ("the two networks alone", " / ".join(f"{value:.1%}" for value in parents.values())),
            ("one network of both, by averaging", f"{right['linear']:.1%}"),
            (f"one network of both, by {best}", f"{right[best]:.1%}"),
        ),
        command="\n".join([*commands, stage.command(f"eval by-{best} digits")]),
    )
    return [figure], {"parents": parents, **right}
