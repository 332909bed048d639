"""`brickwork delta`, `assign`, `sweep` and `cancel`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import brickwork
from brickwork import store
from brickwork.algebra.options import AssignOptions, CancelOptions, SweepOptions
from brickwork.cli import parameters as p
from brickwork.cli.command import Argument, Report
from brickwork.cli.folders import images_for
from brickwork.cli.printing import log, typed_line
from brickwork.engine.options import EngineOptions
from brickwork.errors import RequestError
from brickwork.options import Setting
from brickwork.words import counted

CALIBRATION = 1000  # images on which batch-norm statistics are measured
SWEEP = "sweep.csv"  # marks a folder of a sweep


def delta(
    trained: Annotated[Path, Argument("Model folder after training.", "TRAINED", check=p.check_models)],
    initial: Annotated[Path, Argument("Model folder before it.", "INITIAL", check=p.check_models)],
    *,
    out: p.out_file("File to write, g.safetensors.", ".safetensors"),
    run: p.Reading,
) -> Report:
    """Write what training added to a network, trained − initial.

    The file knows the network it was taken from.

    brickwork delta a zero --out g.safetensors
    """
    g = brickwork.delta(run.load(trained), run.load(initial))
    g.save(out, force=run.force)
    return Report.saved(out, {"base": g.base, "tensors": len(g.tensors), "norm": g.norm()}, g)


def assign(
    model: p.ModelFolder,
    delta: Annotated[Path, Argument("A file written by delta.", "DELTA")],
    *,
    out: p.OutFolder,
    alpha: Annotated[float, Setting("How much of the delta is added.")] = 1.0,
    data: p.optional(p.data_option("Images to measure batch-norm statistics on: digits:A, a folder, …")) = None,
    run: p.Reading,
    options: AssignOptions,
) -> Report:
    """Add what one network learned to another: θ + αg.

    Paper 1, Eq. 6.

    brickwork assign other g.safetensors --alpha 5 --out other_g
    """
    from brickwork.data.images import drawn_images

    options.statistics(images=data is not None)
    network, g = run.load(model), brickwork.Delta.load(delta)
    images = images_for(network, data, 0)
    if images is not None:
        images = drawn_images(images.train_images if len(images.train_images) else images.test_images, CALIBRATION, 0)
    moved = brickwork.assign(network, g, alpha, images=images, options=options)
    run.save(moved, out, "assign", delta=str(delta))
    return Report.saved(out, {"model": model, "delta": delta, "alpha": alpha}, f"{model} + {alpha:g} × {delta}")


def sweep(
    first: Annotated[Path, Argument("A model folder.", "A")],
    second: Annotated[Path | None, Argument("Another of the same architecture.", "B")] = None,
    *,
    data: p.data_option("Test images of a data set; repeatable.", several=True),
    out: p.out_folder("Folder to write.", SWEEP),
    base: Annotated[Path | None, Setting("What both were trained from: θ₀ + α(A − θ₀) + β(B − θ₀).")] = None,
    run: p.Running,
    options: SweepOptions,
    running: EngineOptions,
) -> Report:
    """Measure αA + βB over a grid of α and β on every data set.

    Written are a table and heat maps; printed is the balanced point.

    brickwork sweep a b --base zero --data digits:A --data digits:B --alpha 0:1:0.25 --out ab
    """
    from brickwork.algebra.agreement import refuse_differences
    from brickwork.algebra.sweep_jobs import sweep_folders, sweep_here
    from brickwork.atomic import write_folder
    from brickwork.report.heat import draw_sweep
    from brickwork.report.runs import save_figures

    folders = {"A": first, **({"B": second} if second else {}), **({"base": base} if base else {})}
    tensors = {str(folder): store.read_config(folder).weights.tensors for folder in folders.values()}
    refuse_differences({f: {name: tuple(t.shape) for name, t in known.items()} for f, known in tensors.items()})
    if len({str(spec) for spec in data}) != len(data):
        raise RequestError("a data set is named twice.")
    if running.elsewhere:
        specs, where = [str(spec) for spec in data], str(run.where)
        result = sweep_folders(folders, specs, arch=run.arch, device=where, options=options, running=running)
    else:
        result = sweep_here(folders, data, arch=run.arch, device=run.where, options=options)
    drawing = replace(draw_sweep(result), command=typed_line())
    with write_folder(out, force=run.force, owns=(SWEEP,)) as draft:
        (draft / SWEEP).write_text(result.csv(), encoding="utf-8")
        for suffix in (".html", ".svg"):
            drawing.save(draft / f"sweep{suffix}")
        save_figures(draft, [drawing])
        result.write(draft)
    report = {"models": folders, **result.to_dict()}
    return Report.saved(out, report, result, f": {SWEEP}, sweep.html, sweep.svg")


def cancel(
    base: Annotated[
        str, Argument("Where training starts: a model folder, or an architecture, new with --seed.", "BASE")
    ],
    *,
    data: p.data_option("Training images; twice, in the order of training.", several=True),
    images: Annotated[int, Setting("Images of each task, at most.", at_least=1)] = 200,
    out: p.optional(p.OutPicture) = None,
    size: p.ImageSize = None,
    arg: p.ArchArguments = None,
    run: p.Running,
    options: CancelOptions,
) -> Report:
    """Measure why tasks trained in sequence cancel each other.

    Training in sequence is compared with assigning what was learned, θ₀ + g₁ + g₂ (paper 1, appendix B).

    Measures the conflict of the two gradients and the paper's second-order term, layer by layer, and how far the term
    predicts the real difference of the two networks, for every learning rate and number of steps.

    brickwork cancel lenet --data digits:A --data digits:B --lr 1e-6,1e-3 --steps 1,5 --out cancellation.html
    """
    from brickwork.algebra.cancellation import count_steps
    from brickwork.report.cancellation import draw_cancellation
    from brickwork.training.starts import find_start

    if len(data) != 2:
        raise RequestError(f"`data` is given {len(data)} times; give it twice, in the order of training.")
    start = find_start(base, arg or {}, size)
    if run.arch is not None and start.folder is None:
        raise RequestError("`arch` is for a folder; leave it out.")
    sets = [start.images(spec, options.seed) for spec in data]
    classes = max(len(one.classes) for one in sets) if start.folder is None else None
    model = start.network(classes, options.seed, arch=run.arch).to(run.where)
    log(f"{counted(count_steps(options.lr, options.steps), 'step')} of gradient descent from {base}, in float64 …")
    result = brickwork.cancel(model, *(one.draw(images, options.seed) for one in sets), options=options)
    if out is not None:
        run.draw(draw_cancellation(result), out)
    own = {"base": base, "file": out, "seed": options.seed, "bn": options.bn}
    return Report({**own, **result.to_dict()}, str(result) + (f"\nsaved in {out}" if out else ""))
