"""Learned coefficients: what they span, that they are learned, what becomes of batch norms, and wrong requests."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from brickwork import zoo
from brickwork.algebra import adamerge, merge_on, repair
from brickwork.algebra.adamerging import _Space, entropy
from brickwork.errors import BadModel, JobFailed, RequestError
from brickwork.moments import reestimate_batch_norm
from brickwork.origin import origin_of
from brickwork.store import state_hash

QUIET = {"progress": False}


def images(seed, count=60):
    return torch.randn(count, 1, 16, 16, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def nets():
    return [zoo.build("resnet8", num_classes=4, in_channels=1, width=4, seed=s).eval() for s in range(3)]


def test_the_network_is_the_formula(nets):
    zero, a, b = nets
    before = [state_hash(n) for n in nets]
    found = adamerge([a, b], [images(0), images(1)], base=zero, steps=4, lr=0.05, seed=3, **QUIET)
    assert [state_hash(n) for n in nets] == before
    layers = dict.fromkeys(n.rpartition(".")[0] for n, _ in zero.named_parameters())
    assert list(found.coefficients) == list(layers) and len(set(found.coefficients.values())) > 2
    for name, value in found.model.named_parameters():
        one, two = found.coefficients[name.rpartition(".")[0]]
        start, first, second = (dict(n.named_parameters())[name] for n in nets)
        assert (value - (start + one * (first - start) + two * (second - start))).abs().max() < 1e-5
    again = adamerge([a, b], [images(0), images(1)], base=zero, steps=4, lr=0.05, seed=3, **QUIET)
    other = adamerge([a, b], [images(0), images(1)], base=zero, steps=4, lr=0.05, seed=4, **QUIET)
    assert state_hash(again.model) == state_hash(found.model) != state_hash(other.model)
    assert "mean entropy" in str(found) and found.to_dict()["coefficients"]["fc"]


def test_statistics_are_those_of_all_the_images(nets):
    zero, a, b = nets
    sets = [images(0), images(1) + 3.0]
    found = adamerge([a, b], sets, base=zero, steps=1, **QUIET).model
    mixed = torch.cat(sets)[torch.randperm(120, generator=torch.Generator().manual_seed(0))]
    wanted = dict(reestimate_batch_norm(found, [mixed]).named_buffers())
    assert all(torch.equal(b, wanted[n]) for n, b in found.named_buffers())


def test_entropy_falls_and_one_coefficient_a_task(nets):
    zero, a, b = nets
    for per in ("layer", "task"):
        found = adamerge([a, b], [images(0)], base=zero, steps=40, lr=0.02, per=per, **QUIET)
        assert found.entropy[1] < found.entropy[0]
        assert all(0 <= c <= 1 for row in found.coefficients.values() for c in row)
    assert list(found.coefficients) == ["all"]
    small = adamerge([a, b], [images(0)], base=zero, steps=5, lr=0.5, limit=0.2, start=0.3, **QUIET)
    assert max(c for row in small.coefficients.values() for c in row) <= 0.2 + 1e-6


def test_the_gradient_is_that_of_the_formula():
    """d loss / dλ by autograd, and by moving λ a little, in float64."""
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double() for _ in range(3)]
    space, x = _Space(nets[1:], nets[0], "layer"), torch.randn(20, 3, dtype=torch.float64)
    scale = torch.rand(2, 2, dtype=torch.float64, requires_grad=True)
    entropy(space.answer(scale, x)).backward()
    for i in range(2):
        for j in range(2):
            step = torch.zeros_like(scale)
            step[i, j] = 1e-6
            with torch.no_grad():
                moved = [float(entropy(space.answer(scale + s * step, x))) for s in (1, -1)]
            assert scale.grad[i, j].item() == pytest.approx((moved[0] - moved[1]) / 2e-6, abs=1e-7)


def test_teachers_find_the_network_they_are(nets):
    """With one model, what answers as it does is the model itself: λ goes to 1."""
    zero, a, _ = nets
    a = repair(a, images(0, 100))
    found = adamerge([a], [images(0, 100)], base=zero, goal="teachers", per="task", steps=40, lr=0.05, **QUIET)
    assert found.coefficients["all"][0] > 0.9
    merged = merge_on(
        [a], [images(0, 100)], "adamerging", base=zero, goal="teachers", per="task", steps=40, lr=0.05, **QUIET
    )
    assert state_hash(merged) == state_hash(found.model)
    assert origin_of(merged).provenance["merge"]["coefficients"]["all"] == list(found.coefficients["all"])


def test_tied_and_frozen_weights_stay_so():
    torch.manual_seed(0)

    def make():
        net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
        net[2].weight = net[0].weight
        net[0].bias.requires_grad_(False)
        return net

    zero, a = make(), make()
    found = adamerge([a], [torch.randn(30, 3)], base=zero, steps=2, **QUIET)
    net, (share,) = found.model, found.coefficients["0"]
    assert net[2].weight is net[0].weight and not net[0].bias.requires_grad
    assert (net[0].weight - (zero[0].weight + share * (a[0].weight - zero[0].weight))).abs().max() < 1e-5


def test_wrong_requests(nets):
    zero, a, b = nets
    for options, error, message in (
        ({"steps": 0}, RequestError, "steps is 0; it must be a whole number from 1 up"),
        ({"lr": -1}, RequestError, "lr is -1; it must be a number above 0 to 10"),
        ({"per": "tensor"}, RequestError, "per is 'tensor'; it must be layer or task"),
        ({"goal": "teachers"}, RequestError, "one set of images per model, in their order; there are 1 for 2 models"),
        ({"step": 3}, RequestError, "did you mean 'steps'"),
    ):
        with pytest.raises(error, match=message):
            adamerge([a, b], [images(0)], base=zero, **options, **QUIET)
    lenet = zoo.build("lenet", num_classes=4, seed=0)
    with pytest.raises(BadModel, match="model 0 and the base are not of one architecture"):
        adamerge([a], [images(0)], base=lenet, **QUIET)
    huge = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    with torch.no_grad():
        for parameter in huge.parameters():
            parameter.fill_(1e30)
    with pytest.raises(JobFailed, match="the loss became nan in step 1"):
        adamerge([huge], [torch.ones(4, 3)], base=huge, **QUIET)
    huge[0].weight.data[0] = float("nan")
    with pytest.raises(BadModel, match=r"0.weight has values that are NaN"):
        adamerge([huge], [torch.ones(4, 3)], base=huge, **QUIET)


def trunk(seed):
    net = zoo.build("resnet8", num_classes=4, in_channels=1, width=4, seed=seed).eval()
    net.fc = nn.Identity()
    return net


def test_heads_of_the_tasks_own_decide_what_is_learned():
    zero, a, b = (trunk(s) for s in range(3))
    width = a(images(0)[:2]).shape[1]
    torch.manual_seed(0)
    heads = [nn.Linear(width, n) for n in (3, 5)]
    before = [state_hash(n) for n in (zero, a, b, *heads)]
    options = {"base": zero, "goal": "teachers", "steps": 8, "lr": 0.1}
    found = adamerge([a, b], [images(0), images(1)], heads=heads, **options, **QUIET)
    other = adamerge([a, b], [images(0), images(1)], heads=[heads[0], nn.Linear(width, 5)], **options, **QUIET)
    assert [state_hash(n) for n in (zero, a, b, *heads)] == before
    assert all(p.grad is None for head in heads for p in head.parameters())
    assert found.coefficients != other.coefficients
    assert found.model(images(2)[:4]).shape == (4, width)
    same = merge_on([a, b], [images(0), images(1)], "adamerging", heads=heads, **options, **QUIET)
    assert state_hash(same) == state_hash(found.model)


def test_heads_that_do_not_fit_are_refused():
    zero, a, b = (trunk(s) for s in range(3))
    head = nn.Linear(a(images(0)[:2]).shape[1], 3)
    with pytest.raises(RequestError, match="1 heads for 2 models; give one per model"):
        adamerge([a, b], [images(0), images(1)], base=zero, heads=[head], **QUIET)
    with pytest.raises(RequestError, match="one set of images per model"):
        adamerge([a, b], [images(0)], base=zero, heads=[head, head], **QUIET)
    for method in ("match", "linear"):
        with pytest.raises(RequestError, match="does not look at answers; leave heads out"):
            merge_on([a, b], [images(0), images(1)], method, heads=[head, head], **QUIET)
