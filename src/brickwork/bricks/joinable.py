"""Whether bricks can be joined, told by what their folders say of them: before a tensor is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from brickwork.bricks.brick import PROVENANCE, options_of
from brickwork.bricks.options import AssembleOptions
from brickwork.errors import BadFile, BadModel, RequestError
from brickwork.store import read_config
from brickwork.words import sides


def check_target(options: AssembleOptions, target: Any) -> None:
    """Target images and the calibration that needs them come together."""
    if (options.calibrate == "target") != (target is not None):
        raise RequestError("`target` images go with `calibrate` target, and it needs some; give both or neither.")


def refuse_overlap(parts: Iterable[tuple[str, Sequence[str], Sequence[int] | None]]) -> None:
    """Parts (name, classes, shape of an input) must have classes of their own, and inputs of one size."""
    owner: dict[str, str] = {}
    shapes: dict[tuple[int, ...], str] = {}
    for part, classes, shape in parts:
        for name in classes:
            if name in owner:
                raise RequestError(
                    f"class {name!r} is in {owner[name]} and in {part}; cut bricks of different classes."
                )
            owner[name] = part
        if shape is not None:
            shapes.setdefault(tuple(shape), part)
    if len(shapes) > 1:
        (one, a), (two, b) = list(shapes.items())[:2]
        raise BadModel(f"{a} takes inputs of {sides(one)} and {b} of {sides(two)}; bricks must share one input size.")


def check_folders(folders: Sequence[Path], whole: Path | None = None) -> None:
    """Refuse folders that cannot be joined (to the model folder `whole`)."""
    configs = {folder: read_config(folder) for folder in folders}
    for folder, config in configs.items():
        if not isinstance(config.provenance.get(PROVENANCE), dict):
            raise BadFile(f"{folder} is a model, not a brick; cut one out of it with: brickwork disassemble {folder}")
    every = [*([(whole, read_config(whole))] if whole is not None else []), *((f, configs[f]) for f in folders)]
    refuse_overlap((str(folder), config.classes or (), config.input_shape) for folder, config in every)


def check_source(folders: Sequence[Path], shared: str, source: Path | None, data: Any) -> None:
    """Whether `source`, which bricks were cut from, and `data`, to repair their union, would be used at all."""
    if source is None:
        if data is not None:
            raise RequestError("`data` repairs the union of bricks of `source`; give both, or `source` alone.")
        return
    if shared == "apart":
        raise RequestError("`source` is there to unite bricks, and `shared` apart keeps them apart; give one.")
    hashed = read_config(source).weights.state_hash
    facts = [read_config(folder).provenance[PROVENANCE] for folder in folders]
    own = [brick for brick in facts if brick.get("source") == hashed]
    if len(own) < 2:
        count = "one brick was" if own else "none of the bricks was"
        raise BadModel(f"{count} cut from {source}; to be united, two must be.")
    repaired = any(options_of(brick)[0].repair != "none" for brick in own)
    if repaired and data is None and shared == "auto":
        raise RequestError(
            f"bricks of {source} were repaired, so their union must be too; give `data`, images of its training data."
        )
