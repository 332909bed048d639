"""`brickwork report RUN… --out report.html`: one page of what other verbs found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from brickwork.cli.common import DebugOption, ForceOption, JsonOption, emit
from brickwork.words import counted


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN…", help="Figures (.json), study results, folders of sweep, continual, demo, maps, pools."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The page to write (.html).", show_default=False)],
    title: Annotated[str, typer.Option(help="What stands above it.")] = "Brickwork report",
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """One page of what other verbs found: key numbers, figures, tables; it opens without a network.

    brickwork report demo studies/results/assemble.json --out report.html
    """
    from brickwork.atomic import check_file
    from brickwork.errors import RequestError
    from brickwork.report.runs import report

    if out.suffix.lower() != ".html":
        raise RequestError(f"--out is {out}; a report is written to a file that ends in .html.")
    check_file(out, force=force)
    book = report(runs, title=title)
    book.save(out, force=force)
    chapters = [chapter.title for chapter in book.chapters]
    found = {"page": str(out), "bytes": out.stat().st_size, "chapters": chapters}
    emit(found, f"{out}: {counted(len(chapters), 'chapter')}, {out.stat().st_size / 1000:.0f} kB", as_json=as_json)
