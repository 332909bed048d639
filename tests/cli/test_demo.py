"""`brickwork demo`, in this process, in another, and interrupted."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import brickwork
from brickwork import cli
from brickwork.report.parts import PARTS as CHAPTERS
from brickwork.tour import PARTS


def test_demo(tmp_path, capsys):
    out = tmp_path / "demo"
    with pytest.raises(SystemExit) as caught:
        cli.main(["demo", "--out", str(out), "--quick", "--json", "--device", "cpu"])
    assert not caught.value.code
    printed, logged = capsys.readouterr()
    result = json.loads(printed)
    assert [line[:5] for line in logged.splitlines()] == [f"[{k}/6]" for k in range(1, 7)]
    assert list(result["parts"]) == list(result["seconds"]) == [name for name, _, _ in PARTS]
    assert result["parts"]["bricks"]["parameters"] < 0.26
    assert result["parts"]["pools"]["pool(size=48)"]["forgetting"] == 0
    for name in ("start", "a", "b", "zero-one", "seven", "three", "nine", "ten"):
        assert brickwork.load(out / name).brickwork_origin.classes or name == "start"
    page = (out / "report.html").read_text()
    for title, _ in list(CHAPTERS.values())[:-1]:
        assert title in page
    assert len(page) < 500_000 and page.count('class="card"') == 8
    assert json.loads((out / "demo.json").read_text()) == result
    with pytest.raises(SystemExit) as caught:
        cli.main(["demo", "--out", str(out)])
    assert caught.value.code == 2
    assert "--force" in capsys.readouterr().err


def test_ctrl_c_leaves_the_old_demo(tmp_path):
    out = tmp_path / "demo"
    out.mkdir()
    (out / "demo.json").write_text("old")
    process = subprocess.Popen(
        [sys.executable, "-m", "brickwork", "demo", "--out", str(out), "--force"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while len(os.listdir(tmp_path)) == 1 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)  # until the temporary folder shows that the work has begun
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    printed, logged = process.communicate(timeout=60)
    assert process.returncode == 130, logged
    assert printed == ""
    assert "stopped by Ctrl-C" in logged.splitlines()[-1]
    assert "Traceback" not in logged
    assert os.listdir(tmp_path) == ["demo"]
    assert (out / "demo.json").read_text() == "old"
