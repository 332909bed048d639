"""`brickwork bench [NAME]`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from brickwork.cli.common import DebugOption, Device, JsonOption, emit, parse_args, table
from brickwork.cli.lab import needs_lab


def command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which benchmark to run; none: list.")] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="NAME=VALUE", help="Option of the benchmark, e.g. --arg repeat=5; repeatable."),
    ] = None,
    device: Annotated[
        Device | None, typer.Option("--device", help="Where to compute, if the benchmark has a choice.")
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Measure Brickwork against its peers, alternately, on this machine.

    Prints who took how long and how much memory (medians), and peer ÷ ours: above 1, ours needs less.
    Without an argument: the benchmarks there are, with their options.
    """
    with needs_lab():
        from brickwork_lab import benchmarks

    if name is None:
        known = [
            (b.name, b.help, ", ".join(f"{k}={v}" for k, v in b.options.items())) for b in benchmarks.REGISTRY.values()
        ]
        data: dict[str, Any] = {"benchmarks": [{"name": n, "help": h} for n, h, _ in known]}
        emit(data, table(["name", "what", "options"], known), as_json=as_json)
        return
    found = benchmarks.find(name)
    options = parse_args(arg) | ({} if device is None else {"device": str(device)})
    outcome = found.run(**options)
    lines = [_table(outcome.rows), "", table(["ratio", "peer ÷ ours"], outcome.ratios.items())]
    for title, rows in outcome.tables.items():
        lines += ["", title, _table(rows)]
    emit(outcome.to_dict(name), "\n".join(lines), as_json=as_json)


def _table(rows: list[dict[str, Any]]) -> str:
    def cell(value: Any) -> Any:
        return float(f"{value:.3g}") if isinstance(value, float) else value

    headers = list(dict.fromkeys(key for row in rows for key in row))
    return table(headers, [[cell(row.get(key, "")) for key in headers] for row in rows])
