"""What fresh eyes found to be silently wrong; each of these failed once."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import data, zoo
from brickwork.algebra import balanced_point
from brickwork.errors import BadData, BadFile, BadModel, RequestError
from brickwork.origin import origin_of


def lenet(seed: int = 0, classes: int = 3) -> nn.Module:
    return zoo.build("lenet", num_classes=classes, in_channels=1, seed=seed).eval()


@pytest.fixture(scope="module")
def digits():
    return data.load("digits:0-2@12", size=16, channels=1)


def trained(digits, **options) -> nn.Module:
    return brickwork.train(lenet(), digits, epochs=1, progress=False, **options).model


def test_training_moves_aside_what_was_said_before(digits):
    model = trained(digits, seed=1)
    first = origin_of(model).provenance
    assert first["train"]["seed"] == 1 and "before" not in first
    brickwork.train(model, digits, epochs=1, seed=2, progress=False)
    again = origin_of(model).provenance
    assert again["train"]["seed"] == 2 and again["before"] == first


def test_new_classes_are_recorded_with_their_own_options(digits):
    base = trained(digits)
    new = data.load("digits:5,6@12", size=16, channels=1)
    grown = origin_of(brickwork.depend.add(base, new, base_data=digits, seed=3)).provenance
    assert grown["depend add"]["seed"] == 3 and grown["depend add"]["strength"] > 0
    assert grown["before"] == origin_of(base).provenance


def test_a_brick_that_was_trained_is_not_made_anew_from_its_source(digits):
    net = trained(digits)
    pair = (digits.train_images, digits.train_labels)
    bricks = [brickwork.disassemble(net, c, pair, keep=0.5, repair="none", progress=False) for c in ([0, 1], [2])]
    part = brickwork.train(
        bricks[0].model, data.load("digits:0,1@12", size=16, channels=1), epochs=1, progress=False
    ).model
    facts = origin_of(part).provenance["brick"]
    assert facts["used"]["trained"] is True
    again = brickwork.Brick(**{**vars(bricks[0]), "model": part, "used": facts["used"]})
    joined = brickwork.assemble([again, bricks[1]], source=net, calibrate="none").eval()
    x = torch.rand(2, 1, 16, 16)
    assert torch.allclose(joined(x)[:, :2], part.eval()(x), atol=1e-5)
    with pytest.raises(RequestError, match="was trained since it was cut"):
        brickwork.assemble([again, bricks[1]], shared="union")


def test_what_is_recorded_is_what_was_done(digits):
    moved = brickwork.transfer(trained(digits), digits, epochs=1, progress=False, attribution="taylor", threshold=2.0)
    assert origin_of(moved.model).provenance["transfer"]["weight_decay"] == 0.0
    plain = brickwork.treat(trained(digits), digits, rule="plain", epochs=1, progress=False)
    assert origin_of(plain.model).provenance["treat"]["strength"] is None
    merged = brickwork.merge([lenet(0), lenet(1)], "linear", seed=5, bn="keep")
    assert origin_of(merged).provenance["merge"]["seed"] == 5 and origin_of(merged).provenance["merge"]["bn"] == "keep"


def test_a_data_set_brings_its_own_labels(digits):
    with pytest.raises(BadData, match="brings its own labels"):
        brickwork.eval(lenet(), digits, labels=torch.zeros(3))
    with pytest.raises(BadData, match="brings its own labels"):
        brickwork.train(lenet(), digits, torch.zeros(3), epochs=1)
    with pytest.raises(RequestError, match="device is 'nonsense'"):
        brickwork.eval(lenet(), digits, device="nonsense")


def test_options_that_cannot_be_right(digits):
    with pytest.raises(RequestError, match=r"seed is \d+; it must be 0 to"):
        brickwork.train(lenet(), digits, seed=2**64)
    with pytest.raises(RequestError, match="schedule is 'milestones'; it must be one of cosine, onecycle, constant"):
        brickwork.treat(lenet(), digits, schedule="milestones")
    with pytest.raises(RequestError, match="it must be two numbers"):
        balanced_point(lenet(), lenet(1), data=[digits], start=(0.1,))


def test_a_device_that_the_solver_does_not_use():
    device = "cuda" if torch.cuda.is_available() else "cpu:0"
    with pytest.raises(RequestError, match=f"device is '{device}', and solver auto computes on the CPU"):
        brickwork.CovLasso(lam=0.1, device=device).fit(np.eye(4))


def test_an_array_of_options_is_shown():
    assert repr(brickwork.CovLasso(lam=np.array([0.1, 0.2]))) == "CovLasso(lam=array([0.1, 0.2]))"


def test_a_join_that_does_not_say_how_is_refused(tmp_path):
    folder = brickwork.save(brickwork.join([lenet(0), lenet(1)], torch.zeros(1, 1, 16, 16)), tmp_path / "j")
    config = json.loads((folder / "config.json").read_text())
    del config["steps"][0]["how"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadFile, match="records surgery that cannot be done again"):
        brickwork.load(folder)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("train lenet digits:A --cut-by coefficient --out x", "--cut-by needs --cut A:B"),
        ("info lenet --arch no:where", "--arch is for a folder"),
        ("train lenet digits:A --epochs 1 --metrics /proc/x/m --out x", "cannot write /proc/x/m"),
        (
            "sweep {a} --beta 0,0.5 --alpha 0,1 --data digits:A --engine processes:1 --out x",
            "--beta belongs to the second",
        ),
        (
            "train lenet digits:A --metrics m --out x",
            "m exists already; choose another --metrics, or give --force to replace it",
        ),
        ("train lenet digits:A --no-resume --out x", "--resume is off without a --checkpoint"),
        ("train lenet digits:A --epochs 3 --milestones 2,5 --out x", "so the rate would not fall at 5"),
        ("depend fit {a} --data digits:A --decision-weight 9 --out x", "--decision-weight is not used by --loss plain"),
        (
            "depend fit {a} --data digits:A --loss balanced --label-share 0.5 --out x",
            "--label-share is not used by --loss balanced",
        ),
        (
            "transfer {a} --data digits:A --what all --attribution frat --out x",
            "--attribution is not used, as --what all holds nothing; leave it out",
        ),
        ("treat {a} --data digits:A --rule plain --threshold 2 --out x", "--threshold is not used by --rule plain"),
        ("assemble {a} {a} --images 5 --out x", "--images is 5, and there is no --data to take them from"),
        (
            "transplant add {part} --category dog --carry conv1 --out x",
            "--carry is ('conv1',), and this folder is a part",
        ),
        (
            "continual digits --tasks 2 --methods finetune,probe --start lenet --pool {pool} --out x",
            "--pool is given, and none of --methods uses one",
        ),
    ],
)
def test_refused_on_the_command_line(run, tmp_path, monkeypatch, typed, expected):
    monkeypatch.chdir(tmp_path)
    net = zoo.build("lenet", num_classes=5, seed=0)
    Path("m").write_text("of an earlier run")
    if "{a}" in typed:
        brickwork.save(net, "a")
    if "{part}" in typed:
        grown = brickwork.transplant.add(None, net, at="pool1", category="dog", task="classify").net
        brickwork.save(brickwork.transplant.export(grown, category="dog"), "part")
    if "{pool}" in typed:
        brickwork.pool.PoolFolder.create("pool", brickwork.KernelPool.cluster([net], size=8))
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    code, out, err = run(*typed.format(a="a", part="part", pool="pool").split())
    assert code == 2 and out == "" and expected in err
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()} == before


def test_the_metrics_of_a_run_that_goes_on(run, tmp_path, monkeypatch):
    """The same command after a stop finds the file that it began; without its checkpoint it would lose it."""
    monkeypatch.chdir(tmp_path)
    run = functools.partial(run, "train", "lenet", "digits:A@5", "--epochs", 1, "--metrics", "m", "--checkpoint", "c")
    assert run("--out", "one")[0] == 0
    assert run("--out", "two")[0] == 0 and len(Path("m").read_text().splitlines()) == 1
    code, _, err = run("--out", "three", "--no-resume")
    assert code == 2 and "m exists already; choose another --metrics" in err and not Path("three").exists()
    assert run("--out", "three", "--no-resume", "--force")[0] == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"keep": 0.5, "tolerance": 0.3}, "tolerance is not used beside keep"),
        ({"keep": 0.5, "of": "macs"}, "of is not used beside keep"),
        ({"budget": 0.5, "repair": "none", "ridge": 3.0}, "ridge is not used by repair none"),
    ],
)
def test_an_option_without_a_use_is_refused(digits, options, expected):
    with pytest.raises(RequestError, match=expected):
        brickwork.compress(lenet(), digits, **options)


@pytest.mark.parametrize("make", [torch.jit.script, lambda net: torch.jit.trace(net, torch.zeros(2, 4))])
def test_scripted_and_traced_modules_are_refused_by_name(make):
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    for given in (make(net), nn.Sequential(make(net), nn.Identity())):
        with pytest.raises(BadModel, match=r"scripted or traced \(torch.jit\); give the nn.Module"):
            brickwork.trace(given, torch.zeros(2, 4))
        with pytest.raises(BadModel, match="scripted or traced"):
            brickwork.compress(given, (torch.randn(20, 4), torch.arange(20) % 3), budget=0.5, progress=False)
