"""The README's numbers, from the files in studies/results.

    python -m brickwork_lab.studies.headlines studies README.md

fills the blocks of studies/headlines.md and writes each into the README's block of the same name (`make results`). A
block is what stands between `<!-- NAME: … -->` and `<!-- end -->`; a field in it is `{FILE :: ROW}` or `{FILE :: ROW :: COLUMN}`.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path

from brickwork.atomic import write_file
from brickwork.errors import BadFile, UnknownName
from brickwork_lab.studies.tables import Row, ranges_of

_BLOCK = re.compile(r"(<!-- (?P<name>\w+): [^\n]*-->\n)(?P<text>.*?)(?=<!-- end -->)", re.DOTALL)
_FIELD = re.compile(r"\{([^{}]+?)\}")


def filled(template: str, folder: Path) -> dict[str, str]:
    """The blocks of a template by name, every field replaced by what its row holds."""

    @cache
    def rows(file: str) -> dict[str, list[Row]]:
        known = sorted(path.stem for path in folder.glob("*.json"))
        if file not in known:
            raise UnknownName("file of results", file, known)
        named: dict[str, list[Row]] = {}
        for row in json.loads((folder / f"{file}.json").read_text(encoding="utf-8"))["rows"]:
            named.setdefault(_name(row), []).append(row)
        return named

    def value(field: re.Match[str]) -> str:
        parts = [part.strip() for part in field[1].split("::")]
        if len(parts) not in (2, 3):
            raise BadFile(f"a field is {field[0]}; it must be {{FILE :: ROW}} or {{FILE :: ROW :: COLUMN}}.")
        file, what, *column = parts
        if what not in rows(file):
            raise UnknownName(f"row of {file}.json", what, rows(file))
        if len(rows(file)[what]) > 1:
            raise BadFile(f"{file}.json has several rows {what!r}; a headline must name one of which there is one.")
        return shown(rows(file)[what][0], *column)

    return {block["name"]: _FIELD.sub(value, block["text"]) for block in _BLOCK.finditer(template)}


def _name(row: Row) -> str:
    return str(row["what"]) if "what" in row else ", ".join(str(row[key]) for key in ("who", "task", "data"))


def shown(row: Row, column: str = "ours") -> str:
    """A number to one place, or to two digits where it is below 1, with half of its range where it is a mean.

    column: with `%` at its end for shares.

    >>> shown({"ours": 91.5733, "ours_each": [91.4, 91.7, 91.6]}), shown({"ours": 0.3813, "spread": 0.02}, "ours%")
    ('91.6 ± 0.1', '38.1 ± 1.0')
    >>> shown({"ours": 98.65, "whole": 99}, "whole"), shown({"coefficient": 0.46791}, "coefficient")
    ('99.0', '0.47')
    """
    key, factor = column.removesuffix("%"), 100 if column.endswith("%") else 1
    if key not in row:
        raise UnknownName("column of the row", key, row)
    if not isinstance(row[key], float | int):
        raise BadFile(f"{key} of {_name(row)!r} is {row[key]!r}; a headline must be a number.")
    ends = ranges_of({name: value for name, value in row.items() if name != "each"}).get(
        key
    )  # `each`: of tasks, not runs
    text = _rounded(factor * row[key])
    return text if ends is None else f"{text} ± {_rounded(factor * (ends[1] - ends[0]) / 2, places=1)}"


def _rounded(value: float, places: int | None = None) -> str:
    if value == 0 or abs(value) >= (1 if places is None else 0.05):
        return f"{value:.1f}"
    return f"{value:.{places or 2}g}"


def with_blocks(page: str, blocks: dict[str, str]) -> str:
    """A page with the text of its blocks replaced."""
    missing = sorted(blocks.keys() - {block["name"] for block in _BLOCK.finditer(page)})
    if missing:
        raise BadFile(
            f"the page has no block {missing[0]!r}; write `<!-- {missing[0]}: … -->` and `<!-- end -->` into it."
        )
    return _BLOCK.sub(lambda block: block[1] + blocks.get(block["name"], block["text"]), page)


def main(folder: str, page: str) -> None:
    template = (Path(folder) / "headlines.md").read_text(encoding="utf-8")
    made = with_blocks(Path(page).read_text(encoding="utf-8"), filled(template, Path(folder) / "results"))
    with write_file(Path(page)) as draft:
        draft.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:3])
