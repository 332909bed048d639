"""Two LeNets from one start, each on its own half of the digits: what bricks are cut from, and what is added up."""

from torch import nn

from brickwork.copying import copy_module
from brickwork.tour.stage import Stage, as_options


def half(stage: Stage, name: str) -> nn.Module:
    """The network a (digits 0 to 4) or b (5 to 9), or their start; made when first asked for."""
    if name not in stage.nets:
        if name == "start":
            stage.nets[name] = stage.start(name, "lenet", 5).eval().to(stage.device)
        else:
            stage.nets[name] = stage.trained(copy_module(half(stage, "start")), stage.digits(f"digits:{name.upper()}"))
            stage.save(stage.nets[name], name, f"digits:{name.upper()}")
    return stage.nets[name]


def half_command(stage: Stage, name: str) -> str:
    """The command that trains it."""
    options = f"{as_options(stage.training)} {stage.seeded} --out {name}"
    return stage.command(f"train @start digits:{name.upper()} {options}")
