"""EMR-Merging: the paper's formula, networks it merges without loss, and the file."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.algebra import MaskedMerge, mask_merge
from brickwork.errors import BadFile, BadModel, RequestError
from brickwork.store import state_hash


def networks(count, seed=0):
    return [zoo.build("resnet8", num_classes=3, in_channels=1, width=4, seed=seed + k).double() for k in range(count)]


def test_of_one_network_it_is_that_network():
    base, a = networks(2)
    with torch.no_grad():
        next(t for n, t in a.state_dict().items() if n.endswith("running_var")).fill_(3.0)
    for tasks in ([a], [a, a]):
        for k in range(len(tasks)):
            again = mask_merge(tasks, base=base).network(base, k)
            assert all((v - again.state_dict()[n]).abs().max() <= 1e-12 for n, v in a.state_dict().items())


def test_it_is_the_papers_formula():
    base, *models = networks(4)
    hashes = [state_hash(m) for m in (base, *models)]
    found = mask_merge(models, base=base)

    def flat(model):
        return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])

    zero = flat(base)
    steps = np.stack([flat(m) - zero for m in models])
    sign = np.sign(steps.sum(0))
    vector = sign * np.where(np.sign(steps) == sign, abs(steps), 0).max(0)
    for k, step in enumerate(steps):
        mask = step * vector > 0
        scale = abs(step).sum() / abs(vector[mask]).sum()
        assert found.scales[k] == pytest.approx(scale, rel=1e-12)
        network = found.network(base, k)
        assert abs(flat(network) - zero - scale * mask * vector).max() <= 1e-12
        for name, value in models[k].state_dict().items():
            if "running" in name:
                assert torch.equal(network.state_dict()[name], value)
    assert [state_hash(m) for m in (base, *models)] == hashes


def test_tall_masks_and_their_consensus_are_the_papers_formula(tmp_path):
    base, *models = networks(4)

    def flat(model):
        return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])

    zero = flat(base)
    steps = np.stack([flat(m) - zero for m in models])
    vector = steps.sum(0)
    masks = [abs(step) >= 0.5 * abs(vector - step) for step in steps]
    mask_merge(models, base=base, rule="tall", threshold=0.5).save(tmp_path / "m.safetensors")
    found = MaskedMerge.load(tmp_path / "m.safetensors")
    assert found.options.rule == "tall" and found.options.threshold == 0.5 and set(found.scales) == {1.0}
    for k, mask in enumerate(masks):
        assert 0 < mask.mean() < 1
        assert abs(flat(found.network(base, k)) - zero - mask * vector).max() <= 1e-12
    one = found.consensus(base, at_least=2, scale=0.5)
    assert abs(flat(one) - zero - 0.5 * (sum(masks) >= 2) * vector).max() <= 1e-12
    for name, value in one.state_dict().items():
        if "running" in name:
            mean = torch.stack([m.state_dict()[name] for m in models]).mean(0)
            assert (value - mean).abs().max() <= 1e-12
    alone = mask_merge(models[:1], base=base, rule="tall").network(base, 0)
    assert abs(flat(alone) - flat(models[0])).max() <= 1e-12


def test_wrong_requests_of_masks():
    base, a, b = networks(3)
    with pytest.raises(RequestError, match="threshold is not used by rule emr"):
        mask_merge([a, b], base=base, threshold=0.3)
    with pytest.raises(RequestError, match="rule is 'tal'"):
        mask_merge([a, b], base=base, rule="tal")
    found = mask_merge([a, b], base=base, rule="tall")
    for given, said in (({"at_least": 3}, "from 1 to 2"), ({"scale": float("inf")}, "finite")):
        with pytest.raises(RequestError, match=said):
            found.consensus(base, **given)


def test_the_file_is_read_back_and_knows_its_base(tmp_path):
    base, a, b = networks(3)
    found = mask_merge([a, b], base=base)
    found.save(tmp_path / "m.safetensors")
    again = MaskedMerge.load(tmp_path / "m.safetensors")
    assert [state_hash(again.network(base, k)) for k in range(2)] == [
        state_hash(found.network(base, k)) for k in range(2)
    ]
    assert again.to_dict() == found.to_dict() and "2 tasks on one vector" in str(again) and found._repr_html_()
    numbers = sum(p.numel() for p in base.parameters())
    assert all(len(mask) == -(-numbers // 8) for mask in found.masks)
    found.save(tmp_path / "n.safetensors")
    assert (tmp_path / "n.safetensors").read_bytes() == (tmp_path / "m.safetensors").read_bytes()
    with pytest.raises(BadModel, match="belong to a base with hash"):
        again.network(a, 0)
    with pytest.raises(RequestError, match="task is 2; it must be from 0 to 1"):
        again.network(base, 2)
    with pytest.raises(RequestError, match="nothing to merge"):
        mask_merge([], base=base)
    with pytest.raises(BadModel, match="not of one architecture"):
        mask_merge([nn.Linear(2, 2)], base=base)
    brickwork.delta(a, base).save(tmp_path / "g.safetensors")
    with pytest.raises(BadFile, match="is no file of masks"):
        MaskedMerge.load(tmp_path / "g.safetensors")
    with pytest.raises(BadFile, match="does not exist"):
        MaskedMerge.load(tmp_path / "nothing")
    spoilt = bytearray((tmp_path / "m.safetensors").read_bytes())
    spoilt[-1] ^= 1
    (tmp_path / "m.safetensors").write_bytes(spoilt)
    with pytest.raises(BadFile):
        MaskedMerge.load(tmp_path / "m.safetensors")


def test_tasks_that_changed_different_numbers_are_both_kept_whole():
    """Where the other did not move, a mask leaves a task just its own difference: nothing is lost, as the mean loses half."""
    torch.manual_seed(0)
    base, a, b = (nn.Linear(20, 5).double() for _ in range(3))
    with torch.no_grad():
        a.weight[:, 10:], b.weight[:, :10] = base.weight[:, 10:], base.weight[:, :10]
        a.bias[:], b.bias[:] = base.bias, base.bias
    found = mask_merge([a, b], base=base)
    assert found.scales == pytest.approx((1, 1), rel=1e-12)
    for k, model in enumerate((a, b)):
        assert (found.network(base, k).weight - model.weight).abs().max() <= 1e-12
        assert (brickwork.merge([a, b]).weight - model.weight).abs().max() > 0.05
