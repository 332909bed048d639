"""`brickwork study` and `brickwork bench`: the papers' tables, and measurements against peers."""

import datetime
import hashlib
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from brickwork.cli.command import Argument, Report
from brickwork.cli.parameters import DEVICE, Force, Seed
from brickwork.engine.options import EngineOptions
from brickwork.errors import RequestError
from brickwork.options import Options, Setting, option
from brickwork.words import table


class StudyOptions(Options):
    """Which rows of a study to run."""

    arch: tuple[str, ...] = option(default=(), help="Only this network; repeatable.")
    networks: str | None = option(
        default=None, metavar="FOLDER", help="Where trained networks are kept and found again."
    )
    set: tuple[str, ...] = option(default=(), help="Only this data set; repeatable.")
    pick: tuple[str, ...] = option(
        default=(), help="Only these parts: classes as in A0-2,B3-4, or words of rows; repeatable."
    )
    seeds: int | None = option(
        default=None, at_least=1, help="So many runs with other seeds, where a study averages over them."
    )
    start: tuple[str, ...] = option(
        default=(),
        help="What every task is fine-tuned from: an architecture, a public network or a folder; repeatable.",
    )
    images: int | None = option(
        default=None, at_least=10, help="At most so many training images per task, and half as many that judge."
    )
    epochs: int | None = option(default=None, at_least=1, help="Passes over the images of a task.")
    lr: float | None = option(
        default=None, above=0, help="Rate of fine-tuning, instead of one chosen per task on held-out images."
    )
    minutes: float | None = option(default=None, above=0, help="Time of every polish.")
    calibration: int | None = option(
        default=None, at_least=2, help="Unlabelled images per task that merge methods look at."
    )

    def for_study(self, chosen: Any) -> dict[str, Any]:
        """As the study takes them; an option it does not have is refused, not ignored."""
        names = {"arch": "archs", "set": "sets", "pick": "picks", "start": "starts"}
        known = (*chosen.options, *(["networks"] if chosen.trains else []))
        given = {name: value for name, value in self.to_dict().items() if value}
        foreign = [f"`{name}`" for name in given if names.get(name, name) not in known]
        if foreign:
            raise RequestError(f"study {chosen.name} has no {' or '.join(foreign)}.")
        return {names.get(n, n): tuple(v) if isinstance(v, list) else v for n, v in given.items()}


def study(
    name: Annotated[str | None, Argument("Which study; none: list them.", "NAME")] = None,
    *,
    smoke: Annotated[bool, Setting("Seconds, on embedded data (the default).")] = False,
    full: Annotated[bool, Setting("The real one, on real image sets.")] = False,
    out: Annotated[Path | None, Setting("JSON file for the rows, written as they come.", metavar="FILE")] = None,
    report: Annotated[Path | None, Setting("Page of the figures (.html).", metavar="FILE")] = None,
    seed: Seed = 0,
    device: Annotated[str, Setting(DEVICE)] = "auto",
    force: Force = False,
    options: StudyOptions,
    running: EngineOptions,
) -> Report:
    """Run a paper's table, its numbers and ours side by side.

    brickwork study assemble --smoke --json

    brickwork study eight-tasks --smoke --networks nets --engine processes:2
    """
    from brickwork.atomic import check_file
    from brickwork.devices import describe
    from brickwork_lab import studies
    from brickwork_lab.lab import Lab
    from brickwork_lab.studies.jobs import run_on_engine

    if name is None:
        known = [(n, studies.get(n).paper, studies.get(n).about) for n in studies.names()]
        listed = [{"name": n, "paper": p, "about": a} for n, p, a in known]
        return Report({"studies": listed}, table(["name", "paper", "what"], known))
    if smoke and full:
        raise RequestError("`smoke` and `full` exclude each other; give one.")
    chosen = studies.get(name)
    if out is not None:
        check_file(out, force=force)
    if report is not None:
        if report.suffix.lower() != ".html":
            raise RequestError(f"`report` is {str(report)!r}; a page is written to a file that ends in .html.")
        check_file(report, force=force)
    asked = options.for_study(chosen)
    result: dict[str, Any] = {
        "name": name,
        "paper": chosen.paper,
        "full": full,
        "command": shlex.join(["brickwork", *sys.argv[1:]]),
        "commit": _commit(),
        "date": str(datetime.date.today()),
        **describe(device),
        "complete": False,
        "rows": [],
    }
    lab = Lab(full, seed=seed, device=device, networks=asked.pop("networks", None))
    rows: Iterable[dict[str, Any]]
    if running.elsewhere:
        rows = run_on_engine(chosen, lab, asked, running, version=_code())
    else:
        rows = chosen.play(lab, **asked)
    for row in rows:
        result["rows"].append(row)  # hours may lie between two of them: none is lost when the run is stopped
        _write(out, result, force)
    result["complete"] = True
    _write(out, result, force)
    if report is not None:
        from brickwork.report.book import Book
        from brickwork.report.parts import chapters
        from brickwork.report.runs import draw_result

        Book(f"Study {name}", chapters(draw_result(result))).save(report, force=force)
    return Report(result, _shown(result["rows"]))


def _shown(rows: list[dict[str, Any]]) -> str:
    """What differs from row to row as a table, what does not in a line below; long values are for --json."""
    from brickwork_lab.studies.tables import columns_of, facts_of

    if not rows:
        return "no rows"
    columns = columns_of(rows)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    drawn, left_out = _fitting(rows, columns, width)
    more = f"too wide for this terminal: {', '.join(left_out)}; in a pipe and with --json they are there"
    return "\n\n".join(part for part in (drawn, facts_of(rows), more if left_out else "") if part)


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
    from brickwork.atomic import write_text

    if out is not None:
        write_text(
            out, json.dumps(result, indent=1) + "\n", force=force or len(result["rows"]) > 1 or result["complete"]
        )


def _commit() -> str | None:
    """The commit of the source tree, where there is one."""
    return _git("rev-parse", "--short", "HEAD").strip() or None


def _code() -> str:
    """What rows that are kept depend on: the commit and what was changed since, or the version that is installed."""
    changed = _git("diff", "HEAD", "--", str(Path(__file__).resolve().parents[1]))
    return (_commit() or version("brickwork")) + (
        f"+{hashlib.sha256(changed.encode()).hexdigest()[:12]}" if changed else ""
    )


def _git(*words: str) -> str:
    try:
        return subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True).stdout
    except OSError:  # no git on this machine
        return ""


def bench(
    name: Annotated[str | None, Argument("Which benchmark to run; none: list them.", "NAME")] = None,
    *,
    arg: Annotated[dict[str, Any] | None, Setting("Option of the benchmark, e.g. --arg repeat=5; repeatable.")] = None,
    device: Annotated[str | None, Setting("Where to compute, if the benchmark has a choice.")] = None,
) -> Report:
    """Measure Brickwork against its peers on this machine.

    Prints who took how long and how much memory (medians), and peer ÷ ours: above 1, ours needs less.
    Without an argument: the benchmarks there are, with their options.

    brickwork bench surgery --arg repeat=5 --json
    """
    from brickwork_lab import benchmarks

    if name is None:
        known = [
            (b.name, b.help, ", ".join(f"{k}={v}" for k, v in b.options.items())) for b in benchmarks.REGISTRY.values()
        ]
        listed = [{"name": n, "help": h} for n, h, _ in known]
        return Report({"benchmarks": listed}, table(["name", "what", "options"], known))
    options = (arg or {}) | ({} if device is None else {"device": device})
    outcome = benchmarks.find(name)(**options)
    lines = [_table(outcome.rows), "", table(["ratio", "peer ÷ ours"], outcome.ratios.items())]
    for title, rows in outcome.tables.items():
        lines += ["", title, _table(rows)]
    return Report(outcome.to_dict(name), "\n".join(lines))


def _table(rows: list[dict[str, Any]]) -> str:
    def cell(value: Any) -> Any:
        return float(f"{value:.3g}") if isinstance(value, float) else value

    headers = list(dict.fromkeys(key for row in rows for key in row))
    return table(headers, [[cell(row.get(key, "")) for key in headers] for row in rows])
