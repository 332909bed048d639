"""`brickwork treat MODEL --data … --out DIR`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from brickwork.cli.brick_options import (
    AttributionOption,
    AugmentOption,
    BatchSizeOption,
    DataOption,
    DepthOption,
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


def command(
    folder: ModelArgument,
    data: DataOption,
    out: OutOption,
    rule: Annotated[
        str,
        typer.Option(
            metavar="route|doctor|plain",
            help="What is held to the routes: every layer (paper 2), the last convolution (Model Doctor), nothing.",
        ),
    ] = "route",
    strength: Annotated[float | None, typer.Option(help="Weight of the constraint. Default: 0.1.")] = None,
    threshold: Annotated[
        float, typer.Option(help="On a class's route is what scores above this × the layer's mean.")
    ] = 1.0,
    depth: DepthOption = "2",
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
    """Fine-tune a model with the route of each class as a constraint; accuracy before and after.

    brickwork treat a --data digits:A --rule route --epochs 5 --out a-treated
    """
    from brickwork import data as images_of
    from brickwork import store
    from brickwork.atomic import check_output
    from brickwork.bricks import treat
    from brickwork.bricks.routes import check_options
    from brickwork.bricks.treatment import RULES
    from brickwork.cli.brick_folders import accuracy, before_and_after, check_numbers, check_training, images_for, save
    from brickwork.devices import pick
    from brickwork.errors import RequestError, UnknownName

    # Everything that can be refused is refused here, before a tensor or an image is read.
    check_output(out, force=force)
    where = pick(str(device))
    if rule not in RULES:
        raise UnknownName("rule of treatment", rule, RULES)
    if strength is not None and RULES[rule].layers == "none":
        raise RequestError(f"--strength is not used by --rule {rule}; leave it out.")
    check_numbers(strength=strength)
    check_options(attribution=attribution, threshold=threshold, scored=scored, seed=seed)
    config = store.read_config(folder)
    training = check_training(
        config.arch, epochs=epochs, lr=lr, batch_size=batch_size, optimizer=optimizer, augment=augment, seed=seed
    )
    spec = images_of.check(data)

    model = store.load(folder, arch=arch, device=where)
    images = images_for(model, spec, seed)
    options: dict[str, Any] = {} if strength is None else {"strength": strength}
    found = treat(
        model,
        images,
        rule=rule,
        threshold=threshold,
        depth=depth,
        attribution=attribution,
        scored=scored,
        **options,
        **training,
    )
    judged = {"before": accuracy(model, images), "after": accuracy(found.model, images)}
    facts = {"data": str(spec), "source": config.weights.state_hash, "rule": rule, "test_accuracy": judged["after"]}
    save(found.model, out, force=force, command="treat", **facts)
    report = {"folder": str(out), "model": str(folder), "data": str(spec), **judged, **found.to_dict()}
    text = f"{found.training}\n{rule}: {before_and_after(**judged)}\nsaved in {out}"
    emit(report, text, as_json=as_json)
