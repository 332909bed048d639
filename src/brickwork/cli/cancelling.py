"""`brickwork cancel BASE --data FIRST --data SECOND --out cancellation.html`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from brickwork.algebra.options import CancelOptions
from brickwork.cli.command import Argument, Report
from brickwork.cli.folders import some_of
from brickwork.cli.parameters import Arch, ArchArguments, Device, Force, ImageSize, OutPicture, data_option, optional
from brickwork.cli.printing import log, typed_line
from brickwork.errors import BadFile, RequestError, UnknownName
from brickwork.options import Setting
from brickwork.words import counted

if TYPE_CHECKING:
    from torch import nn

    from brickwork.data import ImageData
    from brickwork.origin import Origin


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
    arch: Arch = None,
    device: Device = "auto",
    force: Force = False,
    options: CancelOptions,
) -> Report:
    """Measure why tasks trained in sequence cancel each other.

    Training in sequence is compared with assigning what was learned, θ₀ + g₁ + g₂ (paper 1, appendix B).

    Measures the conflict of the two gradients and the paper's second-order term, layer by layer, and how far the term
    predicts the real difference of the two networks, for every learning rate and number of steps.

    brickwork cancel lenet --data digits:A --data digits:B --lr 1e-6,1e-3 --steps 1,5 --out cancellation.html
    """
    from brickwork import data as data_sets

    if len(data) != 2:
        raise RequestError(f"`data` is given {len(data)} times; give it twice, in the order of training.")
    shape, make = _start(base, arg or {}, arch, size, options.seed)

    from brickwork.algebra import cancel
    from brickwork.algebra.cancellation import count_steps
    from brickwork.report.cancellation import draw_cancellation

    sets = [data_sets.load(spec, seed=options.seed, **shape) for spec in data]
    model = make(max(len(one.classes) for one in sets)).to(device)
    count = counted(count_steps(options.lr, options.steps), "step")
    log(f"{count} of gradient descent from {base}, in float64 …")
    result = cancel(model, *(_some(one, images, options.seed) for one in sets), options=options)
    if out is not None:
        replace(draw_cancellation(result), command=typed_line()).save(out, force=force)
    report = {
        "base": base,
        "file": str(out) if out else None,
        "seed": options.seed,
        "bn": options.bn,
        **result.to_dict(),
    }
    return Report(report, str(result) + (f"\nsaved in {out}" if out else ""))


def _start(
    base: str, args: dict[str, Any], arch: str | None, size: int | None, seed: int
) -> tuple[dict[str, Any], Callable[[int], nn.Module]]:
    """How images must be shaped, and what makes the network once it is known how many classes there are."""
    from brickwork import store, zoo

    if Path(base).is_dir():
        if args or size:
            which = "`arg`" if args else "`size`"
            raise RequestError(f"{which} is for architectures; a model folder records its own. Leave it out.")
        origin = store.read_config(base).origin()
        return _shape(origin, None), lambda _: store.load(base, arch=arch)
    if "/" in base and ":" not in base:
        raise BadFile(f"{base} is not a folder; cancel takes a model folder or an architecture.")
    if base not in zoo.REGISTRY and ":" not in base:
        raise UnknownName("model folder or architecture", base, zoo.names())
    if arch is not None or "num_classes" in args:
        why = "`arch` is for a folder" if arch is not None else "num_classes comes from the data"
        raise RequestError(f"{why}; leave it out.")
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
    images, labels = (some_of(part, count, seed) for part in (one.train_images, one.train_labels))
    return replace(one, train_images=images, train_labels=labels, train_masks=None)
