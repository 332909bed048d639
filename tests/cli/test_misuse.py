"""What typer refuses is told in one sentence: the value, what is allowed, what to do next; exit 2."""

from __future__ import annotations

import pytest

WRONG = {
    "train lenet digits --epochs abc --out z": "--epochs is 'abc'; it must be a whole number",
    "train lenet digits --device=tpu --out z": "--device is 'tpu'; it must be one of 'auto', 'cpu', 'cuda'",
    "study latency --seeds 0": "--seeds is '0'; it must be 1 or more",
    "merge a b --weight 1 --weight x --out z": "--weight is 'x'; it must be a number",
    "transplant nope": "invalid value for 'action': 'nope' is not one of 'add', 'connect'",
    "train lenet": "missing argument 'data'",
    "train lenet digits --out": "option '--out' requires an argument; `brickwork train -h`",
    "trian": "Did you mean 'train'",
    "train --nope": "no such option: --nope",
    "train lenet digits extra --out z": "(extra)",
}


@pytest.mark.parametrize(("typed", "expected"), WRONG.items(), ids=WRONG)
def test_one_sentence_and_exit_2(typed, expected, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*typed.split())
    assert code == 2 and not out and not list(tmp_path.iterdir())
    assert err.count("\n") == 1 and err.startswith("brickwork: ") and expected in err and "-h` shows" in err


def test_brickwork_alone_shows_its_verbs(run):
    code, out, err = run()
    assert "Usage: brickwork" in out + err and "disassemble" in out + err and code in (0, 2)
