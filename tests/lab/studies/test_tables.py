"""The tables in docs are those of studies/results, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from brickwork.errors import BadData
from brickwork_lab.studies.tables import main, pages, section

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["results.md", "benchmarks.md"])
def test_the_pages_are_up_to_date(name):
    found = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert found == pages(ROOT / "studies" / "results")[name], "run `make results`"


def test_every_row_of_every_result_has_a_line():
    text = "".join(pages(ROOT / "studies" / "results").values())
    for file in (ROOT / "studies" / "results").glob("*.json"):
        for row in json.loads(file.read_text())["rows"]:
            name = row.get("what") or row.get("who") or row["arch"]
            assert f"| {name} |" in text, (file.name, name)


def test_what_all_rows_share_is_told_once_and_a_miss_is_not_hidden():
    shared = {"paper": 99.0, "seed": 3, "command": "c", "commit": "abc"}
    rows = [{"what": "a", "ours": 1.0, **shared}, {"what": "b", "ours": 2.0, **shared}]
    told = section({"name": "n", "paper": "2", "rows": rows})
    assert "| a | 99 | 1 |" in told and "| b | 99 | 2 |" in told
    assert told.count("seed 3") == 1 and told.count("`c`: abc") == 1


def test_a_file_without_rows_is_named(tmp_path):
    (tmp_path / "empty.json").write_text('{"name": "empty", "rows": []}')
    with pytest.raises(BadData, match="empty"):
        main(str(tmp_path), str(tmp_path))
    assert not (tmp_path / "results.md").exists()
