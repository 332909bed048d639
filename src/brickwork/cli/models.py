"""`brickwork train`, `eval`, `synthesise` and `info`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import brickwork
from brickwork import store
from brickwork.cli import parameters as p
from brickwork.cli.command import Argument, Report
from brickwork.cli.folders import hash_of, images_for
from brickwork.cli.printing import is_first_process, log
from brickwork.dependencies.options import CutLinkOptions
from brickwork.errors import BadData, BadFile, RequestError
from brickwork.model_options import EvalOptions, InfoOptions
from brickwork.options import Setting
from brickwork.origin import origin_of
from brickwork.training.options import RunningOptions, SynthesiseOptions, TrainOptions
from brickwork.words import counted, facts_line, sides, table

Images = Annotated[str, Argument("digits:A, cifar10@100, a folder, an .npz, hfds:NAME, …", "DATA", check=p.check_data)]


def train(
    begin: Annotated[
        str,
        Argument(
            "lenet, vgg16, timm:resnet18, package.module:factory, …, or a model folder to go on from.", "ARCH|FOLDER"
        ),
    ],
    data: Images,
    *,
    out: p.OutFolder,
    arg: p.ArchArguments = None,
    arch: p.Arch = None,
    size: p.ImageSize = None,
    device: p.Device = "auto",
    force: p.Force = False,
    options: TrainOptions,
    links: CutLinkOptions,
    running: RunningOptions,
) -> Report | None:
    """Train an architecture, or a model folder further, on a data set.

    brickwork train lenet digits:A --out a

    brickwork train a digits:B --out ab
    """
    from brickwork.evaluation import evaluate_data
    from brickwork.training.starts import find_start

    start = find_start(begin, arg or {}, size)
    start.check_arch(arch)
    if options.epochs == 0 and (links.cut or running.checkpoint):
        raise RequestError("`epochs` 0 trains nothing; leave out `cut` and `checkpoint`.")
    images = start.images(data, options.seed)
    classes = images.mask_classes if start.segments else images.classes
    if start.segments and images.train_masks is None:
        raise BadData(f"{begin} needs masks to train on, and {images.name} has none.")
    if len(images.test_labels) == 0:
        raise BadData(f"{images.name} has no image to test on; give every class two images or more, or a test/ folder.")
    penalty = links.penalty(classes)
    model = start.network(len(classes), options.seed, arch=arch)
    log(f"training {begin} on {images} …")
    about: dict[str, Any] = {"classes": classes, "penalty": penalty, "device": device}
    about |= {"masks": images.train_masks} if start.segments else {}
    try:
        result = brickwork.train(model, images, options=options, running=running, **about)
    except KeyboardInterrupt:
        if running.checkpoint is not None:
            log(f"the last whole epoch is in {running.checkpoint}; the same command goes on from there.")
        raise
    evaluation = evaluate_data(model, images)
    if not is_first_process():
        return None
    facts: dict[str, Any] = links.provenance()
    if start.folder is not None:
        facts["start"] = hash_of(start.folder)
    known = {"command": "train", "data": str(data), "options": result.options.to_dict(), **facts}
    known |= {"seconds": round(result.seconds, 2), "test_accuracy": evaluation.accuracy}
    store.save(model, out, force=force, provenance=known)
    report = {"arch": begin, "data": data, **facts, **result.to_dict(), "test": evaluation.to_dict()}
    trained = f"trained {counted(len(result.history), 'epoch')} in {result.seconds:.1f} s"
    return Report.saved(out, report, f"{evaluation}\n{trained}")


def evaluate(
    folder: p.ModelFolder,
    data: Images,
    *,
    confusion: Annotated[bool, Setting("Show how often each class was taken for each.")] = False,
    picture: p.optional(p.out_file("Picture of the confusion matrix to write: .svg, .png or .html.")) = None,
    seed: p.Seed = 0,
    run: p.Running,
    options: EvalOptions,
) -> Report:
    """Evaluate a model folder on a data set.

    The classes of the data are found among the model's by name.

    brickwork eval a digits:A --json

    brickwork eval a digits:A --restrict 3,4 --confusion
    """
    from brickwork.evaluation import evaluate_data, images_of_split, judged_split

    model = run.load(folder)
    spec: Any = data  # as the parameter's check has read it
    images, notes = images_for(model, replace(spec, amount=None), seed), []
    split = options.split or judged_split(model, images)
    images, where = images_of_split(images, split, spec.amount, seed)
    if images.piled:
        notes.append(f"{data} has no test split of its own; its {split} images are a part that is always the same")
    result = evaluate_data(model, images, split=where, options=options)
    notes += [result.note] if result.note else []
    result = replace(result, note="")  # said with the others
    report = {"folder": folder, "data": data, "split": split, "notes": notes, **result.to_dict()}
    lines = [str(result), *(["", result.confusion_table()] if confusion else []), *(f"note: {n}." for n in notes)]
    if picture is not None:
        from brickwork.report.confusion import draw_confusion

        draw_confusion(result, f"{folder} on {data}").save(picture, force=run.force)
        report["picture"] = picture
        lines.append(f"picture in {picture}")
    return Report(report, "\n".join(lines))


def synthesise(
    model: p.ModelFolder,
    *,
    out: p.out_file("File to write, made.npz.", ".npz"),
    run: p.Running,
    options: SynthesiseOptions,
) -> Report:
    """Make calibration images from what a model folder's batch norms remember of the images it was trained on.

    They can be given as --data wherever labels are not used: to repair a part, to merge, to quantise. Accuracy on
    them says nothing.

    brickwork synthesise a --out made.npz
    """
    from brickwork.data.arrays import save_npz

    images = brickwork.synthesise(run.load(model), options=options)
    save_npz(images, out, force=run.force)
    facts = {"images": len(images.train_labels), "shape": images.shape, "classes": len(images.classes)}
    text = f"{facts['images']} images of {sides(images.shape)} for {facts['classes']} classes"
    return Report.saved(out, {"model": model, **facts, "options": options.to_dict()}, text)


def info(
    target: Annotated[
        str | None, Argument("lenet, timm:resnet18, …, or a model folder; none: list.", "ARCH|FOLDER")
    ] = None,
    *,
    arg: p.ArchArguments = None,
    arch: p.Arch = None,
    options: InfoOptions,
) -> Report:
    """Show layers, channel spaces and sizes of a model folder or architecture.

    FLOPs are for one example, two for each multiply-add of convolutions, linear layers and attention.
    A channel space is a set of channels that are cut together. --dry-run shows a cut and writes nothing.
    Without an argument: the architectures there are.
    """
    options.keep()
    if target is None:
        for name in options.changed():
            raise RequestError(f"`{name}` needs a model: an architecture or a model folder.")
        return _architectures()
    if Path(target).is_dir():
        if arg:
            raise RequestError("`arg` is for architectures; a model folder records its own arguments.")
        return _folder(Path(target), arch, options)
    if "/" in target and ":" not in target:
        raise BadFile(f"{target} is not a folder; info takes an architecture or a model folder.")
    if arch is not None:
        raise RequestError("`arch` is for a folder; leave it out.")
    result = brickwork.info(brickwork.zoo.build(target, **(arg or {})), options=options)
    return Report({"arch": target, "args": arg or {}, **result.to_dict()}, f"{target}\n{result}")


def _architectures() -> Report:
    rows = [{"name": a.name, "task": a.task, "summary": a.summary} for a in brickwork.zoo.REGISTRY.values()]
    others = [f"{prefix}:NAME" for prefix in brickwork.zoo.PREFIXES] + ["package.module:factory"]
    text = table(["name", "task", "what"], [list(row.values()) for row in rows]) + "\nothers: " + ", ".join(others)
    return Report({"architectures": rows, "others": others}, text)


def _folder(folder: Path, arch: Any, options: InfoOptions) -> Report:

    model = store.load(folder, arch=arch)
    config = store.read_config(folder)
    origin = origin_of(model)
    result = brickwork.info(model, options=options)
    data = {"folder": folder, **origin.to_dict(), "state_hash": config.weights.state_hash, **result.to_dict()}
    facts = {
        "folder": str(folder),
        "architecture": origin.arch or "not built by Brickwork",
        "arguments": ", ".join(f"{name}={value}" for name, value in origin.args.items()),
        "classes": ", ".join(origin.classes or ()),
        "images": facts_line(origin.preprocessing.to_dict()) if origin.preprocessing else "",
        **_provenance(model, origin.provenance),
        "surgery": counted(len(origin.steps), "step") if origin.steps else "",
        "state hash": config.weights.state_hash[:16],
    }
    width = max(map(len, facts))
    text = "\n".join(f"{name:<{width}}  {value}" for name, value in facts.items() if value)
    return Report(data, f"{text}\n{result}")


def _provenance(model: Any, known: dict[str, Any]) -> dict[str, str]:
    """How a model came about, a line each; --json has all of it."""
    from brickwork.bricks.brick import PROVENANCE, WHOLE, Brick

    lines = {
        name.replace("_", " "): facts_line(value) for name, value in known.items() if name not in (PROVENANCE, WHOLE)
    }
    if known.get("train") == known.get("options"):
        lines.pop("options", None)
    if PROVENANCE not in known:
        return lines
    try:
        rows = dict(Brick.of_facts(model, known[PROVENANCE]).rows())
    except (KeyError, TypeError):  # of another version
        return {**lines, "brick": facts_line(known[PROVENANCE])}
    rows.pop("classes")
    return {**lines, **rows, "cut from": facts_line(known.get(WHOLE))}
