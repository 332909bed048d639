"""`brickwork lora bake`, `merge` and `extract`: LoRA adapters as peft writes them."""

from pathlib import Path
from typing import Annotated

import brickwork
from brickwork.cli.command import Argument, Result, make_group
from brickwork.cli.parameters import Force, out_folder
from brickwork.lora.options import LoraBakeOptions, LoraExtractOptions, LoraMergeOptions

Base = Annotated[Path, Argument("Folder of transformers that the adapter was trained on.", "BASE")]
Out = out_folder("Folder to write.", "brickwork.json", "config.json", "model.safetensors")


def bake(
    base: Base,
    adapter: Annotated[Path, Argument("Folder of the adapter.", "ADAPTER")],
    *,
    out: Out,
    force: Force = False,
    options: LoraBakeOptions,
) -> Result:
    """Put an adapter into the weights of its base.

    brickwork lora bake llama adapter --out llama-baked
    """
    return brickwork.lora.bake(base, adapter, out, force=force, options=options)


def merge(
    adapters: Annotated[tuple[Path, ...], Argument("Folders of adapters of one base.", "ADAPTER...")],
    *,
    out: Out,
    force: Force = False,
    options: LoraMergeOptions,
) -> Result:
    """Merge adapters by their products B·A; their factors are never averaged.

    brickwork lora merge one two --weight 0.5 --weight 0.5 --out both
    """
    return brickwork.lora.merge(adapters, out, force=force, options=options)


def extract(
    trained: Annotated[Path, Argument("Folder after training.", "TRAINED")],
    base: Annotated[Path, Argument("Folder before it.", "BASE")],
    *,
    out: Out,
    force: Force = False,
    options: LoraExtractOptions,
) -> Result:
    """Make an adapter of what training added to a model.

    brickwork lora extract tuned base --rank 32 --out adapter
    """
    return brickwork.lora.extract(trained, base, out, force=force, options=options)


GROUP = make_group("lora", "LoRA adapters of peft: bake, merge, extract.", [bake, merge, extract])
