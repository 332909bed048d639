"""`brickwork transplant` from the command line: nets are shown and tuned, wrong requests write nothing."""

import pytest
from transplant_nets import DIGITS, done, fingerprint


@pytest.fixture
def run(transplant):
    return transplant


def test_show(run, tmp_path):
    """Adapters by several ways and numbers of labels, drawn and not kept."""
    before = fingerprint("net")
    page = tmp_path / "page.html"
    report = done(
        run,
        "show",
        "net",
        "--category",
        "cat",
        "--task",
        "classify",
        "--data",
        DIGITS,
        "--way",
        "direct-learn",
        "--way",
        "closed-form",
        "--labels",
        0,
        "--labels",
        2,
        "--labels",
        5,
        "--steps",
        5,
        "--out",
        page,
    )
    assert [(e["way"], e["labels"]) for e in report["errors"]] == [
        ("direct-learn", 2),
        ("direct-learn", 5),
        ("closed-form", None),
    ]
    assert set(report["spread"]["cat"]) == {"direct-learn", "closed-form"} and report["teachers"]["cat"] < 0.1
    assert page.read_text().startswith("<!doctype html>") and fingerprint("net") == before
    report = done(
        run, "show", "net", "--category", "dog", "--task", "classify", "--data", DIGITS, "--out", tmp_path / "p.svg"
    )
    assert [e["way"] for e in report["errors"]] == ["in the net"]
    for arguments, message in (
        (["--category", "cat"], "cat does not reach classify, so there is no adapter to show"),
        (["--category", "cat", "--lr", 0.1], "--lr is for adapters that are learned here"),
        (["--category", "cat", "--way", "direct-learn"], "direct-learn needs labels"),
        (["--category", "cat", "--way", "closed-form", "--lr", 0.1], "--lr is used by none of these ways"),
        (["--category", "cat", "--way", "closd-form"], "did you mean 'closed-form'?"),
        (["--category", "dog", "--layer", "conv9"], "unknown layer of the task module 'conv9'"),
        (["--category", "dog", "--data", "digits"], "1 --category and 2 --data"),
        ([], "--category is missing: name of a category"),
    ):
        rest = ["--task", "classify", "--data", DIGITS, "--out", tmp_path / "w.html"]
        code, out, err = run("show", "net", *arguments, *rest)
        assert code == 2 and message in err and out == "" and not (tmp_path / "w.html").exists(), err
    code, _, err = run(
        "show", "net", "--category", "dog", "--task", "classify", "--data", DIGITS, "--out", tmp_path / "w.pdf"
    )
    assert code == 2 and "ends in '.pdf'" in err


CONNECT = ["connect", "net", "--category", "cat", "--task", "classify", "--out", "x"]
ADD = ["add", "cat", "--at", "pool1", "--category", "c", "--task", "t", "--out", "x"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*CONNECT, "--way", "distil"], "did you mean 'distill'?"),
        ([*CONNECT, "--way", "direct-learn", "--data", DIGITS], "direct-learn needs labels"),
        ([*CONNECT, "--way", "distill"], "distill with --labels 0 needs images; give --data"),
        ([*CONNECT, "--way", "closed-form", "--labels", 5, "--data", DIGITS], "closed-form uses no labels"),
        ([*CONNECT, "--way", "closed-form", "--lr", 0.1], "--lr is not used by closed-form; leave it out"),
        ([*CONNECT, "--way", "closed-form", "--lr", 1e-3], "--lr is not used by closed-form"),  # its default, and typed
        ([*CONNECT, "--kernel", 2, "--share", 0, "--lr", -1, "--dummy", "third"], "--kernel is '2'; it must be odd"),
        (
            [*CONNECT, "--kernel", 2, "--share", 0, "--lr", -1, "--dummy", "third"],
            "--dummy is 'third'; it must be one of first, second, lowest",
        ),
        ([*CONNECT, "--teacher", "classify"], "cat does not reach classify, so that cannot be its teacher"),
        ([*CONNECT, "--data", "digits:0-4", "--labels", 2], "select as many classes as the task has"),
        ([*CONNECT, "--data", "digits:0-2@5000"], "5000 train images a class asked for"),
        ([*CONNECT, "--at", "pool1"], "no such option '--at'; it belongs to brickwork transplant add; "),
        ([*CONNECT, "--data", "digits", "--data", "digits"], "--data is given 2 times; give it once"),
        (["connect", "net", "--category", "cow", "--task", "classify", "--out", "x"], "unknown category 'cow'"),
        (
            [
                "connect",
                "net",
                "--category",
                "cat",
                "--task",
                "cats",
                "--way",
                "direct-learn",
                "--labels",
                3,
                "--data",
                DIGITS,
                "--out",
                "x",
            ],
            "cat reaches cats already",
        ),
        (["connect", "cat", "--category", "cat", "--task", "cats", "--out", "x"], "cat is no transplant net"),
        (["connect", "net", "--task", "cats", "--out", "x"], "--category is missing: name of a category"),
        ([*ADD[:4], *ADD[4:], "--to", "first", "--category", "d"], "--category is given 2 times; a network brings one"),
        (["add", "cat", "--at", "pool9", "--category", "c", "--task", "t", "--out", "x"], "unknown layer 'pool9'"),
        (["add", "cat", "--category", "c", "--task", "t", "--out", "x"], "give --at"),
        (["add", "cat", "--at", "fc3", "--category", "c", "--task", "t", "--out", "x"], "leaves no layer for the task"),
        (
            ["add", "cat", "--at", "pool1", "--category", "dog", "--task", "t", "--to", "net", "--out", "x"],
            "there is a category 'dog' already",
        ),
        (
            ["add", "wide", "--at", "pool1", "--category", "c", "--task", "t", "--to", "net", "--out", "x"],
            "takes images of 1×20×20 and the net of 1×16×16",
        ),
        ([*ADD, "--only", "category"], "--only category adds no task"),
        ([*ADD, "--steps", 5], "--steps is for a task that is learned on --data"),
        ([*ADD, "--input", "3x16x16"], "takes images of 1×16×16, not 3×16×16"),
        (["add", "nowhere", "--at", "pool1", "--category", "c", "--task", "t", "--out", "x"], "nowhere does not exist"),
        (["export", "net", "--out", "x"], "needs --category, --task, or both"),
        (["export", "net", "--category", "dog", "--task", "cats", "--out", "x"], "dog does not reach cats"),
        (["list", "net", "--out", "x"], "no such option '--out'; it belongs to brickwork transplant add, connect"),
        (["add", "cat", "--at", "pool1", "--category", "c", "--task", "t", "--out", "net"], "net exists already"),
    ],
)
def test_wrong_requests(run, transplant_folders, arguments, message):
    names = sorted(p.name for p in transplant_folders.iterdir())
    code, out, err = run(*arguments)
    assert code == 2 and message in err and out == "" and err.count("\n") == 1, err
    assert sorted(p.name for p in transplant_folders.iterdir()) == names


def test_tune_says_which_answers_differ_now(run, transplant_folders):
    more = ("--steps", "3", "--device", "cpu")
    assert (
        run("connect", "net", "--category", "cat", "--task", "classify", "--way", "closed-form", "--out", "joined")[0]
        == 0
    )
    code, out, err = run(
        "tune", "joined", "--category", "cat", "--task", "classify", "--data", DIGITS, "--out", "tuned", *more
    )
    assert (
        code == 0
        and "other answers than before: " in out
        and "cat → classify" in out
        and (transplant_folders / "tuned").is_dir()
    )
    for wrong, word in (
        (["--category", "cat", "--task", "classify", "--data", DIGITS, "--parts", "heads"], "'heads'"),
        (
            ["--category", "cat", "--task", "classify", "--data", DIGITS, "--lr", "1e30"],
            "--lr is '1e30'; it must be above 0 and below 1",
        ),
        (["--category", "dog", "--task", "cats", "--data", DIGITS], "does not reach"),
        (
            ["--category", "cat", "--task", "classify", "--data", DIGITS, "--way", "distill"],
            "no such option '--way'; it belongs to brickwork transplant connect, show",
        ),
        (["--category", "cat", "--task", "classify"], "--data is missing: images: digits"),
    ):
        code, out, err = run("tune", "joined", *wrong, "--out", "other", "--device", "cpu")
        assert code == 2 and word in err and err.count("\n") == 1 and not (transplant_folders / "other").exists(), err
