"""What cannot be right is told in one sentence: the value, what is allowed, what to do next; exit 2."""

from __future__ import annotations

import pytest
import torch

import brickwork
from brickwork import zoo
from brickwork.cli import VERBS, WORDS

WRONG = {
    "train lenet digits --epochs abc --out z": "--epochs is 'abc'; it must be a whole number",
    "study latency --seeds 0": "--seeds is '0'; it must be 1 or more",
    "merge a b --weight 1 --weight x --out z": "--weight is 'x'; it must be a number",
    "transplant nope": "no such command 'nope'; it must be one of add, connect, tune, list, export, show, run",
    "train lenet": "missing argument 'DATA'; `brickwork train -h`",
    "train lenet digits --out": "option '--out' requires an argument; `brickwork train -h`",
    "trian": "no such command 'trian'; did you mean 'train'? `brickwork -h`",
    "transplant conect": "no such command 'conect'; did you mean 'connect'? `brickwork transplant -h`",
    "prune a --data pics": "no such command 'prune'; did you mean 'compress'? `brickwork -h`",
    "eval a --data pics": "no such option '--data'; it is given by its place: brickwork eval MODEL DATA; `brickwork eval -h`",
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


def test_what_others_call_a_verb_is_no_verb_and_means_one():
    assert not set(WORDS) & set(VERBS) and set(WORDS.values()) <= set(VERBS)


def test_what_is_no_model_folder_names_the_next_step(run, tmp_path):
    model = brickwork.save(zoo.build("lenet", num_classes=2, seed=0), tmp_path / "several" / "0.5")
    torch.save(zoo.build("lenet").state_dict(), tmp_path / "net.pth")
    told = {
        tmp_path / "net.pth": f"Weights become one by brickwork import {tmp_path / 'net.pth'} --arch",
        model / "model.safetensors": f"Give {model}.",
        model.parent: f"It holds some: give {model}.",
    }
    for given, expected in told.items():
        code, out, err = run("info", given) if given.is_dir() else run("eval", given, "digits")
        assert code == 2 and not out and expected in err
