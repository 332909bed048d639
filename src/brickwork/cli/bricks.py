"""`brickwork disassemble`, `compress`, `assemble`, `increment` and `routes`."""

from pathlib import Path
from typing import Annotated, Any

import brickwork
from brickwork.bricks.options import AssembleOptions, CompressOptions, DisassembleOptions, RoutesOptions
from brickwork.cli import parameters as p
from brickwork.cli.command import Given, Report
from brickwork.cli.folders import check_classes, hash_of, images_for
from brickwork.cli.printing import is_first_process
from brickwork.errors import RequestError
from brickwork.options import Setting
from brickwork.words import counted

Classes = Annotated[str, Setting("Classes of the model, by number or name: 0-2, cat,dog.")]
Target = p.optional(p.data_option("Unlabelled images for --calibrate target: their training split."))


def disassemble(
    model: p.ModelFolder,
    *,
    classes: Classes,
    data: p.Data,
    out: p.OutFolder,
    run: p.Running,
    options: DisassembleOptions,
) -> Report | None:
    """Cut the part of some classes out of a model folder, as a brick.

    brickwork disassemble a --classes 0-2 --data digits:A --out a012
    """
    check_classes(model, classes)
    return _cut("disassemble", (classes,), (model, data, out), run, options)


def compress(
    model: p.ModelFolder,
    *,
    data: p.Data,
    out: p.out_folder("Folder to write; with several budgets, one in it for each.", "config.json", "tradeoff.json"),
    run: p.Running,
    options: CompressOptions,
) -> Report | None:
    """Drop what no class of a model folder needs.

    What is left is a brick of all classes. Several budgets give a folder with a brick for each, a table and a picture of
    accuracy against size and time.

    brickwork compress a --data digits:A --budget 0.4 --out small

    brickwork compress a --data digits:A --budget 0.7,0.5,0.25 --out several

    brickwork compress vit --data pics --budget 0.5 --uniform --out small
    """
    return _cut("compress", (), (model, data, out), run, options)


def _cut(
    command: str, classes: tuple[str, ...], request: tuple[Path, Any, Path], run: p.Running, options: Any
) -> Report | None:
    """A brick, or one for each of several budgets, cut by the function of this name, saved and reported."""
    from brickwork.bricks.tradeoff import Tradeoff
    from brickwork.moments.processes import shared_over_processes
    from brickwork.report.tradeoff import draw_tradeoff

    folder, data, out = request
    with shared_over_processes(run.where) as device:
        model = run.load(folder, device)
        images = images_for(model, data, options.seed)
        result = getattr(brickwork, command)(model, *classes, images, options=options, progress=is_first_process())
    if not is_first_process():
        return None
    several = isinstance(result, Tradeoff)
    files = {"files": {"tradeoff.svg": draw_tradeoff(result).svg()}} if several else {}
    result.save(out, force=run.force, command=command, data=str(data), **files)
    more = ", with tradeoff.csv and tradeoff.svg" if several else ""
    return Report.saved(out, {"model": folder, "data": data, **result.to_dict()}, result, more)


def assemble(
    bricks: p.BrickFolders,
    *,
    out: p.OutFolder,
    target: Target = None,
    source: Annotated[Path | None, Setting("The network the bricks were cut from, to unite them.")] = None,
    data: p.optional(p.data_option("With --source: unlabelled images of its data, to repair the union on.")) = None,
    images: Annotated[int, Setting("Images to repair the union on, at most.", at_least=1)] = 3000,
    seed: p.Seed = 0,
    run: p.Running,
    options: AssembleOptions,
    given: Given,
) -> Report:
    """Join bricks into one model folder with the classes of all.

    brickwork assemble a012 b34 --out ab
    """
    from brickwork.bricks.description import description, summary_of
    from brickwork.bricks.joinable import check_folders, check_source, check_target
    from brickwork.data.images import drawn_images

    check_target(options, target)
    if "images" in given and data is None:
        raise RequestError(
            f"`images` is {images}, and there is no `data` to take them from; give it, or leave both out."
        )
    check_folders(bricks)
    check_source(bricks, options.shared, source, data)
    parts = [brickwork.Brick.load(folder, arch=run.arch, device=run.where) for folder in bricks]
    read: dict[str, Any] = {}
    if source is not None:
        read["source"] = run.load(source)
        if data is not None:
            read["data"] = drawn_images(images_for(read["source"], data, seed).train_images, images, seed)
    if target is not None:
        read["target"] = images_for(parts[0].model, target, seed).train_images
    model = brickwork.assemble(parts, options=options, **read)
    run.save(model, out, "assemble", data=data and str(data), target=target and str(target))
    about = description(model)
    return Report.saved(out, {"bricks": bricks, **about}, f"{counted(len(bricks), 'brick')} {summary_of(about)}")


def increment(
    model: p.ModelFolder,
    bricks: p.BrickFolders,
    *,
    out: p.OutFolder,
    data: p.OptionalData = None,
    target: Target = None,
    seed: p.Seed = 0,
    run: p.Running,
    options: AssembleOptions,
) -> Report:
    """Give a model folder the classes of bricks, without training.

    --data, images of the model's own data, calibrates its logits; labels are not used.

    brickwork increment a b89 --data digits:A --out a89
    """
    from brickwork.bricks.description import description, summary_of
    from brickwork.bricks.joinable import check_folders, check_target

    check_target(options, target)
    by_source = options.calibrate in ("source", "classwise")
    if by_source and data is None:
        raise RequestError(f"`calibrate` {options.calibrate} needs `data`, images of the model's own data.")
    if data is not None and not by_source and options.calibrate != "auto":
        raise RequestError(f"`data` is not used by `calibrate` {options.calibrate}; leave one of them out.")
    check_folders(bricks, model)
    whole = run.load(model)
    parts = [brickwork.Brick.load(brick, arch=run.arch, device=run.where) for brick in bricks]
    read = {"data": images_for(whole, data, seed), "target": images_for(whole, target, seed)}
    shown = {name: images.train_images for name, images in read.items() if images is not None}
    grown = brickwork.increment(whole, parts, options=options, **shown)
    facts = {"data": data and str(data), "target": target and str(target), "source": hash_of(model)}
    run.save(grown, out, "increment", **facts)
    about, text = description(grown), f"{model} and {', '.join(map(str, bricks))}"
    return Report.saved(out, {"model": model, "bricks": bricks, **about}, f"{text} {summary_of(about)}")


def routes(
    model: p.ModelFolder,
    *,
    data: p.Data,
    out: p.OutPicture,
    classes: Annotated[
        str | None, Setting("Classes of the model, by number or name: 3,8 or dog,bird.", default_text="all in the data")
    ] = None,
    run: p.Running,
    options: RoutesOptions,
) -> Report:
    """Draw which channels decide for which class.

    brickwork routes a --classes 3,8 --data digits --out routes.html
    """
    from brickwork.report import draw_routes

    check_classes(model, classes)
    network = run.load(model)
    result = brickwork.routes(network, images_for(network, data, options.seed), classes, options=options)
    run.draw(draw_routes(result), out)
    return Report.saved(out, {"model": model, "data": data, **result.to_dict()}, result)
