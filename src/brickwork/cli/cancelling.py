"""`brickwork cancel BASE --data FIRST --data SECOND --out cancellation.html`."""

from dataclasses import replace
from typing import Annotated, Any

from brickwork.algebra.options import CancelOptions
from brickwork.cli.command import Argument, Report
from brickwork.cli.parameters import ArchArguments, ImageSize, OutPicture, Running, data_option, optional
from brickwork.cli.printing import log, typed_line
from brickwork.errors import RequestError
from brickwork.options import Setting
from brickwork.words import counted


def cancel(
    base: Annotated[
        str, Argument("Where training starts: a model folder, or an architecture, new with --seed.", "BASE")
    ],
    *,
    data: data_option("Training images; twice, in the order of training.", several=True),
    images: Annotated[int, Setting("Images of each task, at most.", at_least=1)] = 200,
    out: optional(OutPicture) = None,
    size: ImageSize = None,
    arg: ArchArguments = None,
    run: Running,
    options: CancelOptions,
) -> Report:
    """Measure why tasks trained in sequence cancel each other.

    Training in sequence is compared with assigning what was learned, θ₀ + g₁ + g₂ (paper 1, appendix B).

    Measures the conflict of the two gradients and the paper's second-order term, layer by layer, and how far the term
    predicts the real difference of the two networks, for every learning rate and number of steps.

    brickwork cancel lenet --data digits:A --data digits:B --lr 1e-6,1e-3 --steps 1,5 --out cancellation.html
    """
    from brickwork import data as data_sets
    from brickwork.training.starts import find_start

    if len(data) != 2:
        raise RequestError(f"`data` is given {len(data)} times; give it twice, in the order of training.")
    start = find_start(base, arg or {}, size)
    if run.arch is not None and start.folder is None:
        raise RequestError("`arch` is for a folder; leave it out.")

    from brickwork.algebra import cancel
    from brickwork.algebra.cancellation import count_steps
    from brickwork.report.cancellation import draw_cancellation

    shape: dict[str, Any] = {"size": start.shape[1:], "channels": start.shape[0], "framing": start.framing}
    sets = [data_sets.load(spec, seed=options.seed, **shape) for spec in data]
    classes = max(len(one.classes) for one in sets) if start.folder is None else None
    model = start.network(classes, options.seed, arch=run.arch).to(run.where)
    count = counted(count_steps(options.lr, options.steps), "step")
    log(f"{count} of gradient descent from {base}, in float64 …")
    result = cancel(model, *(one.draw(images, options.seed) for one in sets), options=options)
    if out is not None:
        replace(draw_cancellation(result), command=typed_line()).save(out, force=run.force)
    report = {
        "base": base,
        "file": str(out) if out else None,
        "seed": options.seed,
        "bn": options.bn,
        **result.to_dict(),
    }
    return Report(report, str(result) + (f"\nsaved in {out}" if out else ""))
