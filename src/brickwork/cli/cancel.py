"""`brickwork cancel BASE --data FIRST --data SECOND --out cancellation.html`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brickwork.cli.common import (
    ArchOption,
    ArgsOption,
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    SeedOption,
    emit,
    log,
    parse_args,
    typed_line,
)
from brickwork.cli.sweep import numbers
from brickwork.errors import BadFile, RequestError, UnknownName
from brickwork.words import counted

if TYPE_CHECKING:
    from torch import nn

    from brickwork.data import ImageData
    from brickwork.origin import Origin


class Norms(StrEnum):
    """What batch norms normalise by."""

    batch = "batch"
    keep = "keep"


def command(
    base: Annotated[
        str,
        typer.Argument(
            metavar="BASE", help="Where training starts: a model folder, or an architecture, new with --seed."
        ),
    ],
    data: Annotated[
        list[str], typer.Option(help="Training images; twice, in the order of training.", show_default=False)
    ],
    lr: Annotated[str, typer.Option(help="Learning rates, 0.001,0.01.")] = "0.001,0.01",
    steps: Annotated[str, typer.Option(help="Steps of gradient descent on each task, 1,2,5.")] = "1,2,5,10",
    images: Annotated[int, typer.Option(help="Images of each task, at most.")] = 200,
    batch_size: Annotated[int | None, typer.Option(help="Images in one step.", show_default="all of them")] = None,
    bn: Annotated[
        Norms, typer.Option(help="Batch norms use the batch, as in training, or keep statistics.")
    ] = Norms.batch,
    out: Annotated[
        Path | None, typer.Option("--out", help="Picture to write: .html, .svg or .png.", show_default=False)
    ] = None,
    size: Annotated[int | None, typer.Option(min=1, help="Height and width of the images; default: BASE's.")] = None,
    arg: ArgsOption = None,
    arch: ArchOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Why tasks cancel: training in sequence against assigning what was learned, θ₀ + g₁ + g₂ (paper 1, appendix B).

    Measures the conflict of the two gradients and the paper's second-order term, layer by layer, and how far the term
    predicts the real difference of the two networks, for every learning rate and number of steps.

    brickwork cancel lenet --data digits:A --data digits:B --lr 1e-6,1e-3 --steps 1,5 --out cancellation.html
    """
    from brickwork import data as images_of
    from brickwork.algebra.cancellation_data import check_request
    from brickwork.atomic import check_file
    from brickwork.devices import pick
    from brickwork.report.drawing import check_suffix

    # Everything that can be refused is refused here, before a tensor or an image is read.
    if out is not None:
        check_suffix(out)
        check_file(out, force=force)
    where = pick(str(device))
    rates, counts = check_request(numbers(lr, "lr"), _counts(steps), batch_size, str(bn), seed)
    if images < 1:
        raise RequestError(f"images is {images}; it must be 1 or more.")
    if len(data) != 2:
        raise RequestError(f"--data is given {len(data)} times; give it twice, in the order of training.")
    specs = [images_of.check(spec, size=size) for spec in data]
    fit, make = _start(base, parse_args(arg), arch, size, seed)

    from brickwork.algebra import cancel
    from brickwork.algebra.cancellation import count_steps
    from brickwork.report.cancellation import draw_cancellation

    sets = [images_of.load(spec, seed=seed, **fit) for spec in specs]
    model = make(max(len(one.classes) for one in sets)).to(where)
    log(f"{counted(count_steps(rates, counts), 'step')} of gradient descent from {base}, in float64 …")
    found = cancel(
        model,
        *(_some(one, images, seed) for one in sets),
        lr=rates,
        steps=counts,
        batch_size=batch_size,
        bn=str(bn),
        seed=seed,
        progress=not as_json,
    )
    if out is not None:
        replace(draw_cancellation(found), command=typed_line()).save(out, force=force)
    report = {"base": base, "file": str(out) if out else None, "seed": seed, "bn": str(bn), **found.to_dict()}
    emit(report, str(found) + (f"\nsaved in {out}" if out else ""), as_json=as_json)


def _counts(text: str) -> list[int]:
    """`1,2,5` as numbers of steps."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(f"steps is {text!r}; it must be whole numbers from 1 up, as in 1,2,5.") from None


def _start(
    base: str, args: dict[str, Any], arch: str | None, size: int | None, seed: int
) -> tuple[dict[str, Any], Callable[[int], nn.Module]]:
    """How images must be shaped, and what makes the network once it is known how many classes there are."""
    from brickwork import store, zoo

    if Path(base).is_dir():
        if args or size:
            told = "--arg" if args else "--size"
            raise RequestError(f"{told} is for architectures; a model folder records its own. Leave it out.")
        origin = store.read_config(base).origin()
        return _shape(origin, None), lambda _: store.load(base, arch=arch)
    if "/" in base and ":" not in base:
        raise BadFile(f"{base} is not a folder; cancel takes a model folder or an architecture.")
    if base not in zoo.REGISTRY and ":" not in base:
        raise UnknownName("model folder or architecture", base, zoo.names())
    if arch is not None or "num_classes" in args:
        told = "--arch is for a folder" if arch is not None else "num_classes comes from the data"
        raise RequestError(f"{told}; leave it out.")
    import torch

    from brickwork.origin import origin_of

    if size is not None and base in zoo.REGISTRY and "image_size" in zoo.REGISTRY[base].defaults:
        args = {"image_size": size, **args}
    with torch.device("meta"):
        origin = origin_of(zoo.build(base, **args))
    return _shape(origin, size), lambda classes: zoo.build(base, seed=seed, **args, num_classes=classes)


def _shape(origin: Origin, size: int | None) -> dict[str, Any]:
    if origin.preprocessing is not None:
        return {"size": origin.preprocessing.size, "channels": origin.preprocessing.channels}
    channels, height, width = origin.input_shape or (3, 32, 32)
    return {"size": size or (height, width), "channels": channels}


def _some(one: ImageData, count: int, seed: int) -> ImageData:
    """At most so many training images, drawn with the seed."""
    from brickwork.cli.brick_folders import some_of

    images, labels = (some_of(part, count, seed) for part in (one.train_images, one.train_labels))
    return replace(one, train_images=images, train_labels=labels, train_masks=None)
