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


def test_demo(tmp_path, capsys):
    out = tmp_path / "demo"
    with pytest.raises(SystemExit) as caught:
        cli.main(["demo", "--out", str(out), "--epochs", "2", "--json", "--device", "cpu"])
    assert not caught.value.code
    printed, logged = capsys.readouterr()
    result = json.loads(printed)
    assert "training lenet" in logged
    assert [row["data"] for row in result["rows"]] == ["digits:A", "digits:B"]
    for row in result["rows"]:
        assert row["accuracy"] > 0.5
        assert row["reloaded_equal"]
        origin = brickwork.load(row["folder"]).brickwork_origin
        assert origin.classes == tuple(row["classes"])
        assert origin.provenance["data"] == row["data"]
        assert origin.preprocessing is not None
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
        [sys.executable, "-m", "brickwork", "demo", "--out", str(out), "--force", "--epochs", "10000"],
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
