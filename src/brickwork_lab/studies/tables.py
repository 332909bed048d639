"""Results as Markdown: a table per study and per benchmark, from the files in studies/results.

    python -m brickwork_lab.studies.tables studies/results docs

writes docs/results.md and docs/benchmarks.md (`make results`). Nothing in them is written by hand.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from brickwork.atomic import write_file
from brickwork.errors import BadData
from brickwork_lab.studies.coverage import coverage

Row = dict[str, Any]
#: what says where a row comes from; given once below its table
ORIGIN = ("command", "commit", "hardware", "torch", "date")
FIRST = ("what", "who", "task", "data", "arch", "paper", "target", "ours", "whole")
LONGEST = 60  # a longer text, a list and a dictionary stay in the file
HEADS = {
    "results.md": (
        "Results",
        "Every study that has been run in full, the papers' numbers beside ours; not every table of every paper is here (of "
        "paper 2 the last section says which entries are, and the command for those that are not). An "
        "empty cell under `paper`: no number of the paper was put beside this row, because it has none, or measures it "
        "otherwise, or because we have not yet. A number with ± is a mean over `seeds`, or `runs` (starts, splits or "
        "networks, as the study says), with half of their range. `whole`: the uncut networks, or the teacher, on the same "
        "images. A commit that is not in the repository was rewritten before it landed (69ded7e, 7804379, ee690da). A0,B0: "
        "class 0 of the first and class 0 of the second half of a set's classes. The papers: 1 *Rethinking "
        "the dependence between "
        "gradients and the initial point in deep learning* (anonymous; weight algebra), 2 *CNN LEGO: disassembling and "
        "assembling convolutional neural network* (Hu et al.; bricks), 3 *Network transplanting* (Zhang et al.), 4 *Neural "
        "weight search for scalable task incremental learning* (Jiang and Celiktutan, its appendix; pools), 5 *Neural "
        "dependencies emerging from learning massive categories* (Feng et al.).",
    ),
    "benchmarks.md": (
        "Benchmarks",
        "Ours against peers, measured alternately in one run. `cpu s`: processor seconds, `peak mb`: the largest "
        "resident memory.",
    ),
}


def page(name: str, results: Iterable[dict[str, Any]]) -> str:
    """A page of tables, one per result."""
    title, about = HEADS[name]
    parts = [f"# {title}", about + " Made from `studies/results/` by `make results`."]
    results = list(results)
    parts += [contents(results), *(section(result) for result in results)]
    if name == "results.md" and (entries := coverage({result["name"]: result for result in results})):
        parts.append(f"## Paper 2, entry by entry\n\n{entries}")
    return "\n\n".join(parts) + "\n"


def contents(results: Sequence[dict[str, Any]]) -> str:
    """Links to the sections, those of a paper on one line.

    >>> contents([{"name": "a", "paper": "2, Table 1"}, {"name": "b", "paper": ""}, {"name": "c", "paper": "1"}])
    '- paper 1: [c](#c-paper-1)\\n- paper 2: [a](#a-paper-2-table-1) (Table 1)\\n- beside the papers: [b](#b)'
    """
    lines: dict[str, list[str]] = {}
    for result in results:
        number, _, tables = str(result.get("paper") or "").partition(", ")
        of_paper = number.isdigit()
        link = f"[{result['name']}](#{_anchor(_title(result))})"
        where = f"paper {number}" if of_paper else "beside the papers"
        lines.setdefault(where, []).append(f"{link} ({tables})" if of_paper and tables else link)
    order = sorted(lines, key=lambda where: (not where.startswith("paper"), where))
    return "\n".join(f"- {where}: {', '.join(lines[where])}" for where in order)


def _anchor(title: str) -> str:
    """What a heading is linked by, where Markdown is shown."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _title(result: dict[str, Any]) -> str:
    paper = str(result.get("paper") or "")
    return str(result["name"]) + (f" (paper {paper})" if paper else "")


def section(result: dict[str, Any]) -> str:
    """One result: title, note, table, where its rows come from.

    >>> print(section({"name": "n", "paper": "1, Table 1", "rows": [{"what": "a", "paper": None, "ours": 1.0, "seed": 0}]}))
    ## n (paper 1, Table 1)
    <BLANKLINE>
    | what | paper | ours |
    |---|---|---|
    | a |  | 1 |
    <BLANKLINE>
    seed 0.
    """
    rows = [{**{k: result[k] for k in ORIGIN if k in result}, **with_spread(row)} for row in result["rows"]]
    columns = columns_of(rows)
    facts = facts_of(rows)
    parts = [
        f"## {_title(result)}",
        str(result.get("note") or result.get("about") or ""),
        table(rows, columns),
        facts and f"{facts}.",
    ]
    if "ratios" in result:
        parts.append(table([{"ratio": n, "value": v} for n, v in result["ratios"].items()], ["ratio", "value"]))
    return "\n\n".join(part for part in [*parts, _origins(rows)] if part)


def with_spread(row: Row) -> Row:
    """Numbers that are means with half of the range of what they are means of, and of how many.

    >>> with_spread({"ours": 2.0, "ours_each": [1.5, 2.0, 2.5]})
    {'ours': '2 ± 0.5', 'runs': 3}
    >>> with_spread({"ours": 3.0, "ours_range": [2.9, 3.2], "seeds": 5}), with_spread({"ours": 1.0, "spread": None})
    ({'ours': '3 ± 0.15', 'seeds': 5}, {'ours': 1.0})
    """
    shown = {name: value for name, value in row.items() if name != "spread"}
    each: Any = row.get("ours_each", row.get("each"))
    if "seeds" not in row and _numbers(each):
        shown["runs"] = len(each)
    for name, ends in ranges_of(row).items():
        if isinstance(row.get(name), float | int):
            shown[name] = f"{_cell(float(row[name]))} ± {(ends[1] - ends[0]) / 2:.2g}"
            shown.pop(f"{name}_range", None)
        elif name in row and row[name] is None:  # the paper has several such numbers
            shown[name] = f"{_cell(ends[0])} to {_cell(ends[1])}"
            shown.pop(f"{name}_range", None)
    return {name: value for name, value in shown.items() if name not in ("ours_each", "each")}


def ranges_of(row: Row) -> dict[str, list[float]]:
    """The least and the largest of what a column is a mean of, for the columns that are means.

    >>> ranges_of({"ours": 2.0, "ours_each": [1.5, 2.0, 2.5], "base_range": [1, 3]})
    {'base': [1, 3], 'ours': [1.5, 2.5]}
    """
    ranges = {
        name.removesuffix("_range"): ends for name, ends in row.items() if name.endswith("_range") and _numbers(ends)
    }
    each: Any = row.get("ours_each", row.get("each"))
    if _numbers(each):
        ranges["ours"] = [min(each), max(each)]
    elif isinstance(row.get("spread"), float | int):
        ranges["ours"] = [0, row["spread"]]
    return ranges


def _numbers(values: Any) -> bool:
    return isinstance(values, list) and len(values) > 1 and all(isinstance(v, float | int) for v in values)


def table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Rows as a Markdown table.

    >>> print(table([{"a": 1.23456, "b": "x|y"}], ["a", "b"]))
    | a | b |
    |---|---|
    | 1.235 | x\\|y |
    """
    head = [_line([name.replace("_", " ") for name in columns]), "|" + "---|" * len(columns)]
    return "\n".join([*head, *(_line([_cell(row.get(c)) for c in columns]) for row in rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def columns_of(rows: Sequence[Row]) -> list[str]:
    """What differs from row to row and fits into a cell; the known ones first, the others as they come, the date last.

    >>> columns_of([{"what": "a", "date": "2026-11-15", "ours": 1}, {"what": "b", "date": "2026-11-19", "ours": 1}])
    ['what', 'ours', 'date']
    """
    names = dict.fromkeys([*FIRST, *(name for row in rows for name in row)])
    always = ("what", "who", "paper", "ours")
    same = set(_shared(rows))
    dated = [] if "date" in same else ["date"]  # rows of two days may be of two forms of a study
    found = [
        name
        for name in names
        if any(name in row for row in rows)
        and name not in ORIGIN
        and (name in always or name not in same)
        and (name in always or all(_fits(row.get(name)) for row in rows))
    ]
    return [*found, *(name for name in dated if any(name in row for row in rows))]


def facts_of(rows: Sequence[Row]) -> str:
    """What all rows have in common, in a line; it has no column."""
    columns = columns_of(rows)
    same = {k: _cell(rows[0][k]) for k in _shared(rows) if k not in columns and k not in ORIGIN}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in same.items() if value)


def _shared(rows: Sequence[Row]) -> list[str]:
    """Names that every row has with one value."""
    return [
        name
        for name, value in rows[0].items()
        if _fits(value) and all(name in row and row[name] == value for row in rows)
    ]


def _fits(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= LONGEST)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).replace("|", "\\|")


def _origins(rows: Sequence[Row]) -> str:
    """The commands that gave the rows, each once, with commit, hardware and date."""
    origins = dict.fromkeys(
        (str(row.get("command") or ""), tuple(str(row[k]) for k in ORIGIN[1:] if row.get(k))) for row in rows
    )
    return "\n".join(f"- `{command}`: {', '.join(facts)}" for command, facts in origins if command)


def pages(folder: Path) -> dict[str, str]:
    """The text of every page from the results in a folder, in the order of their names."""
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in HEADS}
    for file in sorted(folder.glob("*.json")):
        result = json.loads(file.read_text())
        if not isinstance(result, dict) or not result.get("rows"):
            raise BadData(f"{file} holds no rows; write it with brickwork study NAME --full --out {file}.")
        studied = "ours" in result["rows"][0] and "cpu_s" not in result["rows"][0]
        results["results.md" if studied else "benchmarks.md"].append(result)
    return {name: page(name, some) for name, some in results.items()}


def main(folder: str, out: str) -> None:
    for name, text in pages(Path(folder)).items():
        with write_file(Path(out) / name) as made:
            made.write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:3])
