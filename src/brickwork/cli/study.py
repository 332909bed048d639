"""`brickwork study [NAME]`."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from brickwork.cli.common import (
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    SeedOption,
    emit,
    table,
)


def command(
    name: Annotated[str | None, typer.Argument(help="Which study; none: list them.")] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="Seconds, on embedded data (the default).")] = False,
    full: Annotated[bool, typer.Option("--full", help="The real one, on the papers' data.")] = False,
    arch: Annotated[list[str] | None, typer.Option("--arch", help="Only this network (repeatable).")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Also write the rows to this JSON file.")] = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Run a paper's table: the paper's numbers and ours side by side."""
    from brickwork import studies
    from brickwork.atomic import write_file
    from brickwork.errors import OutputExists, RequestError
    from brickwork.studies.assemble import facts

    if name is None:
        rows = [(n, studies.get(n).paper, studies.get(n).about) for n in studies.names()]
        listed = [{"name": n, "paper": p, "about": a} for n, p, a in rows]
        emit({"studies": listed}, table(["name", "paper", "what"], rows), as_json=as_json)
        return
    if smoke and full:
        raise RequestError("--smoke and --full exclude each other; give one.")
    chosen = studies.get(name)
    if out is not None and out.exists() and not force:
        raise OutputExists(out)
    options: dict[str, Any] = {"archs": tuple(arch)} if arch else {}
    found = chosen.run(full=full, seed=seed, device=str(device), progress=not as_json, **options)
    context = {
        "command": "brickwork " + " ".join(sys.argv[1:]), "commit": _commit(), "date": str(datetime.date.today()),
        **facts(str(device)),
    }  # fmt: skip
    result = {"name": name, "paper": chosen.paper, "full": full, **context, "rows": found}
    if out is not None:
        with write_file(out, force=force) as temporary:
            Path(temporary).write_text(json.dumps(result, indent=1) + "\n")
    columns = list(dict.fromkeys(key for row in found for key in row))
    shown = table(columns, [["" if row.get(c) is None else row[c] for c in columns] for row in found])
    emit(result, shown, as_json=as_json)


def _commit() -> str | None:
    """The commit of the source tree, where there is one."""
    here = Path(__file__).resolve().parent
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True
        )
    except OSError:  # no git on this machine
        return None
    return found.stdout.strip() or None
