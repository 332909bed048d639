"""`brickwork assemble BRICK… --out MODEL`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brickwork.cli.brick_options import BricksArgument, Calibrate, CalibrateOption, How, HowOption, TargetOption
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
from brickwork.errors import BadModel, RequestError

if TYPE_CHECKING:
    from torch import nn


class Shared(StrEnum):
    """What becomes of bricks cut from one and the same network."""

    auto = "auto"
    union = "union"
    apart = "apart"


def command(
    bricks: BricksArgument,
    out: OutOption,
    calibrate: CalibrateOption = Calibrate.auto,
    target: TargetOption = None,
    shared: Annotated[
        Shared, typer.Option(help="Bricks of one network: channels they share once (union), or side by side (apart).")
    ] = Shared.auto,
    source: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="The network the bricks were cut from, to unite them.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="With --source: unlabelled images of its data, to repair the union on.")
    ] = None,
    images: Annotated[int, typer.Option(help="Images to repair the union on, at most.")] = 3000,
    how: HowOption = How.auto,
    arch: ArchOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Join bricks into one model, whose classes are those of all bricks, in this order.

    brickwork assemble a012 b34 --out ab
    """
    from brickwork import data as images_of
    from brickwork import store
    from brickwork.atomic import check_output
    from brickwork.cli.brick_folders import check_bricks, check_calibration, check_numbers
    from brickwork.devices import pick

    # Everything that can be refused is refused here, before a tensor or an image is read.
    check_output(out, force=force)
    where = pick(str(device))
    check_numbers(seed=seed)
    check_calibration(calibrate, target)
    check_bricks(bricks)
    _check_source(bricks, shared, source, data, images)
    if data is not None:
        images_of.check(data)
    from brickwork.bricks import Brick, assemble
    from brickwork.cli.brick_folders import images_for, some_of

    parts = [Brick.load(folder, arch=arch, device=where) for folder in bricks]
    given: dict[str, Any] = {}
    if source is not None:
        given["source"] = store.load(source, arch=arch, device=where)
        if data is not None:
            given["images"] = some_of(images_for(given["source"], data, seed).train_images, images, seed)
    if target is not None:
        given["target"] = images_for(parts[0].model, target, seed).train_images
    model = assemble(parts, calibrate=str(calibrate), shared=str(shared), how=str(how), **given)
    facts = {"data": data, "target": target}
    store.save(
        model,
        out,
        force=force,
        provenance={"command": "assemble", **{name: value for name, value in facts.items() if value}},
    )
    report = {"folder": str(out), "bricks": [str(b) for b in bricks], **joined(model)}
    text = f"{len(bricks)} {'bricks' if len(bricks) > 1 else 'brick'} {told(report)}; saved in {out}"
    emit(report, text, as_json=as_json)


def _check_source(bricks: Sequence[Path], shared: Shared, source: Path | None, data: str | None, images: int) -> None:
    """Whether --source and --data would be used at all."""
    from brickwork import store
    from brickwork.bricks.brick import PROVENANCE

    if source is None:
        if data is not None:
            raise RequestError("--data repairs the union of bricks of --source; give both, or --source alone.")
        return
    if shared == Shared.apart:
        raise RequestError("--source is there to unite bricks, and --shared apart keeps them apart; give one.")
    if images < 1:
        raise RequestError(f"images is {images}; it must be 1 or more.")
    hashed = store.read_config(source).weights.state_hash
    facts = [store.read_config(folder).provenance[PROVENANCE] for folder in bricks]
    own = [brick for brick in facts if brick.get("source") == hashed]
    if len(own) < 2:
        raise BadModel(
            f"{'one brick was' if own else 'none of the bricks was'} cut from {source}; to be united, two must be."
        )
    repaired = any((brick.get("settings") or {}).get("repair") != "none" for brick in own)
    if repaired and data is None and shared == Shared.auto:
        raise RequestError(
            f"bricks of {source} were repaired, so their union must be too; give --data, images of its training data."
        )


def joined(model: nn.Module) -> dict[str, Any]:
    """What a report says of a network that was put together."""
    from brickwork.origin import origin_of
    from brickwork.zoo.summary import parameters_of

    origin = origin_of(model)
    facts = origin.provenance["assemble"]
    return {
        "classes": list(origin.classes or ()),
        "parts": len(facts["bricks"]),
        "how": origin.steps[0]["how"] if len(facts["bricks"]) > 1 else "alone",
        "united": facts["united"],
        "calibrate": facts["calibrate"],
        "parameters": parameters_of(model),
    }


def told(report: dict[str, Any]) -> str:
    """The same for people."""
    ways = {"alone": "as one part", "blocks": "joined as blocks", "branches": "joined as branches"}
    united = f" ({report['united'] + 1} of one network united)" if report["united"] else ""
    return (
        f"{ways[report['how']]}{united}, calibrated by {report['calibrate']}: {report['parameters']:,} parameters, "
        f"classes {', '.join(report['classes'])}"
    ).replace(", calibrated by none", "")
