"""Deltas: θ + αg, files that know their base, and what is refused."""

from __future__ import annotations

import copy

import pytest
import torch

import brickwork
from brickwork import zoo
from brickwork.algebra import Delta, combine
from brickwork.errors import BadFile, BadModel, OutputExists, RequestError
from brickwork.origin import origin_of
from brickwork.store import state_hash


@pytest.fixture
def nets():
    return [zoo.build("resnet8", num_classes=4, seed=s, width=8).double().eval() for s in range(3)]


def same(a, b, tolerance=1e-12):
    return all((x - b.state_dict()[n]).abs().max() <= tolerance for n, x in a.state_dict().items())


def test_adding_what_training_added_gives_the_trained_network(nets):
    zero, a, b = nets
    before = [state_hash(n) for n in nets]
    g = brickwork.delta(a, zero)
    assert same(brickwork.assign(zero, g), a) and same(brickwork.assign(zero, g, 0.0), zero)
    assert same(brickwork.assign(a, -g), zero)
    assert same(brickwork.assign(zero, g, 0.3), brickwork.assign(a, g, -0.7))
    h = brickwork.delta(b, zero)
    both = brickwork.assign(zero, 2 * g + h / 4)
    assert same(both, brickwork.assign(brickwork.assign(zero, g, 2.0), h, 0.25))
    assert same(brickwork.assign(zero, (g + h) - h), a)
    assert [state_hash(n) for n in nets] == before
    assert origin_of(brickwork.assign(zero, g)).provenance["assign"]["alpha"] == 1.0


def test_products(nets):
    zero, a, b = nets
    g, h = brickwork.delta(a, zero), brickwork.delta(b, zero)
    assert g.dot(g) == pytest.approx(g.norm() ** 2) and g.dot(h) == pytest.approx(h.dot(g))
    assert "numbers, norm" in str(g)


def test_fusion(nets):
    zero, a, b = nets
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    half = combine([(0.5, a), (0.5, b)])
    for name, value in half.state_dict().items():
        if value.is_floating_point():
            assert torch.allclose(value, (a.state_dict()[name] + b.state_dict()[name]) / 2)
    assert same(combine([(1.0, a)]), a) and half(x).shape == (2, 4)
    assert same(combine([(1, a), (1, b), (-1, zero)]), brickwork.assign(a, brickwork.delta(b, zero)), 1e-10)
    kept = combine([(2.0, a), (1.0, b)], bn="keep")
    statistics = {n: t for n, t in a.named_buffers() if n.endswith("running_var")}
    assert statistics and all(torch.equal(dict(kept.named_buffers())[n], t) for n, t in statistics.items())


def test_a_file_that_knows_its_base(nets, tmp_path):
    zero, a, b = nets
    g = brickwork.delta(a, zero)
    path = g.save(tmp_path / "g.safetensors")
    again = Delta.load(path)
    assert again.base == state_hash(zero) and all(torch.equal(again.tensors[n], t) for n, t in g.tensors.items())
    assert same(brickwork.assign(zero, again, strict=True), a)
    with pytest.raises(BadModel, match="taken from a network with hash"):
        brickwork.assign(b, again, strict=True)
    assert (g + brickwork.delta(a, b)).base is None
    with pytest.raises(OutputExists):
        g.save(path)
    with pytest.raises(BadFile, match="does not exist"):
        Delta.load(tmp_path / "nothing.safetensors")
    brickwork.save(a, tmp_path / "a")
    with pytest.raises(BadFile, match="is not a delta; brickwork delta"):
        Delta.load(tmp_path / "a" / "model.safetensors")


def test_integers_and_statistics(nets):
    zero, a, _ = nets
    with torch.no_grad():
        for buffer in a.buffers():
            buffer.copy_(torch.tensor(9) if not buffer.is_floating_point() else buffer * 0.1)
    g = brickwork.delta(a, zero)
    assert not any(n.endswith("num_batches_tracked") for n in g.tensors)
    with pytest.raises(BadModel, match="variance cannot be negative; give images"):
        brickwork.assign(zero, g, 5.0)
    kept = brickwork.assign(zero, g, 5.0, bn="keep")
    assert all(torch.equal(v, dict(zero.named_buffers())[n]) for n, v in kept.named_buffers())


def test_statistics_are_measured_where_images_are_given(nets):
    """bn="recalibrate", what is done with images, and "batch": those of the activations that the new network has."""
    zero, a, _ = nets
    g = brickwork.delta(a, zero)
    images = torch.randn(300, 3, 16, 16, dtype=torch.float64)
    before = [state_hash(net) for net in nets]
    made = {
        "assign": lambda **o: brickwork.assign(zero, g, -3.0, images=images, **o),
        "combine": lambda **o: combine([(2.0, a), (-5.0, zero)], images=images, **o),
    }
    for make in made.values():
        new, same, batch = make(), make(bn="recalibrate"), make(bn="batch")
        assert state_hash(new) == state_hash(same) != state_hash(batch)
        with torch.no_grad():
            assert torch.allclose(batch.eval()(images), batch.train()(images), atol=2e-2, rtol=2e-2)
    assert [state_hash(net) for net in nets] == before
    with pytest.raises(RequestError, match="statistics are measured by running a network, and this is a dictionary"):
        brickwork.assign(zero.state_dict(), g, images=images)
    with pytest.raises(RequestError, match="bn is batch, which measures statistics on images, and none are given"):
        combine([(1.0, a)], bn="batch")


def test_half_precision_keeps_its_type():
    zero, one = ({"w": torch.full((3,), v, dtype=torch.bfloat16)} for v in (1.0, 1.5))
    g = brickwork.delta(one, zero)
    assert g.tensors["w"].dtype == torch.float32
    assert brickwork.assign(zero, g, 2.0)["w"].tolist() == [2.0] * 3
    assert brickwork.assign(zero, g)["w"].dtype == torch.bfloat16


def test_what_does_not_fit(nets):
    zero, a, _ = nets
    g = brickwork.delta(a, zero)
    with pytest.raises(BadModel, match="the network and the delta are not of one architecture; they differ in"):
        brickwork.assign(zoo.build("lenet", num_classes=4, seed=0), g)
    with pytest.raises(RequestError, match="bn is 'x'"):
        brickwork.assign(zero, g, bn="x")
    with pytest.raises(RequestError, match="the trained network is a list"):
        brickwork.delta([1], zero)
    with pytest.raises(RequestError, match="nothing to combine"):
        combine([])
    broken = copy.deepcopy(a)
    next(broken.parameters()).data[0] = float("inf")
    with pytest.raises(BadModel, match="NaN or infinite"):
        brickwork.delta(broken, zero)


@pytest.mark.parametrize("alpha", [float("nan"), float("inf"), -float("inf")])
def test_factors_that_are_no_numbers_are_refused(nets, alpha):
    zero, a, _ = nets
    with pytest.raises(RequestError, match=r"alpha is -?(nan|inf); a factor must be a finite number"):
        brickwork.assign(a, brickwork.delta(a, zero), alpha)
    with pytest.raises(RequestError, match=r"terms hold -?(nan|inf)"):
        combine([(1.0, zero), (alpha, a)])


def test_sums_that_overflow_are_refused(nets):
    zero, a = nets[0].float(), nets[1].float()
    with pytest.raises(BadModel, match="has values that are NaN or infinite"):
        brickwork.assign(a, brickwork.delta(a, zero), 1e40)


def test_a_file_name_is_no_delta(nets):
    with pytest.raises(RequestError, match="g is a str; it must be a Delta"):
        brickwork.assign(nets[0], "g.safetensors")
