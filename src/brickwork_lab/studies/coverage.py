"""Paper 2's tables entry by entry: the paper's numbers, ours beside them, and what is still to be measured, by which command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from brickwork_lab.studies.registry import read_json

#: study: the tables of the paper, and what its numbers of an entry are
TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "disassemble": ("Table 1", ("original", "part", "part, an epoch later")),
    "assemble": ("Table 2", ("original", "joined", "joined, an epoch later")),
    "treat": ("Table 3", ("original", "Model Doctor", "routes")),
    "compress": (
        "Tables 4 and 6",
        ("original", "part", "part, an epoch later", "parameters gone", "multiply-adds gone"),
    ),
}


def coverage(results: Mapping[str, Mapping[str, Any]], papers: Mapping[str, Any] | None = None) -> str:
    """A Markdown table for each table of the paper. results: by the name of the study.

    >>> rows = [{"what": "cifar10 vgg16 0, the paper's way", "ours": 99.0, "date": "2026-11-19"}]
    >>> papers = {"disassemble": {"cifar10 vgg16 0": [95.4, 100.0, 100.0], "cifar10 vgg16 1": [97.0, 100.0, 100.0]}}
    >>> print(coverage({"disassemble": {"rows": rows}}, papers))
    **Table 1** (original, part, part, an epoch later): 1 of 2 entries measured.
    <BLANKLINE>
    | entry | paper | ours | measured, or by |
    |---|---|---|---|
    | cifar10 vgg16 0 | 95.4, 100, 100 | the paper's way 99 | 2026-11-19 |
    | cifar10 vgg16 1 | 97, 100, 100 |  | `brickwork study disassemble --full --set cifar10 --arch vgg16 --pick 1` |
    """
    papers = read_json("paper2.json") if papers is None else papers
    parts = []
    for study, (table, what) in TABLES.items():
        entries = papers.get(study)
        if entries:
            rows = results.get(study, {}).get("rows", ())
            lines = [_line(study, key, numbers, rows) for key, numbers in entries.items()]
            there = sum(bool(line[2]) for line in lines)
            head = f"**{table}** ({', '.join(what)}): {there} of {len(lines)} entries measured."
            body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
            parts.append(f"{head}\n\n| entry | paper | ours | measured, or by |\n|---|---|---|---|\n{body}")
    return "\n\n".join(parts)


def _line(study: str, key: str, numbers: Sequence[float | None], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    own = [row for row in rows if row["what"].startswith(f"{key}, ") and row.get("ours") is not None]
    ours = ", ".join(f"{row['what'].removeprefix(f'{key}, ')} {_ours(row):.4g}" for row in own)
    where = ", ".join(sorted({str(row["date"]) for row in own if row.get("date")}))
    return [
        key,
        ", ".join("–" if n is None else f"{n:.4g}" for n in numbers),
        ours,
        where or f"`{_command(study, key)}`",
    ]


def _ours(row: Mapping[str, Any]) -> float:
    """By the paper's measure: a part with one output is always right, and older rows have its AUROC under `ours`."""
    return float(row.get("ours_one_output", row["ours"]))


def _command(study: str, key: str) -> str:
    source, arch, *pick = key.split()
    return f"brickwork study {study} --full --set {source} --arch {arch}" + "".join(f" --pick {p}" for p in pick)
