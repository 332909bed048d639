"""`brickwork delta TRAINED INITIAL --out g.safetensors`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from brickwork.cli.common import ArchOption, DebugOption, ForceOption, JsonOption, emit


def command(
    trained: Annotated[Path, typer.Argument(metavar="TRAINED", help="Model folder after training.")],
    initial: Annotated[Path, typer.Argument(metavar="INITIAL", help="Model folder before it.")],
    out: Annotated[Path, typer.Option("--out", help="File to write, g.safetensors.", show_default=False)],
    arch: ArchOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """What training added: trained − initial, as a file that knows its base.

    brickwork delta a zero --out g.safetensors
    """
    from brickwork import store
    from brickwork.algebra import delta
    from brickwork.atomic import check_file
    from brickwork.errors import RequestError

    if out.suffix != ".safetensors":
        raise RequestError(f"--out is {out}; a delta is a .safetensors file.")
    check_file(out, force=force)
    for folder in (trained, initial):
        store.read_config(folder)
    g = delta(*(store.load(folder, arch=arch) for folder in (trained, initial)))
    g.save(out, force=force)
    report = {"file": str(out), "base": g.base, "tensors": len(g.tensors), "norm": g.norm()}
    emit(report, f"{g}; saved in {out}", as_json=as_json)
