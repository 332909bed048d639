"""`brickwork study [NAME]`."""

from __future__ import annotations

import datetime
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from brickwork.atomic import check_file, write_file
from brickwork.cli.common import DebugOption, Device, DeviceOption, ForceOption, JsonOption, SeedOption, emit, table
from brickwork.cli.lab import needs_lab


def command(
    name: Annotated[str | None, typer.Argument(help="Which study; none: list them.")] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="Seconds, on embedded data (the default).")] = False,
    full: Annotated[bool, typer.Option("--full", help="The real one, on the papers' data.")] = False,
    arch: Annotated[list[str] | None, typer.Option("--arch", help="Only this network (repeatable).")] = None,
    networks: Annotated[
        Path | None, typer.Option(help="Folder where trained networks are kept and found again.")
    ] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Only this data set (repeatable).")] = None,
    picks: Annotated[
        list[str] | None,
        typer.Option("--pick", help="Only these parts: classes as in A0-2,B3-4, or words of rows (repeatable)."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="So many runs with other seeds, where a study averages over them.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Also write the rows to this JSON file.")] = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Run a paper's table: the paper's numbers and ours side by side."""
    from brickwork.devices import describe
    from brickwork.errors import RequestError

    with needs_lab():
        from brickwork_lab import studies

    if name is None:
        rows = [(n, studies.get(n).paper, studies.get(n).about) for n in studies.names()]
        listed = [{"name": n, "paper": p, "about": a} for n, p, a in rows]
        emit({"studies": listed}, table(["name", "paper", "what"], rows), as_json=as_json)
        return
    if smoke and full:
        raise RequestError("--smoke and --full exclude each other; give one.")
    chosen = studies.get(name)
    if out is not None:
        check_file(out, force=force)
    options = _options(chosen, archs=arch, networks=networks and str(networks), sets=sets, picks=picks, seeds=seeds)
    context = {
        "command": shlex.join(["brickwork", *sys.argv[1:]]),
        "commit": _commit(),
        "date": str(datetime.date.today()),
        **describe(str(device)),
    }
    result: dict[str, Any] = {
        "name": name,
        "paper": chosen.paper,
        "full": full,
        **context,
        "complete": False,
        "rows": [],
    }
    coming = chosen.run(full=full, seed=seed, device=str(device), progress=not as_json, **options)
    for row in coming:  # hours may lie between two of them: none is lost when the run is stopped
        result["rows"].append(row)
        _write(out, result, force)
    result["complete"] = True
    _write(out, result, force)
    found = result["rows"]
    emit(result, _shown(found), as_json=as_json)


def _shown(rows: list[dict[str, Any]]) -> str:
    """What differs from row to row as a table, what does not in a line below; long values are for --json."""
    from brickwork_lab.studies.tables import columns_of, facts_of

    if not rows:
        return "no rows"
    columns = columns_of(rows)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    drawn, left_out = _fitting(rows, columns, width)
    more = (
        f"too wide for this terminal: {', '.join(left_out)}; in a pipe and with --json they are there"
        if left_out
        else ""
    )
    return "\n\n".join(part for part in (drawn, facts_of(rows), more) if part)


def _fitting(rows: list[dict[str, Any]], columns: list[str], width: int | None) -> tuple[str, list[str]]:
    """The table, without its last columns as far as it is wider than this, and the names of those.

    >>> _fitting([{"what": "a", "ours": 1, "long": "x" * 20}], ["what", "ours", "long"], 20)
    ('what  ours\\na        1', ['long'])
    """
    shown = list(columns)
    while True:
        drawn = table(shown, [["" if row.get(c) is None else row[c] for c in shown] for row in rows])
        narrow = width is None or max(map(len, drawn.splitlines())) <= width
        if narrow or shown[-1] in ("what", "paper", "ours"):
            return drawn, columns[len(shown) :]
        shown.pop()


def _write(out: Path | None, result: dict[str, Any], force: bool) -> None:
    """The rows so far; the file is replaced in one step, and was ours from the first row on."""
    if out is not None:
        with write_file(out, force=force or len(result["rows"]) > 1 or result["complete"]) as temporary:
            Path(temporary).write_text(json.dumps(result, indent=1) + "\n")


def _options(chosen: Any, **given: Any) -> dict[str, Any]:
    """What was given, as the study takes it; an option it does not have is refused, not ignored."""
    from brickwork.errors import RequestError

    known = (*chosen.options, *(["networks"] if chosen.trains else []))
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items() if v}
    foreign = [name for name in options if name not in known]
    if foreign:
        words = {"archs": "--arch", "networks": "--networks", "sets": "--set", "picks": "--pick", "seeds": "--seeds"}
        raise RequestError(f"study {chosen.name} has no {' or '.join(words[name] for name in foreign)}.")
    return options


def _commit() -> str | None:
    """The commit of the source tree, where there is one."""
    here = Path(__file__).resolve().parent
    try:
        found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True)
    except OSError:  # no git on this machine
        return None
    return found.stdout.strip() or None
