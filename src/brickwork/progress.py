"""One progress bar, on stderr, that stays silent when nobody watches."""

import contextlib
import sys
from collections.abc import Callable, Iterator

Advance = Callable[..., None]


@contextlib.contextmanager
def bar(what: str, total: float | None, *, show: bool = True, unit: str = "") -> Iterator[Advance]:
    """Yield `advance(amount=1, note="")`. Nothing is drawn when stderr is not a terminal.

    >>> with bar("counting", 2) as advance:
    ...     advance()
    ...     advance(1, "done")
    """
    if not (show and sys.stderr.isatty()):
        yield lambda amount=1, note="": None
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
