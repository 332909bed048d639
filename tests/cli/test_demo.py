"""`brickwork demo`, in this process, in another, and interrupted."""

import contextlib
import html
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import brickwork
from brickwork import cli
from brickwork.ownership import foreign
from brickwork.report.parts import PARTS as CHAPTERS
from brickwork.tour import PARTS
from brickwork.tour.next_steps import how_to_reach, next_commands


@pytest.fixture(scope="module")
def toured(tmp_path_factory):
    """A quick tour, taken once: the folder from which it was taken, what it printed, what it logged."""
    home = tmp_path_factory.mktemp("tour")
    printed, logged = io.StringIO(), io.StringIO()
    with contextlib.chdir(home), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(logged):
        with pytest.raises(SystemExit) as caught:
            cli.main(["demo", "--out", "demo", "--quick", "--json", "--device", "cpu"])
        assert not caught.value.code, logged.getvalue()
    return home, printed.getvalue(), logged.getvalue()


def test_demo(toured, run):
    home, printed, logged = toured
    out = home / "demo"
    result = json.loads(printed)
    assert [line[:5] for line in logged.splitlines()] == [f"[{k}/6]" for k in range(1, 7)]
    assert list(result["parts"]) == list(result["seconds"]) == [name for name, _, _ in PARTS]
    assert result["parts"]["bricks"]["parameters"] < 0.26 and result["parts"]["bricks"]["difference"] < 1e-3
    assert set(result["parts"]["merge"]) == {"parents", "linear", "rebasin", "match"}
    assert result["parts"]["pools"]["pool(size=48)"]["forgetting"] == 0
    for name in (
        "start",
        "a",
        "b",
        "team-1",
        "team-2",
        "by-match",
        "part-a",
        "part-resnet",
        "six",
        "known",
        "nine",
        "ten",
    ):
        assert brickwork.load(out / name).brickwork_origin.classes or name == "start"
    assert foreign(out, ("demo.json",)) is None  # so that --force takes the tour again
    page = (out / "report.html").read_text()
    for title, _ in list(CHAPTERS.values())[:-1]:
        assert title in page
    assert len(page) < 500_000 and page.count('class="card"') == 12
    assert page.count("<b>What for</b>") == page.count("<b>So what</b>") == page.count("<figure") == 9
    assert json.loads((out / "demo.json").read_text()) == result
    code, printed, _ = run("report", out / "map", "--out", home / "one.html")
    assert code == 0 and ": 1 chapter, " in printed
    for wrong, said in ((out, "--force"), ("/proc/x", "cannot write /proc/x")):
        code, printed, complaint = run("demo", "--out", wrong)
        assert code == 2 and said in complaint and "unexpected" not in complaint and printed == ""


def test_the_commands_of_the_page_run_as_written_and_give_its_numbers(toured, run, monkeypatch):
    home, printed, _ = toured
    monkeypatch.chdir(home)
    found = json.loads(printed)["parts"]
    page = (home / "demo" / "report.html").read_text()
    shown = [html.unescape(text) for text in re.findall(r"<code>([^<]*)</code>", page)]
    assert len(shown) == page.count("<figure") == 9
    for line in "\n".join(shown).splitlines():
        code, _, complaint = _typed(run, line)
        assert code == 0, f"{line}\n{complaint}"
    for name, images, right in (
        ("a", "digits:A", found["algebra"]["parents"]["digits:A"]),
        ("b", "digits:B", found["algebra"]["parents"]["digits:B"]),
        ("team-1", "digits", found["merge"]["parents"]["team-1"]),
        ("by-match", "digits", found["merge"]["match"]),
        ("six", "digits:0,2,4,6,7,9", found["bricks"]["accuracy"]),
        ("ten", "digits", found["dependencies"]["after"]),
    ):
        code, told, complaint = run("eval", name, images, "--json")
        assert code == 0, complaint
        assert json.loads(told)["accuracy"] == pytest.approx(right, abs=0.01), name
    methods = json.loads((home / "tasks" / "continual.json").read_text())["methods"]
    assert methods["pool(size=48)"]["average_accuracy"] == pytest.approx(
        found["pools"]["pool(size=48)"]["accuracy"], abs=0.01
    )
    assert (home / "map" / "map.json").read_bytes() == (home / "demo" / "map" / "map.json").read_bytes()
    for line, _ in next_commands(Path("demo"))[
        :-1
    ]:  # after the page's: no name is taken; the last, a studio, does not end
        code, _, complaint = _typed(run, line)
        assert code == 0, f"{line}\n{complaint}"


def test_on_a_phone_and_at_a_desk(toured, browser):
    """On a phone nothing goes sideways but the picture of routes, in its frame; at a desk words stand beside pictures."""
    page = toured[0] / "demo" / "report.html"
    with browser(page, viewport={"width": 390, "height": 800}) as (tab, complaints):
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth") and not complaints
        moving = "all => all.map(p => p.closest('figure').getAttribute('aria-label'))"
        assert tab.eval_on_selector_all(".picture.more", moving) == ["Decision routes of 0 and 2"]
    with browser(page, viewport={"width": 1400, "height": 900}) as (tab, complaints):
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth") and not complaints
        edge = "e => e.getBoundingClientRect()"
        picture, words = (tab.eval_on_selector(f"figure {name}", edge) for name in (".picture", "figcaption"))
        assert words["left"] >= picture["right"] and words["right"] > 1300
        contents = tab.eval_on_selector("nav", edge)
        assert contents["right"] < picture["left"] and not tab.query_selector_all(".picture.more")


def test_where_no_shell_finds_brickwork_the_first_line_says_what_to_type(tmp_path, monkeypatch):
    (tmp_path / "my env" / "bin").mkdir(parents=True)
    (tmp_path / "my env" / "bin" / "activate").write_text("")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my env"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert how_to_reach()[0] == "  source 'my env/bin/activate'"
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/brickwork")
    assert how_to_reach() == []


def _typed(run, line):
    """A line as a shell takes it apart."""
    name, *words = shlex.split(line)
    assert name == "brickwork"
    return run(*words)


def test_ctrl_c_leaves_the_old_demo(tmp_path):
    out = tmp_path / "demo"
    out.mkdir()
    old = '{"name": "demo", "parts": {}}'
    (out / "demo.json").write_text(old)
    process = subprocess.Popen(
        [sys.executable, "-m", "brickwork", "demo", "--out", str(out), "--force"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
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
    assert (out / "demo.json").read_text() == old
