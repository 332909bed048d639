"""`brickwork depend fit LOGITS_OR_MODEL --out MAP`, `depend show MAP` and `depend add MODEL --data NEW --out MODEL`."""

from pathlib import Path
from typing import Annotated, Any

import brickwork
from brickwork.cli import parameters as p
from brickwork.cli.command import Argument, Report, make_group
from brickwork.cli.folders import accuracy, hash_of, images_for
from brickwork.cli.printing import log
from brickwork.dependencies.options import AddOptions, MapOptions
from brickwork.errors import RequestError
from brickwork.model_options import DataSplitOptions
from brickwork.options import Setting, refuse
from brickwork.origin import origin_of
from brickwork.words import counted


def fit(
    source: Annotated[Path, Argument("A .npz or .npy of logits, or a model folder.", "LOGITS|MODEL")],
    *,
    out: p.out_folder("Folder to write the map to.", "map.json"),
    data: p.OptionalData = None,
    targets: Annotated[
        Path | None, Setting("Another network (logits of the same rows, or a model): fit its classes instead.")
    ] = None,
    labels: Annotated[Path | None, Setting("A .npy of labels, for logits without.")] = None,
    names: Annotated[Path | None, Setting("A text file with one class name per line.")] = None,
    run: p.Running,
    images: DataSplitOptions,
    options: MapOptions,
) -> Report:
    """Find which classes are combinations of a few others.

    A class's logit is fitted by those of others, and what replacing it costs is measured. A model's logits are taken on
    images that it was not trained on, of which three in ten measure; with --split train on the training images, and the
    test images measure.

    brickwork depend fit logits.npz --loss decision --selection greedy --max-dependencies 20 --holdout 0.4 --out map

    brickwork depend fit a --data digits --out map
    """
    from brickwork.dependencies.reading import LogitReader

    solving = str(run.where) if options.solver == "torch" else "cpu"  # a network may run elsewhere
    brickwork.CovLasso(**options.estimator(), device=solving).check()
    sources = [source] if targets is None else [source, targets]
    how: dict[str, Any] = {"arch": run.arch, "device": str(run.where), "seed": options.seed, "split": images.split}
    how["holdout"] = options.holdout
    read = LogitReader(sources, data, labels, names, **how)
    read.check()
    rows, test, known = read(source)
    given: dict[str, Any] = {"names": known}
    if targets is not None:
        other, other_test, its_names = read(targets)
        given |= {"targets": other[0], "target_names": its_names}
        test = None if test is None or other_test is None else (*test, other_test[0])
    options = read.options(options, test)
    result = brickwork.depend.fit(*rows, test=test, device=solving, progress=True, options=options, **given)
    result = read.with_source(result)
    result.save(out, force=run.force)
    return Report.saved(out, result.to_dict(), result)


def show(
    source: Annotated[Path, Argument("A folder written by depend fit.", "MAP")],
    *,
    out: p.optional(p.out_file("Page (.html) or its graph (.svg) to write.", ".html", ".svg")) = None,
    classes: Annotated[tuple[str, ...], Setting("Show this class's equation; repeatable.", also=("--class",))] = (),
    logits: Annotated[
        Path | None, Setting("With --out: what the map was fitted on, to plot correlation and coefficient.")
    ] = None,
    targets: Annotated[Path | None, Setting("Beside --logits: the other network's logits.")] = None,
    force: p.Force = False,
) -> Report:
    """Show a map as equations, as a page or as a graph.

    brickwork depend show map --classes 3

    brickwork depend show map --logits logits.npz --out page.html
    """
    if targets is not None and logits is None:
        raise RequestError("depend show takes `targets` only beside `logits`.")
    if logits is not None and out is None:
        raise RequestError("`logits` is for the page: brickwork depend show MAP --logits LOGITS --out page.html")
    result = brickwork.DependencyMap.load(source)
    wanted = [int(c) if c.isdecimal() and c not in result.targets else c for c in classes]
    errors = result.columns["rel_error"]
    lines = [f"{result.equation(c)}  (relative error {errors[result.row_of(c)]:.2f})" for c in wanted]
    text, entries = "\n".join(lines) or str(result), result.to_dict()
    if wanted:
        entries["classes"] = [entries["classes"][result.row_of(c)] for c in wanted]
    if out is not None:
        from brickwork.dependencies.reading import moments_of
        from brickwork.report.dependencies import draw_dependencies

        moments = None if logits is None else moments_of(result, logits, targets)
        draw_dependencies(result, classes=wanted, moments=moments).save(out, force=force)
        entries, text = {"file": out, **entries}, f"{text}\nsaved in {out}"
    return Report({"folder": source, **entries}, text)


def add(
    model: p.ModelFolder,
    *,
    data: p.Data,
    out: p.OutFolder,
    base_data: p.optional(p.data_option("Images of the model's own classes, the more the better.")) = None,
    run: p.Running,
    options: AddOptions,
) -> Report:
    """Give a model folder new classes, out of what it answers.

    They are the classes of --data.

    brickwork depend add a --data digits:5-9 --base-data digits:A --out ten
    """
    refuse([*options.needs(base_data=base_data is not None)])
    network = run.load(model)
    new, known = (images_for(network, spec, options.seed) for spec in (data, base_data))
    if known is None:
        log("without --base-data nothing says where the new classes end: expect known images to be lost to them.")
    grown = brickwork.depend.add(network, new, base_data=known, progress=True, options=options)
    facts: dict[str, Any] = {"data": str(data), "base_data": base_data and str(base_data), "source": hash_of(model)}
    facts |= {"how": options.how, "on": options.on, **({"epochs": options.epochs} if options.on == "branch" else {})}
    right = {"new": accuracy(grown, new), "known": accuracy(grown, known), "known_before": accuracy(network, known)}
    run.save(grown, out, "depend add", test_accuracy=right, **facts)
    classes = origin_of(grown).classes or ()
    shown = [f"{name.replace('_', ' ')} {value:.1%}" for name, value in right.items() if value is not None]
    count = f"{counted(len(classes), 'class')}, {len(new.classes)} of them new"
    report = {"model": model, "classes": classes, **facts, "test_accuracy": right}
    return Report.saved(out, report, f"{count}; test images right: {', '.join(shown)}")


GROUP = make_group("depend", "Find and use classes that are combinations of a few others.", (fit, show, add))
