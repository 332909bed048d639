"""`brickwork study`: the list, the smoke run, and requests that are wrong."""

from __future__ import annotations

import json

import pytest
import torch

from brickwork import studies
from brickwork.cli import main
from brickwork.errors import UnknownName


def run(arguments, capsys):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code, capsys.readouterr()


def test_the_list_names_every_study(capsys):
    code, printed = run(["study", "--json"], capsys)
    assert code == 0
    assert [s["name"] for s in json.loads(printed.out)["studies"]] == studies.names()


def test_assemble_on_digits(capsys, tmp_path):
    """Parts of two networks, joined at half their parameters, keep what the whole networks know."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        out = tmp_path / "assemble.json"
        code, printed = run(["study", "assemble", "--smoke", "--json", "--out", str(out)], capsys)
    finally:
        torch.set_num_threads(threads)
    assert code == 0
    result = json.loads(printed.out)
    assert json.loads(out.read_text()) == result
    assert {"name", "command", "hardware", "date", "rows"} <= result.keys()
    halves = [row for row in result["rows"] if "50%" in row["what"]]
    assert len(halves) == 3
    for row in halves:
        assert row["parameters"] <= 0.5
        assert row["ours"] >= row["whole"] - 2


@pytest.mark.parametrize("wrong", [["study", "asemble"], ["study", "assemble", "--smoke", "--full"]])
def test_wrong_requests(wrong, capsys):
    code, printed = run(wrong, capsys)
    assert code == 2
    assert printed.out == ""
    assert "assemble" in printed.err or "--smoke" in printed.err


def test_an_unknown_study_is_refused_by_name():
    with pytest.raises(UnknownName, match="did you mean 'assemble'"):
        studies.get("asemble")
