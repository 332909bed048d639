"""What cannot be right is told in one sentence: the value, what is allowed, what to do next; exit 2."""

from __future__ import annotations

import pytest

WRONG = {
    "train lenet digits --epochs abc --out z": "--epochs is 'abc'; it must be a whole number",
    "study latency --seeds 0": "--seeds is '0'; it must be 1 or more",
    "merge a b --weight 1 --weight x --out z": "--weight is 'x'; it must be a number",
    "transplant nope": "no such command 'nope'; it must be one of add, connect, tune, list, export, show, run",
    "train lenet": "missing argument 'DATA'; `brickwork train -h`",
    "train lenet digits --out": "option '--out' requires an argument; `brickwork train -h`",
    "trian": "no such command 'trian'; did you mean 'train'? `brickwork -h`",
    "transplant conect": "no such command 'conect'; did you mean 'connect'? `brickwork transplant -h`",
    "xyzzy": "no such command 'xyzzy'; `brickwork -h`",
    "--nope": "no such option '--nope'; `brickwork -h`",
    "train --nope": "no such option '--nope'; `brickwork train -h`",
    "train lenet digits --epoch 3": "no such option '--epoch'; did you mean '--epochs'? `brickwork train -h`",
    "train lenet digits --no-nestrov": "did you mean '--no-nesterov'?",
    "train lenet digits extra --out z": "(extra)",
}


@pytest.mark.parametrize(("typed", "expected"), WRONG.items(), ids=WRONG)
def test_one_sentence_and_exit_2(typed, expected, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*typed.split())
    assert code == 2 and not out and not list(tmp_path.iterdir())
    assert err.count("\n") == 1 and err.startswith("brickwork: ") and expected in err and "-h` shows" in err


def test_a_device_that_does_not_exist(run, tmp_path):
    code, out, err = run("train", "lenet", "digits", "--device=tpu", "--out", tmp_path / "z")
    assert code == 2 and not out and not list(tmp_path.iterdir())
    assert err == "brickwork: --device is 'tpu'; it must be auto, cpu, cuda, cuda:N or mps.\n"


def test_brickwork_alone_shows_its_verbs(run):
    code, out, err = run()
    assert "Usage: brickwork" in out + err and "disassemble" in out + err and code in (0, 2)
