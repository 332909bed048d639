"""Rows of many jobs into the files of results: the same row of several seeds is averaged, a new row replaces an old one.

    python -m brickwork_lab.gather runs/rows studies/results [--replace STUDY …]

With `--replace` the old rows of a study go, all of them: where its protocol has changed, old and new do not belong together.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from brickwork.atomic import write_text
from brickwork.errors import BadFile
from brickwork_lab.studies.registry import OF_ONE_RUN, Row, averaged

FACTS = ("command", "commit", "date", "hardware", "torch")  # of a whole file; in a gathered one, of each row


def gather(jobs: Iterable[dict[str, Any]], old: dict[str, Any] | None = None) -> dict[str, Any]:
    """What stands in the file of one study: `old`, with the rows of these runs of it in place of those of the same name.

    >>> runs = [{"name": "a", "paper": "", "command": f"brickwork study a --seed {k} --out f", "complete": k == 0,
    ...          "rows": [{"what": "x", "ours": 2.0 * k, "seed": k}]} for k in (0, 1)]
    >>> gather(runs)["rows"]
    [{'what': 'x', 'ours': 1.0, 'seed': 0, 'ours_each': [0.0, 2.0], 'seeds': 2, 'command': 'brickwork study a --seed 0|1'}]
    """
    jobs = list(jobs)
    for job in jobs:
        if job.get("full", True) != (old or jobs[0]).get("full", True):
            raise BadFile(f"runs of {job['name']} are full and smoke; gather one kind at a time.")
    found: dict[str, dict[Any, tuple[Row, dict[str, Any]]]] = {}
    for job in jobs:
        facts = {name: job[name] for name in FACTS if name in job}
        facts["command"] = _plain(str(facts.get("command", "")))
        for row in job["rows"]:
            found.setdefault(row["what"], {}).setdefault(row.get("seed"), (row, facts))  # a seed counts once
    whole = dict(old or {"name": jobs[0]["name"], "paper": jobs[0]["paper"], "full": jobs[0].get("full", True)})
    common = {name: whole.pop(name) for name in FACTS if name in whole}
    rows = {row["what"]: {**common, **row} for row in whole.pop("rows", [])}
    for what, by_seed in found.items():
        rows[what] = _one(by_seed)
    return {**whole, "complete": False, "rows": list(rows.values())}


def _one(by_seed: dict[Any, tuple[Row, dict[str, Any]]]) -> Row:
    """The mean over the seeds that gave a number, and the command with all of them."""
    seeds = sorted(by_seed, key=str)
    measured = [seed for seed in seeds if by_seed[seed][0].get("ours") is not None] or seeds[:1]
    facts = dict(by_seed[measured[0]][1])
    facts["command"] = re.sub(r"--seed \S+", f"--seed {'|'.join(map(str, measured))}", facts["command"])
    rows = [by_seed[seed][0] for seed in measured]
    if len(rows) > 1:
        if any(row.get("seeds", 1) > 1 for row in rows):
            raise BadFile(
                f"the row {rows[0]['what']!r} is a mean over seeds already, and there is another of it; gather one."
            )
        rows = [{name: value for name, value in row.items() if name not in OF_ONE_RUN} for row in rows]
    (row,) = averaged([[row] for row in rows])
    return {**row, **facts}


def _plain(command: str) -> str:
    """Without where files were on the machine that ran it."""
    return re.sub(r" (--out|--networks) (\"[^\"]*\"|'[^']*'|\S+)| --force", "", command)


def gather_folder(rows: Path, results: Path, replaced: Collection[str] = ()) -> list[str]:
    """Every study's runs in a folder, into its file of results; the names of the studies."""
    by_study: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(rows.glob("*.json")):
        try:
            job = json.loads(file.read_text(encoding="utf-8"))
            by_study.setdefault(job["name"], []).append({**job, "rows": list(job["rows"])})
        except (ValueError, KeyError, TypeError) as error:
            raise BadFile(f"{file} is no file of a study's rows ({error}).") from error
    if not by_study:
        raise BadFile(f"{rows} has no .json file of rows; name the folder that `brickwork_lab.batch` wrote.")
    for name, jobs in by_study.items():
        target = results / f"{name}.json"
        old = json.loads(target.read_text(encoding="utf-8")) if target.is_file() else None
        if old is not None and name in replaced:
            old = {name: value for name, value in old.items() if name not in ("note", *FACTS)} | {"rows": []}
        with_rows = [job for job in jobs if job["rows"]]
        if with_rows:
            write_text(target, json.dumps(gather(with_rows, old), indent=1) + "\n", force=True)
    return list(by_study)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--replace", nargs="*", default=[], metavar="STUDY")
    asked = parser.parse_args(words)
    try:
        print("gathered:", ", ".join(gather_folder(asked.rows, asked.results, asked.replace)))
    except BadFile as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
