"""One progress bar, on stderr; in a log file, a line a minute."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

Advance = Callable[..., None]


MINUTE = 60.0  # seconds between two lines of a log


def _lines(what: str, total: float | None) -> Advance:
    """What a log file is told: nothing of work that is done within a minute."""
    done, told = 0.0, time.monotonic()

    def advance(amount: float = 1, note: str = "") -> None:
        nonlocal done, told
        done += amount
        if time.monotonic() - told >= MINUTE:
            told = time.monotonic()
            of = f" of {total:,.0f}" if total else ""
            print(f"{what}: {done:,.0f}{of}{f', {note}' if note else ''}", file=sys.stderr, flush=True)

    return advance


@contextlib.contextmanager
def bar(what: str, total: float | None, *, show: bool = True, unit: str = "") -> Iterator[Advance]:
    """Yield `advance(amount=1, note="")`. Where stderr is no terminal, a line a minute instead of a bar.

    >>> with bar("counting", 2) as advance:
    ...     advance()
    ...     advance(1, "done")
    """
    if not show:
        yield lambda amount=1, note="": None
        return
    if not sys.stderr.isatty():
        yield _lines(what, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    count = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        count,
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total, note="")
        yield lambda amount=1, note="": progress.update(task, advance=amount, note=note)
