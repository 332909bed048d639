"""`brickwork compress MODEL --data … --out BRICK`."""

from __future__ import annotations

from brickwork.cli.brick_options import (
    AttributionOption,
    BudgetOption,
    DataOption,
    DepthOption,
    ImagesOption,
    KeepOption,
    ModelArgument,
    Of,
    OfOption,
    OutputOption,
    Repair,
    RepairOption,
    RidgeOption,
    RoundOption,
    ScoredOption,
    ThresholdOption,
    ToleranceOption,
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
)
from brickwork.cli.disassemble import cut


def command(
    folder: ModelArgument,
    data: DataOption,
    out: OutOption,
    attribution: AttributionOption = "taylor",
    keep: KeepOption = None,
    budget: BudgetOption = None,
    of: OfOption = Of.parameters,
    threshold: ThresholdOption = None,
    tolerance: ToleranceOption = 0.01,
    depth: DepthOption = None,
    repair: RepairOption = Repair.match,
    images: ImagesOption = 3000,
    scored: ScoredOption = 3000,
    ridge: RidgeOption = 1e-4,
    round_to: RoundOption = None,
    output: OutputOption = None,
    arch: ArchOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Drop what no class needs and save what is left, as a brick of all classes.

    brickwork compress a --data digits:A --budget 0.4 --out small
    """
    cut(
        "compress",
        folder,
        None,
        data,
        out,
        depth=depth,
        output=output,
        arch=arch,
        device=device,
        force=force,
        as_json=as_json,
        attribution=attribution,
        keep=keep,
        budget=budget,
        of=str(of),
        threshold=threshold,
        tolerance=tolerance,
        repair=str(repair),
        images=images,
        scored=scored,
        ridge=ridge,
        round_to=round_to,
        seed=seed,
    )
