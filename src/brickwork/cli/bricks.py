"""`brickwork disassemble`, `compress`, `assemble`, `increment` and `routes`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from brickwork.bricks.options import AssembleOptions, CompressOptions, DisassembleOptions, RoutesOptions
from brickwork.cli.command import Given, Report
from brickwork.cli.folders import check_classes, hash_of, images_for, save
from brickwork.cli.parameters import (
    BrickFolders,
    Data,
    ModelFolder,
    OptionalData,
    OutFolder,
    OutPicture,
    Running,
    Seed,
    data_option,
    optional,
    out_folder,
)
from brickwork.cli.printing import is_first_process, typed_line
from brickwork.errors import BadFile, BadModel, RequestError
from brickwork.options import Setting
from brickwork.words import sides

Classes = Annotated[str, Setting("Classes of the model, by number or name: 0-2, cat,dog.")]
Target = optional(data_option("Unlabelled images for --calibrate target: their training split."))


def disassemble(
    model: ModelFolder, *, classes: Classes, data: Data, out: OutFolder, run: Running, options: DisassembleOptions
) -> Report | None:
    """Cut the part of some classes out of a model folder, as a brick.

    brickwork disassemble a --classes 0-2 --data digits:A --out a012
    """
    return _cut("disassemble", (model, classes, data, out), run, options)


def compress(
    model: ModelFolder,
    *,
    data: Data,
    out: out_folder("Folder to write; with several budgets, one in it for each.", "config.json", "tradeoff.json"),
    run: Running,
    options: CompressOptions,
) -> Report | None:
    """Drop what no class of a model folder needs.

    What is left is a brick of all classes. Several budgets give a folder with a brick for each, a table and a picture of
    accuracy against size and time.

    brickwork compress a --data digits:A --budget 0.4 --out small

    brickwork compress a --data digits:A --budget 0.7,0.5,0.25 --out several

    brickwork compress vit --data pics --budget 0.5 --uniform --out small
    """
    if len(options.budgets) < 2:
        return _cut("compress", (model, None, data, out), run, options.at(next(iter(options.budgets), None)))
    from brickwork import store
    from brickwork.bricks import compress
    from brickwork.moments.processes import shared_over_processes
    from brickwork.report.tradeoff import draw_tradeoff

    with shared_over_processes(run.where) as device:
        network = store.load(model, arch=run.arch, device=device)
        images = images_for(network, data, options.seed)
        result = compress(network, images, options=options, progress=is_first_process())
    if not is_first_process():
        return None
    picture = {"tradeoff.svg": draw_tradeoff(result).svg()}
    result.save(out, force=run.force, files=picture, command="compress", data=str(data))
    report = {"folder": str(out), "model": str(model), "data": str(data), **result.to_dict()}
    return Report(report, f"{result}\nsaved in {out}, with tradeoff.csv and tradeoff.svg")


def _cut(
    command: str, request: tuple[Path, str | None, Any, Path], run: Running, options: DisassembleOptions
) -> Report | None:
    """A brick of some classes, or of all (None), cut, saved and reported."""
    from brickwork import store
    from brickwork.bricks import disassemble
    from brickwork.moments.processes import shared_over_processes

    folder, classes, spec, out = request
    check_classes(folder, classes)
    with shared_over_processes(run.where) as device:
        model = store.load(folder, arch=run.arch, device=device)
        images = images_for(model, spec, options.seed)
        brick = disassemble(model, classes, images, options=options, progress=is_first_process())
    if not is_first_process():
        return None
    brick.save(out, force=run.force, command=command, data=str(spec))
    report = {"folder": str(out), "model": str(folder), "data": str(spec), **brick.to_dict()}
    return Report(report, f"{brick}\nsaved in {out}")


def assemble(
    bricks: BrickFolders,
    *,
    out: OutFolder,
    target: Target = None,
    source: Annotated[Path | None, Setting("The network the bricks were cut from, to unite them.")] = None,
    data: optional(data_option("With --source: unlabelled images of its data, to repair the union on.")) = None,
    images: Annotated[int, Setting("Images to repair the union on, at most.", at_least=1)] = 3000,
    seed: Seed = 0,
    run: Running,
    options: AssembleOptions,
    given: Given,
) -> Report:
    """Join bricks into one model folder with the classes of all.

    brickwork assemble a012 b34 --out ab
    """
    from brickwork import store
    from brickwork.bricks import Brick, assemble
    from brickwork.bricks.description import description, summary_of
    from brickwork.data.images import drawn_images

    _check_target(options, target)
    if "images" in given and data is None:
        raise RequestError(
            f"`images` is {images}, and there is no `data` to take them from; give it, or leave both out."
        )
    _check_bricks(bricks)
    _check_source(bricks, options.shared, source, data)
    parts = [Brick.load(folder, arch=run.arch, device=run.where) for folder in bricks]
    read: dict[str, Any] = {}
    if source is not None:
        read["source"] = store.load(source, arch=run.arch, device=run.where)
        if data is not None:
            read["data"] = drawn_images(images_for(read["source"], data, seed).train_images, images, seed)
    if target is not None:
        read["target"] = images_for(parts[0].model, target, seed).train_images
    model = assemble(parts, options=options, **read)
    save(model, out, force=run.force, command="assemble", data=data and str(data), target=target and str(target))
    report = {"folder": str(out), "bricks": [str(b) for b in bricks], **description(model)}
    text = f"{len(bricks)} {'bricks' if len(bricks) > 1 else 'brick'} {summary_of(report)}; saved in {out}"
    return Report(report, text)


def increment(
    model: ModelFolder,
    bricks: BrickFolders,
    *,
    out: OutFolder,
    data: OptionalData = None,
    target: Target = None,
    seed: Seed = 0,
    run: Running,
    options: AssembleOptions,
) -> Report:
    """Give a model folder the classes of bricks, without training.

    --data, images of the model's own data, calibrates its logits; labels are not used.

    brickwork increment a b89 --data digits:A --out a89
    """
    from brickwork import store
    from brickwork.bricks import Brick, increment
    from brickwork.bricks.description import description, summary_of

    _check_target(options, target)
    by_source = options.calibrate in ("source", "classwise")
    if by_source and data is None:
        raise RequestError(f"`calibrate` {options.calibrate} needs `data`, images of the model's own data.")
    if data is not None and not by_source and options.calibrate != "auto":
        raise RequestError(f"`data` is not used by `calibrate` {options.calibrate}; leave one of them out.")
    _check_bricks(bricks, model)
    whole = store.load(model, arch=run.arch, device=run.where)
    parts = [Brick.load(brick, arch=run.arch, device=run.where) for brick in bricks]
    own = images_for(whole, data, seed).train_images if data is not None else None
    wanted = images_for(whole, target, seed).train_images if target is not None else None
    grown = increment(whole, parts, data=own, target=wanted, options=options)
    facts = {"data": data and str(data), "target": target and str(target), "source": hash_of(model)}
    save(grown, out, force=run.force, command="increment", **facts)
    report = {"folder": str(out), "model": str(model), "bricks": [str(b) for b in bricks], **description(grown)}
    return Report(report, f"{model} and {', '.join(map(str, bricks))} {summary_of(report)}; saved in {out}")


def routes(
    model: ModelFolder,
    *,
    data: Data,
    out: OutPicture,
    classes: Annotated[
        str | None, Setting("Classes of the model, by number or name: 3,8 or dog,bird.", default_text="all in the data")
    ] = None,
    run: Running,
    options: RoutesOptions,
) -> Report:
    """Draw which channels decide for which class.

    brickwork routes a --classes 3,8 --data digits --out routes.html
    """
    from brickwork import store
    from brickwork.bricks import routes
    from brickwork.report import draw_routes

    check_classes(model, classes)
    network = store.load(model, arch=run.arch, device=run.where)
    result = routes(network, images_for(network, data, options.seed), classes, options=options)
    replace(draw_routes(result), command=typed_line()).save(out, force=run.force)
    report = {"file": str(out), "model": str(model), "data": str(data), **result.to_dict()}
    return Report(report, f"{result}\nsaved in {out}")


def _check_target(options: AssembleOptions, target: Any) -> None:
    """Target images and the calibration that needs them come together."""
    if (options.calibrate == "target") != (target is not None):
        raise RequestError("`target` images go with `calibrate` target, and it needs some; give both or neither.")


def _check_bricks(folders: Sequence[Path], first: Path | None = None) -> None:
    """Refuse folders that cannot be joined (to a whole model `first`), by what their config.json says."""
    from brickwork import store
    from brickwork.bricks.brick import PROVENANCE

    owner: dict[str, Path] = {}
    shapes: dict[tuple[int, ...], Path] = {}
    for folder in [*([first] if first else []), *folders]:
        config = store.read_config(folder)
        if folder is not first and not isinstance(config.provenance.get(PROVENANCE), dict):
            raise BadFile(f"{folder} is a model, not a brick; cut one out of it with: brickwork disassemble {folder}")
        for name in config.classes or ():
            if name in owner:
                raise RequestError(
                    f"class {name!r} is in {owner[name]} and in {folder}; cut bricks of different classes."
                )
            owner[name] = folder
        if config.input_shape is not None:
            shapes.setdefault(tuple(config.input_shape), folder)
    if len(shapes) > 1:
        (one, a), (two, b) = list(shapes.items())[:2]
        raise BadModel(f"{a} takes inputs of {sides(one)} and {b} of {sides(two)}; bricks must share one input size.")


def _check_source(bricks: Sequence[Path], shared: str, source: Path | None, data: Any) -> None:
    """Whether `source` and `data` would be used at all."""
    from brickwork import store
    from brickwork.bricks.brick import PROVENANCE, options_of

    if source is None:
        if data is not None:
            raise RequestError("`data` repairs the union of bricks of `source`; give both, or `source` alone.")
        return
    if shared == "apart":
        raise RequestError("`source` is there to unite bricks, and `shared` apart keeps them apart; give one.")
    hashed = hash_of(source)
    facts = [store.read_config(folder).provenance[PROVENANCE] for folder in bricks]
    own = [brick for brick in facts if brick.get("source") == hashed]
    if len(own) < 2:
        count = "one brick was" if own else "none of the bricks was"
        raise BadModel(f"{count} cut from {source}; to be united, two must be.")
    repaired = any(options_of(brick)[0].repair != "none" for brick in own)
    if repaired and data is None and shared == "auto":
        raise RequestError(
            f"bricks of {source} were repaired, so their union must be too; give `data`, images of its training data."
        )
