"""`brickwork data list` and `data fetch`: sets of images that are known by name."""

from typing import Annotated

from brickwork.cli.command import Argument, Report, make_group
from brickwork.options import Setting
from brickwork.words import table


def list_() -> Report:
    """Sets of images known by name: embedded, in the data folder, or to be fetched.

    brickwork data list
    """
    from brickwork.data.named import data_folder, known_sets

    rows = [known.to_dict() for known in known_sets()]
    cells = [[row["name"], row["state"], row["where"]] for row in rows]
    text = f"{table(['name', '', 'where'], cells)}\nany NAME.npz in {data_folder()} is a set called NAME"
    return Report({"folder": str(data_folder()), "sets": rows}, text)


def fetch(
    names: Annotated[tuple[str, ...], Argument("Sets to fetch, as `data list` names them.", "NAME...")],
    *,
    mirror: Annotated[str | None, Setting("Address that serves the official files.", metavar="URL")] = None,
) -> Report:
    """Download sets of images from their official places, checked against the authors' checksums.

    A set that is there already is left as it is. Verbs fetch what they need by themselves, too.

    brickwork data fetch cifar10 cifar100
    """
    from brickwork.data.named import find, known_names
    from brickwork.errors import UnknownName

    for name in names:
        if name not in known_names():
            raise UnknownName("data set", name, known_names())
    files = {name: "comes with Brickwork" if name == "digits" else str(find(name, mirror=mirror)) for name in names}
    return Report({"files": files}, "\n".join(f"{name}: {file}" for name, file in files.items()))


GROUP = make_group("data", "Sets of images known by name: list, fetch.", [list_, fetch])
