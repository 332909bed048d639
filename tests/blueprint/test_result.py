"""Surgery returns an ordinary module: it trains, copies, saves and exports; its source is untouched."""

from __future__ import annotations

import copy
import time
import warnings

import pytest
import torch
import torch.nn.functional as F
from checks import TOLERANCE, call, difference, draw_keep, fill, fingerprint, randomise, same, twins
from constructs import BAKED, CONSTRUCTS, IMAGE, OUTPUTS, example
from torch import nn

import brickwork
from brickwork.outputs import logits_of

WITH_NORM = ("chain", "residual", "grouped", "depthwise", "dense", "gate")


def results(name: str) -> dict[str, nn.Module]:
    """One of each kind of result, from one construct."""
    shape, output = example(name), OUTPUTS.get(name)
    a, b = twins(CONSTRUCTS[name])
    bp = brickwork.trace(a, shape, output=output)
    found = {"select": None if name in BAKED else bp.select(a, draw_keep(bp, 4)), "permute": bp.permute(a, {})}
    found["joined"] = brickwork.join([a, b], shape, output=output)
    return {k: v for k, v in found.items() if v is not None}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_copies_and_reloads(name):
    x = fill(example(name), 2)
    for model in results(name).values():
        output = None if type(model).__name__ == "Branches" else OUTPUTS.get(name)
        wanted = call(model, x, output)
        assert torch.equal(call(copy.deepcopy(model), x, output), wanted)
        other = copy.deepcopy(model)
        with torch.no_grad():
            for tensor in [*other.parameters(), *(b for b in other.buffers() if b.is_floating_point())]:
                tensor.zero_()
        other.load_state_dict(model.state_dict())
        assert torch.equal(call(other, x, output), wanted)
        assert {p.dtype for p in model.parameters()} == {torch.float64}
        assert (
            call(copy.deepcopy(model).float(), x.float() if x.is_floating_point() else x, output).dtype == torch.float32
        )


@pytest.mark.parametrize("name", WITH_NORM)
def test_trains(name):
    x = fill(example(name), 2)
    for model in results(name).values():
        model.train()
        before = {n: t.clone() for n, t in model.state_dict().items()}
        step = torch.optim.SGD(model.parameters(), lr=0.1)
        logits = logits_of(model(x), None)
        F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64)).backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
        step.step()
        after = model.state_dict()
        weights = [n for n, p in model.named_parameters() if p.dim() > 1]
        statistics = [n for n in after if n.endswith(("running_mean", "running_var"))]
        moved = {n for n in after if not torch.equal(after[n], before[n])}
        assert set(statistics) <= moved
        assert moved & set(weights)


@pytest.mark.parametrize("name", ["chain", "residual", "grouped"])
def test_trains_as_the_zeroed_model_does(name):
    """With batch statistics too, the part is the whole with silent channels."""
    model = randomise(CONSTRUCTS[name]())
    bp, x = brickwork.trace(model, IMAGE), fill(IMAGE, 3)
    keep = {space: range(size // 2 + 1) for space, size in bp.spaces.items() if space != "classes"}
    small, whole = bp.select(model, keep).train(), bp.zero(model, keep).train()
    assert difference(small(x), whole(x)) <= TOLERANCE


@pytest.mark.parametrize("how", ["select", "permute", "zero", "join"])
def test_the_input_is_left_alone(how):
    model = randomise(CONSTRUCTS["residual"]()).train()
    model.stem[1].eval()
    model.head.weight.requires_grad_(False)
    before, x = fingerprint(model), fill(IMAGE)
    bp = brickwork.trace(model, IMAGE)
    keep = {"stem.0": [0, 3]}
    if how == "join":
        new = brickwork.join([model, model], IMAGE)
    else:
        new = getattr(bp, how)(model, keep if how != "permute" else {"stem.0": [1, 0, *range(2, 8)]})
    assert same(before, fingerprint(model))
    assert new.training
    assert not new.stem[1].training
    if how != "join":
        assert not new.head.weight.requires_grad
        assert new.stem[0].weight.requires_grad
    with torch.no_grad():
        for p in new.parameters():
            p.add_(1)
    new(x)
    assert same(before, fingerprint(model))


@pytest.mark.parametrize("name", ["residual", "grouped", "layer_norm", "attention"])
def test_torch_export(name):
    x = fill(example(name), 4)
    for model in results(name).values():
        program = torch.export.export(model, (x,))
        with torch.no_grad():
            assert difference(program.module()(x), model(x)) <= TOLERANCE


@pytest.mark.parametrize("name", ["residual"])
def test_onnx(name, tmp_path):
    pytest.importorskip("onnxscript", reason="needs the extra dev")
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    x = fill(example(name), 4).float()
    for kind, model in results(name).items():
        path = tmp_path / f"{kind}.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's own
            torch.onnx.export(model.float(), (x,), path, dynamo=True, verbose=False)
        loaded = onnx.load(path)
        (theirs,) = ReferenceEvaluator(loaded).run(None, {loaded.graph.input[0].name: x.numpy()})
        assert difference(torch.from_numpy(theirs.copy()), call(model, x)) <= 1e-4


def test_a_thousand_layers():
    layers = [nn.Linear(3, 4)]
    for _ in range(999):
        layers += [nn.Tanh(), nn.Linear(4, 4)]
    model, shape = randomise(nn.Sequential(*layers)), torch.zeros(1, 3, dtype=torch.float64)
    start = time.process_time()
    bp = brickwork.trace(model, shape)
    keep = {name: [0, 1, 3] for name in bp.spaces}
    small = bp.select(model, keep)
    spent = time.process_time() - start
    x = fill(shape)
    assert len(bp.spaces) == 1000
    assert difference(call(small, x), call(bp.zero(model, keep), x)[:, [0, 1, 3]]) <= TOLERANCE
    assert spent < 30  # a guard against blow-up only: measured 11 to 14 s where a few seconds are wanted
