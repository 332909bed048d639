"""Lists of studies: read, run side by side, stopped, gone on with, and gathered."""

import json
import sys
import time
from pathlib import Path

import pytest

from brickwork.errors import BadFile
from brickwork_lab import studies
from brickwork_lab.batch import Batch, main, read_lines
from brickwork_lab.gather import gather, gather_folder
from brickwork_lab.gather import main as gather_main


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prune", "line 1"),
        ("a:", "line 1"),
        ("a: prune\na: prune", "'a' stands twice"),
        ("a after b: prune", "'b', which is not in the list"),
    ],
)
def test_a_wrong_list_is_refused(text, said):
    with pytest.raises(BadFile, match=said):
        read_lines(text)


def test_the_list_of_what_is_to_be_measured_names_studies_and_their_options():
    text = (Path(__file__).parents[2] / "studies" / "queue.txt").read_text(encoding="utf-8")
    for line in read_lines(text):
        known = {"--pick": "picks", "--arch": "archs", "--set": "sets", "--start": "starts", "--seeds": "seeds"}
        asked = {known[word] for word in line.words if word in known}
        assert asked <= set(studies.get(line.words[0]).options), line


def test_jobs_run_in_their_order_and_are_found_again(tmp_path, capsys):
    jobs = tmp_path / "jobs.txt"
    jobs.write_text(
        "later after first: frat-readings\nfirst: frat-readings\nwrong: no-such-study\nnever after wrong: frat-readings\n"
    )
    main([str(jobs), "--folder", str(tmp_path / "runs"), "--workers", "2", "--smoke", "--device", "cpu"])
    said = capsys.readouterr().out
    assert "2 of 4 jobs are done" in said and said.index("first: exit 0") < said.index("later: exit 0")
    assert "wrong: exit 2" in said and "never" not in said
    batch = Batch(jobs, tmp_path / "runs", device="cpu", full=False)
    assert batch.done("first") and not batch.done("wrong") and not batch.done("never")
    main([str(jobs), "--folder", str(tmp_path / "runs"), "--smoke", "--device", "cpu"])
    assert "first" not in capsys.readouterr().out
    assert gather_folder(tmp_path / "runs/rows", tmp_path) == ["frat-readings"]
    rows = json.loads((tmp_path / "frat-readings.json").read_text())["rows"]
    assert len({row["what"] for row in rows}) == len(rows) and "--out" not in rows[0]["command"]


def test_a_list_that_is_being_written_and_rows_of_a_stopped_run_are_no_loss(tmp_path):
    jobs = tmp_path / "jobs.txt"
    jobs.write_text("one: frat-readings")
    batch = Batch(jobs, tmp_path, device="cpu", full=False)
    assert [line.name for line in batch.lines()] == ["one"]
    jobs.write_text("one: frat-readings\nhalf")
    assert [line.name for line in batch.lines()] == ["one"]
    (tmp_path / "rows").mkdir()
    batch.rows("one").write_text('{"name": "frat-readings", "complete": false, "full": false, "rows": [{"what": "x"}]}')
    jobs.write_text("one: frat-readings")
    assert batch.run(1) == ["one"]
    assert json.loads(batch.rows("one.1").read_text())["rows"] == [{"what": "x"}]


@pytest.mark.parametrize("lost", [(), ("INT",), ("INT", "TERM")], ids=lambda names: "+".join(names) or "none")
def test_what_still_runs_is_stopped(tmp_path, capsys, monkeypatch, lost):
    """Also a job to which an interrupt is lost, as happens within an import."""
    deaf = "".join(f"signal.signal(signal.SIG{name}, signal.SIG_IGN);" for name in lost)
    sleeps = f"import signal, time; {deaf} print('ready', flush=True); time.sleep(20)"
    monkeypatch.setattr(Batch, "command", lambda batch, line: [sys.executable, "-c", sleeps])
    jobs = tmp_path / "jobs.txt"
    jobs.write_text("one: frat-readings\ntwo: frat-readings\n")
    until = time.monotonic() + 0.5
    assert Batch(jobs, tmp_path, until=until, patience=0.2).run(1) == []
    said = capsys.readouterr().out
    assert said.startswith("one: exit ") and "exit 0" not in said and "two" not in said


def test_new_rows_replace_old_ones_and_seeds_are_averaged():
    def run(seed, ours):
        rows = [{"what": "x", "ours": ours, "seed": seed}, {"what": "y", "ours": ours, "seed": seed}]
        return {"name": "s", "paper": "1", "commit": "new", "command": f"brickwork study s --seed {seed}", "rows": rows}

    old = {
        "name": "s",
        "paper": "1",
        "commit": "old",
        "note": "kept",
        "rows": [{"what": "x", "ours": 9.0}, {"what": "z", "ours": 7.0}],
    }
    made = gather([run(0, 1.0), run(0, 5.0), run(1, 3.0)], old)  # the second run of seed 0 says nothing new
    rows = {row["what"]: row for row in made["rows"]}
    assert made["note"] == "kept" and list(rows) == ["x", "z", "y"]
    assert rows["x"]["ours_each"] == [1.0, 3.0] and rows["x"]["commit"] == "new" and rows["z"]["commit"] == "old"
    assert rows["y"]["command"] == "brickwork study s --seed 0|1"
    with pytest.raises(BadFile, match="mean over seeds already"):
        gather([{**run(0, 1.0), "rows": [{**run(0, 1.0)["rows"][0], "seeds": 3}]}, run(1, 3.0)])
    with pytest.raises(BadFile, match="full and smoke"):
        gather([{**run(0, 1.0), "full": False}], old)
    refused = {"name": "s", "paper": "1", "rows": [{"what": "x", "ours": None, "seed": 2}]}
    assert gather([run(0, 1.0), refused])["rows"][0]["ours"] == 1.0


def test_wrong_requests_end_with_a_sentence(tmp_path, capsys):
    (tmp_path / "bad.json").write_text("[]")
    for call, words in (
        (main, [str(tmp_path / "none.txt")]),
        (main, [str(tmp_path / "bad.json"), "--workers", "0"]),
        (gather_main, [str(tmp_path), str(tmp_path)]),
        (gather_main, [str(tmp_path / "empty"), str(tmp_path)]),
    ):
        with pytest.raises(SystemExit) as ended:
            call(words)
        assert ended.value.code == 2 and len(capsys.readouterr().err.strip().splitlines()) == 1
