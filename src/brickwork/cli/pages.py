"""`brickwork demo`, `report` and `studio`: pages to look at."""

from pathlib import Path
from typing import Annotated

import click

from brickwork.atomic import write_folder
from brickwork.cli.command import Argument, Report
from brickwork.cli.parameters import Arch, Device, Force, Seed, out_file, out_folder
from brickwork.cli.printing import log
from brickwork.options import Setting
from brickwork.words import counted, table

RESULT = "demo.json"  # marks a folder of the tour; brickwork.tour.run writes it


def demo(
    *,
    out: out_folder("Folder for everything the tour makes.", RESULT) = Path("demo"),
    quick: Annotated[bool, Setting("A tenth of the training: to see that it runs.")] = False,
    seed: Seed = 0,
    device: Device = "auto",
    force: Force = False,
) -> Report:
    """Tour of every part of Brickwork on embedded digits.

    It ends in a page that opens offline.
    """
    from brickwork.devices import pick
    from brickwork.tour import PARTS, take
    from brickwork.tour.next_steps import how_to_reach, next_commands
    from brickwork.tour.stage import Stage

    with write_folder(out, force=force, owns=(RESULT,)) as folder:
        result = take(Stage(folder, out, seed, pick(device), log, quick))
    rows = [(name, words, f"{result['seconds'][name]:.1f}") for name, words, _ in PARTS]
    lines = [f"  {line}\n      {words}" for line, words in next_commands(out)]
    done = table(["part", "what happened", "seconds"], rows)
    text = "\n".join([done, f"Next, with {out} being what was just made:", *how_to_reach(), *lines])
    return Report(result, f"{text}\n\nThe page: {result['page']}")


def report(
    runs: Annotated[
        tuple[Path, ...],
        Argument(
            "Figures (.json), study results, folders of sweep, continual, demo, compress with several budgets, maps, pools.",
            "RUN...",
        ),
    ],
    *,
    out: out_file("The page to write.", ".html"),
    title: Annotated[str, Setting("Heading of the page.")] = "Brickwork report",
    arch: Arch = None,
    force: Force = False,
) -> Report:
    """Write one page of what other verbs found.

    Key numbers, figures and tables; it opens without a network.

    brickwork report demo studies/results/assemble.json --out report.html
    """
    from brickwork.report.runs import report

    book = report(runs, title=title, arch=arch)
    book.save(out, force=force)
    chapters = [chapter.title for chapter in book.chapters]
    size = out.stat().st_size
    text = f"{out}: {counted(len(chapters), 'chapter')}, {size / 1000:.0f} kB"
    return Report({"page": str(out), "bytes": size, "chapters": chapters}, text)


def studio(
    folder: Annotated[Path, Argument("Where the model folders are, and where new ones go.", "FOLDER")],
    *,
    data: Annotated[
        Path | None, Setting("Folder below which images may be named, too.", metavar="DIR", default_text="FOLDER alone")
    ] = None,
    arch: Arch = None,
    port: Annotated[int, Setting("Port to listen on; 0: any that is free.", at_least=0, at_most=65535)] = 0,
    device: Device = "auto",
) -> None:
    """Open a local page to build, merge, compare and export networks.

    Drag classes of networks onto a board, press Build, see the new network beside those it comes from, export it.

    It listens on 127.0.0.1 alone, answers only to the token in the address it prints, reads nothing outside FOLDER and
    DIR, and writes nothing outside FOLDER.

    brickwork studio models --data pics --arch mynet:Net
    """
    from brickwork.studio import serve

    def tell(address: str) -> None:
        click.echo(address)
        log("Open this address in a browser; Ctrl-C ends the studio.")

    serve(folder, data=data, arch=arch or (), port=port, device=str(device), tell=tell)
