"""The options that several verbs about bricks have in common: each is worded once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Of(StrEnum):
    """What a budget counts."""

    parameters = "parameters"
    macs = "macs"


class Repair(StrEnum):
    """How a cut part is repaired, without labels."""

    match = "match"
    bn = "bn"
    none = "none"


class Calibrate(StrEnum):
    """How the logits of the parts are brought to one scale."""

    auto = "auto"
    none = "none"
    source = "source"
    classwise = "classwise"
    target = "target"


class How(StrEnum):
    """How the parts are joined."""

    auto = "auto"
    blocks = "blocks"
    branches = "branches"


ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")]
BricksArgument = Annotated[
    list[Path], typer.Argument(metavar="BRICK…", help="Folders written by disassemble or compress.")
]
DataOption = Annotated[
    str, typer.Option(help="Training images: digits, cifar10:A, a folder, an .npz, …", show_default=False)
]

# how channels are scored
# attribution.REGISTRY holds these names, but reading it would import torch; a test compares the two
AttributionOption = Annotated[
    str, typer.Option(help="Score of a channel: taylor, frat, frat-negative, frat-absolute, contribution.")
]
ScoredOption = Annotated[int, typer.Option(help="Images of the classes to score channels on, at most.")]
DepthOption = Annotated[
    str | None, typer.Option(help="From the last layer down to this one only, by name, or number from the input.")
]
OutputOption = Annotated[str | None, typer.Option(help="Which output is the logits, where there are several.")]

# how much stays, and how it is repaired
KeepOption = Annotated[float | None, typer.Option(help="Keep this share of the channels of every layer.")]
BudgetOption = Annotated[float | None, typer.Option(help="Keep at most this share of --of.")]
OfOption = Annotated[Of, typer.Option(help="What a budget counts.")]
ThresholdOption = Annotated[
    float | None, typer.Option(help="The paper's: keep what scores above this × the layer's mean.")
]
ToleranceOption = Annotated[
    float, typer.Option(help="Without the three above: the smallest part that loses at most this accuracy.")
]
RepairOption = Annotated[Repair, typer.Option(help="How to repair the part, without labels.")]
ImagesOption = Annotated[int, typer.Option(help="Images to repair on, at most.")]
RidgeOption = Annotated[float, typer.Option(help="Of the repair.")]
RoundOption = Annotated[int | None, typer.Option(help="Widths are a multiple of this.")]

# how parts are joined
CalibrateOption = Annotated[
    Calibrate,
    typer.Option(
        help="Logits on one scale: by part (source) or class by class (classwise), on each one's own data, or on "
        "--target images (target); auto: source where it can be done."
    ),
]
TargetOption = Annotated[str | None, typer.Option(help="Unlabelled images for --calibrate target: the training split.")]
HowOption = Annotated[How, typer.Option(help="Interleave layers (blocks) or run parts whole (branches).")]

# training
EpochsOption = Annotated[int, typer.Option(help="Rounds over the images.")]
LrOption = Annotated[float, typer.Option(help="Peak learning rate.")]
BatchSizeOption = Annotated[int, typer.Option(help="Images at a time.")]
OptimizerOption = Annotated[str, typer.Option(help="sgd, adam or adamw.")]
AugmentOption = Annotated[str, typer.Option(help="none, flip, crop or crop+flip.")]
