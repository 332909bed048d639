"""The tour, weight algebra: two networks added up over a grid of how much of each, and what `match` makes of the same two."""

from dataclasses import replace

from brickwork import store
from brickwork.algebra import merge_on, sweep
from brickwork.report.heat import draw_sweep
from brickwork.tour.halves import half, half_command
from brickwork.tour.stage import PartResult, Stage


def algebra(stage: Stage) -> PartResult:
    """Every cell of θ₀ + α g_a + β g_b on both halves."""
    step, count = (0.5, 3) if stage.quick else (0.1, 13)
    grid = [round(step * k, 10) for k in range(count)]
    sets = {f"digits:{name}": stage.digits(f"digits:{name}") for name in "AB"}
    a, b, start = (half(stage, name) for name in ("a", "b", "start"))
    result = sweep(a, b, base=start, data=sets, alpha=grid, beta=grid, progress=False)
    matched = merge_on([a, b], list(sets.values()), "match", progress=False)
    store.save(matched, stage.folder / "matched")
    right = {name: stage.accuracy(matched, images) for name, images in sets.items()}
    parents = {name: stage.accuracy(net, sets[name]) for name, net in zip(sets, (a, b), strict=True)}
    command = [half_command(stage, "b")]  # that of a stands with the bricks
    command.append(
        stage.command(
            f"sweep @a @b --base @start --data digits:A --data digits:B --alpha 0:{grid[-1]:g}:{step:g} --out sum"
        )
    )
    command.append(stage.command("merge @a @b --method match --data digits:A --data digits:B --out matched"))
    figure = draw_sweep(result)
    worst, alone = min(right.values()), min(parents.values())
    better = (
        f" The same two merged by match, on unlabelled images of both: {' and '.join(f'{v:.1%}' for v in right.values())}. "
        f"{'Use match where there are images' if worst > min(result.balanced()['accuracy'].values()) else 'The sum does better'}"
        ", adding up where there are none."
    )
    cards = (
        *figure.cards,
        ("worst data set, the same two by match", f"{worst:.1%}"),
        ("worst data set, a network for each", f"{alone:.1%}"),
    )
    numbers = {"balanced": result.balanced(), "parents": parents, "match": right}
    return [replace(figure, about=figure.about + better, cards=cards, command="\n".join(command))], numbers
