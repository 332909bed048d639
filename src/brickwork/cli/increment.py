"""`brickwork increment MODEL BRICK… --out DIR`."""

from __future__ import annotations

from typing import Annotated

import typer

from brickwork.cli.brick_options import (
    BricksArgument,
    Calibrate,
    CalibrateOption,
    How,
    HowOption,
    ModelArgument,
    TargetOption,
)
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
from brickwork.errors import RequestError


def command(
    folder: ModelArgument,
    bricks: BricksArgument,
    out: OutOption,
    data: Annotated[
        str | None, typer.Option(help="Images of the model's own data, to calibrate by; labels are not used.")
    ] = None,
    calibrate: CalibrateOption = Calibrate.auto,
    target: TargetOption = None,
    how: HowOption = How.auto,
    arch: ArchOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Give a model more classes, those of bricks cut from others; nothing is trained.

    brickwork increment a b89 --data digits:A --out a89
    """
    from brickwork import data as images_of
    from brickwork import store
    from brickwork.atomic import check_output
    from brickwork.cli.assemble import joined, told
    from brickwork.cli.brick_folders import check_bricks, check_calibration, check_numbers, images_for
    from brickwork.devices import pick

    # Everything that can be refused is refused here, before a tensor or an image is read.
    check_output(out, force=force)
    where = pick(str(device))
    check_numbers(seed=seed)
    check_calibration(calibrate, target)
    _check_data(calibrate, data)
    check_bricks(bricks, folder)
    if data is not None:
        images_of.check(data)
    from brickwork.bricks import Brick, increment

    model = store.load(folder, arch=arch, device=where)
    parts = [Brick.load(brick, arch=arch, device=where) for brick in bricks]
    own = images_for(model, data, seed).train_images if data is not None else None
    wanted = images_for(model, target, seed).train_images if target is not None else None
    grown = increment(model, parts, images=own, calibrate=str(calibrate), target=wanted, how=str(how))
    facts = {"data": data, "target": target, "source": store.read_config(folder).weights.state_hash}
    store.save(
        grown,
        out,
        force=force,
        provenance={"command": "increment", **{name: value for name, value in facts.items() if value}},
    )
    report = {"folder": str(out), "model": str(folder), "bricks": [str(b) for b in bricks], **joined(grown)}
    emit(report, f"{folder} and {', '.join(map(str, bricks))} {told(report)}; saved in {out}", as_json=as_json)


def _check_data(calibrate: Calibrate, data: str | None) -> None:
    by_source = calibrate in (Calibrate.source, Calibrate.classwise)
    if by_source and data is None:
        raise RequestError(f"--calibrate {calibrate} needs --data, images of the model's own data.")
    if data is not None and not by_source and calibrate != Calibrate.auto:
        raise RequestError(f"--data is not used by --calibrate {calibrate}; leave one of them out.")
