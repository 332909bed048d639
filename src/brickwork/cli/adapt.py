"""`brickwork adapt MODEL --known … --new … --out DIR`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from brickwork.cli.brick_options import ModelArgument, RidgeOption
from brickwork.cli.common import (
    ArchOption,
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    OutOption,
    SeedOption,
    emit,
)
from brickwork.errors import BadData, RequestError
from brickwork.words import counted


def command(
    folder: ModelArgument,
    known: Annotated[
        str, typer.Option(help="Images of the kind the model knows: a folder, an .npz, …", show_default=False)
    ],
    new: Annotated[str, typer.Option(help="The same things, image by image, of the new kind.", show_default=False)],
    out: OutOption,
    images: Annotated[int, typer.Option(help="Pairs of training images to match on, at most.")] = 2000,
    ridge: RidgeOption = 1e-3,
    arch: ArchOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Match a model to images of another kind on unlabelled pairs; nothing is trained.

    brickwork adapt a --known photos --new grey-photos --out a-grey
    """
    from brickwork import data as images_of
    from brickwork import store
    from brickwork.atomic import check_output
    from brickwork.bricks import adapt
    from brickwork.cli.brick_folders import accuracy, before_and_after, check_numbers, images_for, save, some_of
    from brickwork.devices import pick

    # Everything that can be refused is refused here, before a tensor or an image is read.
    check_output(out, force=force)
    where = pick(str(device))
    check_numbers(ridge=ridge, seed=seed)
    if images < 1:
        raise RequestError(f"images is {images}; it must be 1 or more.")
    specs = [images_of.check(known), images_of.check(new)]
    config = store.read_config(folder)

    model = store.load(folder, arch=arch, device=where)
    pair = [images_for(model, spec, seed) for spec in specs]
    _check_pairs(*pair)
    found = adapt(model, *(some_of(p.train_images, images, seed) for p in pair), ridge=ridge, seed=seed)
    judged = {"before": accuracy(model, pair[1]), "after": accuracy(found, pair[1])}
    count = min(images, len(pair[0].train_images))
    facts = {"known": str(specs[0]), "new": str(specs[1]), "images": count}
    save(
        found,
        out,
        force=force,
        command="adapt",
        **facts,
        source=config.weights.state_hash,
        test_accuracy=judged["after"],
    )
    report = {"folder": str(out), "model": str(folder), **facts, **judged}
    emit(report, f"matched on {counted(count, 'pair')}; {before_and_after(**judged)}\nsaved in {out}", as_json=as_json)


def _check_pairs(known: Any, new: Any) -> None:
    """As many images, and of the same class wherever both name one."""
    counts = [len(images.train_images) for images in (known, new)]
    if counts[0] != counts[1]:
        raise BadData(
            f"{known.name} has {counts[0]} training images and {new.name} {counts[1]}; they must come in pairs."
        )
    if set(known.classes) != set(new.classes):
        return
    for k, (a, b) in enumerate(zip(known.train_labels, new.train_labels, strict=True)):
        if known.classes[a] != new.classes[b]:
            raise BadData(
                f"training image {k} is {known.classes[a]!r} in {known.name} and {new.classes[b]!r} in {new.name}; "
                "they must come in pairs, in the same order."
            )
