"""`brickwork delta`, `assign` and `sweep`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from brickwork.algebra.options import AssignOptions, SweepOptions
from brickwork.cli.command import Argument, Report
from brickwork.cli.parameters import ModelFolder, OutFolder, Reading, Running, data_option, out_file, out_folder
from brickwork.cli.printing import typed_line
from brickwork.errors import RequestError
from brickwork.options import Setting

CALIBRATION = 1000  # images on which batch-norm statistics are measured
SWEEP = "sweep.csv"  # marks a folder of a sweep


def delta(
    trained: Annotated[Path, Argument("Model folder after training.", "TRAINED")],
    initial: Annotated[Path, Argument("Model folder before it.", "INITIAL")],
    *,
    out: out_file("File to write, g.safetensors.", ".safetensors"),
    run: Reading,
) -> Report:
    """Write what training added to a network, trained − initial.

    The file knows the network it was taken from.

    brickwork delta a zero --out g.safetensors
    """
    from brickwork import store
    from brickwork.algebra import delta

    for folder in (trained, initial):
        store.read_config(folder)
    g = delta(*(store.load(folder, arch=run.arch) for folder in (trained, initial)))
    g.save(out, force=run.force)
    return Report(
        {"file": str(out), "base": g.base, "tensors": len(g.tensors), "norm": g.norm()}, f"{g}; saved in {out}"
    )


def assign(
    model: ModelFolder,
    delta: Annotated[Path, Argument("A file written by delta.", "DELTA")],
    *,
    out: OutFolder,
    alpha: Annotated[float, Setting("How much of the delta is added.")] = 1.0,
    data: Annotated[str | None, Setting("Images to measure batch-norm statistics on: digits:A, a folder, …")] = None,
    run: Reading,
    options: AssignOptions,
) -> Report:
    """Add what one network learned to another: θ + αg.

    Paper 1, Eq. 6.

    brickwork assign other g.safetensors --alpha 5 --out other_g
    """
    from brickwork import data as data_sets
    from brickwork import store
    from brickwork.algebra import Delta, assign
    from brickwork.data.images import drawn_images
    from brickwork.origin import origin_of

    options.statistics(images=data is not None)
    spec = None if data is None else data_sets.check(data)
    network, g = store.load(model, arch=run.arch), Delta.load(delta)
    images = None
    if spec is not None:
        found = data_sets.load_for(origin_of(network).preprocessing, spec)
        images = drawn_images(found.train_images if len(found.train_images) else found.test_images, CALIBRATION, 0)
    moved = assign(network, g, alpha, images=images, options=options)
    store.save(moved, out, force=run.force, provenance={"command": "assign", "delta": str(delta)})
    report = {"folder": str(out), "model": str(model), "delta": str(delta), "alpha": alpha}
    return Report(report, f"{model} + {alpha:g} × {delta}; saved in {out}")


def sweep(
    first: Annotated[Path, Argument("A model folder.", "A")],
    second: Annotated[Path | None, Argument("Another of the same architecture.", "B")] = None,
    *,
    data: data_option("Test images of a data set; repeatable.", several=True),
    out: out_folder("Folder to write.", SWEEP),
    base: Annotated[Path | None, Setting("What both were trained from: θ₀ + α(A − θ₀) + β(B − θ₀).")] = None,
    engine: Annotated[str, Setting("Where rows of the grid run: inline, processes:N, ray or ray:ADDRESS.")] = "inline",
    run: Running,
    options: SweepOptions,
) -> Report:
    """Measure αA + βB over a grid of α and β on every data set.

    Written are a table and heat maps; printed is the balanced point.

    brickwork sweep a b --base zero --data digits:A --data digits:B --alpha 0:1:0.25 --out ab
    """
    from brickwork import store
    from brickwork.algebra.agreement import refuse_differences
    from brickwork.atomic import write_folder
    from brickwork.engine.executors import find_executor
    from brickwork.report.heat import draw_sweep
    from brickwork.report.runs import save_figures

    folders = {"A": first, **({"B": second} if second else {}), **({"base": base} if base else {})}
    tensors = {str(folder): store.read_config(folder).weights.tensors for folder in folders.values()}
    refuse_differences({f: {name: tuple(t.shape) for name, t in known.items()} for f, known in tensors.items()})
    if len({str(spec) for spec in data}) != len(data):
        raise RequestError("a data set is named twice.")
    find_executor(engine)
    if engine != "inline" and run.arch is not None:
        raise RequestError("`arch` names code of yours, which other processes do not load; use `engine` inline.")
    result = _swept(folders, data, engine, run.arch, run.where, options)
    drawing = replace(draw_sweep(result), command=typed_line())
    with write_folder(out, force=run.force, owns=(SWEEP,)) as draft:
        (draft / SWEEP).write_text(result.csv(), encoding="utf-8")
        for suffix in (".html", ".svg"):
            drawing.save(draft / f"sweep{suffix}")
        save_figures(draft, [drawing])
        result.write(draft)
    report = {"folder": str(out), "models": {k: str(v) for k, v in folders.items()}, **result.to_dict()}
    return Report(report, f"{result}\nsaved in {out}: {SWEEP}, sweep.html, sweep.svg")


def _swept(folders: dict[str, Path], data: Any, engine: str, arch: Any, device: Any, options: SweepOptions) -> Any:
    from brickwork import data as data_sets
    from brickwork import store
    from brickwork.algebra import sweep
    from brickwork.algebra.sweep_jobs import sweep_folders
    from brickwork.origin import origin_of

    if engine != "inline":
        specs = [str(spec) for spec in data]
        return sweep_folders(folders, specs, engine=engine, device=str(device), options=options)
    models = {name: store.load(folder, arch=arch, device=device) for name, folder in folders.items()}
    prepared = origin_of(models["A"]).preprocessing
    sets = {str(spec): data_sets.load_for(prepared, spec) for spec in data}
    return sweep(models["A"], models.get("B"), base=models.get("base"), data=sets, options=options)
