"""`brickwork transfer MODEL --data … --out DIR`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from brickwork.cli.brick_options import (
    AttributionOption,
    AugmentOption,
    BatchSizeOption,
    DataOption,
    EpochsOption,
    LrOption,
    ModelArgument,
    OptimizerOption,
    ScoredOption,
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


class What(StrEnum):
    """What is trained."""

    independent = "independent"
    all = "all"


def command(
    folder: ModelArgument,
    data: DataOption,
    out: OutOption,
    what: Annotated[
        What, typer.Option(help="Train channels on no class's route (independent), or everything (all).")
    ] = What.independent,
    routes: Annotated[
        str | None, typer.Option(help="Images the model knows, to find the routes on. Default: --data.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="On a class's route is what scores above this × the layer's mean. Default: 1.")
    ] = None,
    attribution: AttributionOption = "frat",
    scored: ScoredOption = 1000,
    epochs: EpochsOption = 5,
    lr: LrOption = 0.01,
    batch_size: BatchSizeOption = 128,
    optimizer: OptimizerOption = "sgd",
    augment: AugmentOption = "none",
    arch: ArchOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Train a model on images of another kind, holding what belongs to a class; accuracy before and after.

    brickwork transfer a --data grey-photos --routes photos --what independent --out a-grey
    """
    from brickwork import data as images_of
    from brickwork import store
    from brickwork.atomic import check_output
    from brickwork.bricks import transfer
    from brickwork.bricks.routes import check_options
    from brickwork.cli.brick_folders import accuracy, before_and_after, check_training, images_for, save
    from brickwork.devices import pick

    # Everything that can be refused is refused here, before a tensor or an image is read.
    check_output(out, force=force)
    where = pick(str(device))
    if what == What.all and (routes is not None or threshold is not None):
        raise RequestError("--routes and --threshold find what to hold, and --what all holds nothing.")
    check_options(attribution=attribution, threshold=1.0 if threshold is None else threshold, scored=scored, seed=seed)
    config = store.read_config(folder)
    training = check_training(
        config.arch, epochs=epochs, lr=lr, batch_size=batch_size, optimizer=optimizer, augment=augment, seed=seed
    )
    spec = images_of.check(data)
    known = images_of.check(routes) if routes is not None else None

    model = store.load(folder, arch=arch, device=where)
    images = images_for(model, spec, seed)
    options: dict[str, Any] = {} if threshold is None else {"threshold": threshold}
    found = transfer(
        model,
        images,
        what=str(what),
        routes=images_for(model, known, seed) if known is not None else None,
        attribution=attribution,
        scored=scored,
        **options,
        **training,
    )
    judged = {"before": accuracy(model, images), "after": accuracy(found.model, images)}
    facts = {
        "data": str(spec),
        "source": config.weights.state_hash,
        "what": str(what),
        "test_accuracy": judged["after"],
    }
    save(found.model, out, force=force, command="transfer", **facts)
    report = {"folder": str(out), "model": str(folder), "data": str(spec), "what": str(what), **judged}
    text = f"{found.training}\n{found.free:.1%} of the parameters trained; {before_and_after(**judged)}\nsaved in {out}"
    emit({**report, **found.to_dict()}, text, as_json=as_json)
