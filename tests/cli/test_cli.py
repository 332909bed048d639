"""What every verb promises: quick help, one message for a failure, the right exit code, clean stdout."""

import json
import os
import subprocess
import sys

import click
import numpy as np
import pytest

import brickwork
from brickwork import cli, store, zoo
from brickwork.cli.failures import reporting
from brickwork.cli.printing import remember, typed_line
from brickwork.errors import BadModel, JobFailed, RequestError
from brickwork.options import parse_pairs
from brickwork.words import table

BRICKWORK = [sys.executable, "-m", "brickwork"]
HELP = """
import sys
from brickwork import cli
for words in [[], *([verb] for verb in cli.VERBS), *(list(words) for words, _ in cli.walk()), ["--version"]]:
    try:
        cli.main([*words, "--help"] if words != ["--version"] else words)
    except SystemExit as error:
        assert not error.code, (words, error.code)
    heavy = {"torch", "numpy", "matplotlib", "sklearn", "rich", "yaml", "brickwork_lab.studies"} & set(sys.modules)
    assert not heavy, (words, heavy)
installed = {
    name.partition(".")[0] for name, module in list(sys.modules.items())
    if "site-packages" in (getattr(module, "__file__", None) or "")
}
assert installed <= {"click", "brickwork", "brickwork_lab", "sitecustomize"} | before, installed - before
"""
HELP = f"import sys; before = {{name.partition('.')[0] for name in sys.modules}}\n{HELP}"


def test_help_imports_click_and_no_other_package():
    """Of brickwork, of every verb and of every action: so it is shown at once (0.1 to 0.2 s of one core of 2026)."""
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_lists_every_verb(run):
    code, out, _ = run("--help")
    assert code == 0
    for verb in cli.VERBS:
        assert f"\n  {verb} " in out


def test_version(run):
    assert run("--version") == (0, f"brickwork {brickwork.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inof"], "did you mean 'info'?"),
        (["info", "--jsn"], "did you mean '--json'?"),
        (["info", "lenet", "--arg"], "option '--arg' requires an argument; `brickwork info -h`"),
        (["info", "lenett"], "did you mean 'lenet'?"),
        (["info", "lenet", "--arg", "num_clases=3"], "did you mean 'num_classes'?"),
        (["info", "lenet", "--arg", "five"], "NAME=VALUE"),
        (["info", "no/such/folder"], "is not a folder"),
    ],
)
def test_wrong_requests_exit_with_two_and_say_what_is_right(run, arguments, message):
    code, out, err = run(*arguments)
    assert code == 2
    assert message in err
    assert out == ""
    assert "Traceback" not in err


def test_no_verb_shows_the_help(run):
    _, out, err = run()
    assert "Usage: brickwork" in out + err


def test_info_json_is_one_object(run):
    code, out, _ = run("info", "vgg16", "--arg", "batch_norm=false", "--arg", "num_classes=5", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["arch"] == "vgg16"
    assert data["args"] == {"batch_norm": False, "num_classes": 5}
    assert data["parameters"] == sum(layer["parameters"] for layer in data["layers"])
    assert data["output_shape"] == [5]


def test_info_table(run):
    _, out, _ = run("info", "lenet")
    assert "conv1  Conv2d  6×32×32          456    921,600" in out
    assert "44,726 parameters" in out


def test_info_alone_lists_the_zoo(run):
    _, out, _ = run("info", "--json")
    assert [a["name"] for a in json.loads(out)["architectures"]] == zoo.names()


def test_info_of_own_code_and_other_inputs(run, tmp_path, monkeypatch):
    (tmp_path / "own_net_for_info.py").write_text(
        "from torch import nn\ndef net(width=3):\n    return nn.Conv2d(3, width, 1)\n"
    )
    monkeypatch.chdir(tmp_path)
    code, _, err = run("info", "own_net_for_info:net")
    assert code == 2 and "give --input-shape, as in 3x32x32" in err
    _, out, _ = run("info", "own_net_for_info:net", "--arg", "width=5", "--input", "3x4x4", "--json")
    assert json.loads(out)["flops"] == 2 * 3 * 5 * 16
    assert run("info", "own_net_for_info:net", "--input", "3x4xfour")[0] == 2
    code, _, err = run("info", "own_net_for_info:net", "--input", "7x4x4")
    assert code == 2 and "does not take an input of 7x4x4" in err
    folder = brickwork.save(zoo.build("own_net_for_info:net"), tmp_path / "m")
    assert "names code to import" in run("info", folder)[2]
    assert run("info", folder, "--arch", "own_net_for_info:net", "--input", "3x8x8")[0] == 0
    sys.modules.pop("own_net_for_info")


def test_info_folder(run, tmp_path):
    model = zoo.build("lenet", num_classes=3, seed=0)
    folder = brickwork.save(model, tmp_path / "m", provenance={"data": "digits:A"})
    _, out, _ = run("info", folder, "--json")
    data = json.loads(out)
    assert data["arch"] == "lenet"
    assert data["provenance"] == {"data": "digits:A"}
    assert data["state_hash"] == store.state_hash(model)
    code, out, _ = run("info", folder)
    assert code == 0 and "digits:A" in out
    assert run("info", folder, "--arg", "num_classes=4")[0] == 2
    (folder / "model.safetensors").write_bytes(b"short")
    code, out, err = run("info", folder)
    assert code == 2 and out == "" and "damaged" in err


# how a verb fails


def failing(error):
    def command(debug: bool = False) -> None:
        raise error

    return reporting(command)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (RequestError("no such thing"), 2, "brickwork: no such thing\n"),
        (BadModel("bad"), 2, "brickwork: bad\n"),
        (JobFailed("disk full"), 1, "brickwork: disk full\n"),
        (KeyboardInterrupt(), 130, "brickwork: stopped by Ctrl-C; nothing half-written was left behind.\n"),
        (ZeroDivisionError("x"), 1, "brickwork: unexpected ZeroDivisionError: x. "),
    ],
)
def test_failures(capsys, error, code, message):
    with pytest.raises(click.exceptions.Exit) as caught:
        failing(error)()
    out, err = capsys.readouterr()
    assert caught.value.exit_code == code
    assert out == ""
    assert err.startswith(message)
    assert err.count("\n") == 1
    assert ("--debug" in err) == isinstance(error, ZeroDivisionError)


def test_debug_shows_the_traceback(capsys):
    with pytest.raises(click.exceptions.Exit):
        failing(RequestError("no such thing"))(debug=True)
    assert "Traceback" in capsys.readouterr().err


def test_clicks_own_exceptions_pass():
    for error in (click.exceptions.Exit(3), click.BadParameter("x"), click.Abort()):
        with pytest.raises(type(error)):
            failing(error)()


def test_a_closed_pipe_is_no_failure():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*BRICKWORK, "info", "lenet"], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert "Traceback" not in done.stderr
    assert "fault of Brickwork" not in done.stderr


def test_pairs():
    assert parse_pairs([]) == {}
    assert parse_pairs(["a=1", "b=x=y", "c=[1, 2]", "d=null"]) == {"a": 1, "b": "x=y", "c": [1, 2], "d": None}
    for wrong in ("a", "=3", ""):
        with pytest.raises(RequestError, match="NAME=VALUE"):
            parse_pairs([wrong])


def test_table_of_nothing():
    assert table(["a", "b"], []) == "a  b"


def test_numpys_numbers_stand_right_in_a_table():
    assert table(["n", "wide"], [["x", np.float64(0.5)], ["y", ""]]) == "n  wide\nx   0.5\ny"


@pytest.mark.parametrize("device", [["--device", "cpu"], ["--device=cpu"], []])
def test_a_typed_line_leaves_out_what_changes_nothing(device):
    remember(["routes", *device, "a b", "--json", "--force", "--debug", "--seed=3"])
    assert typed_line() == "brickwork routes 'a b' --seed=3"
