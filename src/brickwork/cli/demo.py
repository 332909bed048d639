"""`brickwork demo`: the tour, every part once on embedded digits, and the page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from brickwork.cli.common import (
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    SeedOption,
    emit,
    log,
    table,
)

NEXT = """Next, with {folder} being what was just made:
  brickwork info {folder}/a                                                layers, channel spaces, sizes
  brickwork disassemble {folder}/a --data digits:A --classes 2,3 --out part   the part of two digits
  brickwork routes {folder}/b --data digits:B --classes 5,6 --out routes.html   which channels decide for them
  brickwork sweep {folder}/a {folder}/b --base {folder}/start --data digits:A --data digits:B --out sum
  brickwork depend show {folder}/map --out map.html                        which digits follow from others
  brickwork report {folder}/map sum --out mine.html                        a page of your own"""


def command(
    out: Annotated[Path, typer.Option("--out", help="Folder for everything the tour makes.")] = Path("demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="A tenth of the training: to see that it runs.")
    ] = False,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """The tour: every part of Brickwork once, on embedded digits, ending in a page that opens offline."""
    from brickwork.atomic import check_output, write_folder
    from brickwork.devices import pick
    from brickwork.tour.run import RESULT

    where = pick(str(device))
    check_output(out, force=force, owns=(RESULT,))

    from brickwork.tour import PARTS, take
    from brickwork.tour.stage import Stage

    with write_folder(out, force=force, owns=(RESULT,)) as folder:
        found = take(Stage(folder, out, seed, where, log, quick))
    seconds = found["seconds"]
    rows = [(name, words, f"{seconds[name]:.1f}") for name, words, _ in PARTS]
    told = table(["part", "what happened", "seconds"], rows)
    emit(found, f"{told}\n{NEXT.format(folder=out)}\n\nThe page: {found['page']}", as_json=as_json)
