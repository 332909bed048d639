"""`brickwork eval FOLDER DATA`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from brickwork.cli.common import ArchOption, DebugOption, Device, DeviceOption, JsonOption, SeedOption, emit


class Split(StrEnum):
    """Which images to evaluate on."""

    test = "test"
    train = "train"


def command(
    folder: Annotated[Path, typer.Argument(help="A model folder.")],
    data: Annotated[str, typer.Argument(help="digits:A, cifar10@100, a folder, an .npz, hfds:NAME, …")],
    split: Annotated[Split, typer.Option(help="Which images of the data set; @N limits these.")] = Split.test,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at a time.")] = 512,
    arch: ArchOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Evaluate a model folder on a data set, whose classes are found among the model's by name.

    brickwork eval a digits:A --json
    """
    from brickwork import data as images_of
    from brickwork import store
    from brickwork.devices import pick
    from brickwork.evaluation import evaluate_data
    from brickwork.origin import origin_of

    where = pick(str(device))
    store.read_config(folder)
    spec = images_of.check(data, split=str(split))
    model = store.load(folder, arch=arch, device=where)
    images = images_of.load_for(origin_of(model).preprocessing, spec, seed=seed, split=str(split))
    found = evaluate_data(model, images, split=str(split), batch_size=batch_size)
    report = {"folder": str(folder), "data": str(spec), "split": str(split), **found.to_dict()}
    emit(report, str(found), as_json=as_json)
