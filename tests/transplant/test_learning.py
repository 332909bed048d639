"""Adapters: the closed form is exact where it can be, every way learns, and nothing but the adapter changes."""

from __future__ import annotations

import pytest
import torch

from brickwork import zoo
from brickwork.blueprint.splitting import split
from brickwork.errors import BadData, RequestError
from brickwork.store import state_hash
from brickwork.transplant import (
    WAYS,
    Adapter,
    Chain,
    Dummy,
    balance,
    learn_adapter,
    solve_features,
    solve_pseudo_gradients,
)
from brickwork.transplant.terms import answer_loss, task_loss


@pytest.fixture(scope="module")
def parts():
    """Two networks cut behind their first pool, and features of some images."""
    torch.manual_seed(0)
    cuts = [split(zoo.build("lenet", num_classes=2, seed=s, in_channels=1).eval(), "pool1") for s in (0, 1)]
    images = torch.rand(60, 1, 32, 32)
    return cuts, images, cuts[0].below(images).detach()


@pytest.mark.parametrize(("layers", "kernel"), [(1, 1), (1, 3), (3, 3), (3, 1)])
def test_the_closed_form_undoes_a_reordering_without_a_single_image(parts, layers, kernel):
    features = parts[2]
    double = split(zoo.build("lenet", num_classes=2, seed=0, in_channels=1).double().eval(), "pool1").above
    given = features.double()
    adapter = Adapter(6, 6, layers=layers, kernel=kernel, order=torch.randperm(6), scale=0.5).double()
    chain = Chain(double, given[:1])
    solved = solve_pseudo_gradients(adapter, chain, chain, draws=16, ridge=0.0)
    with torch.no_grad():
        assert (double(solved(given)) - double(given)).abs().max() <= 1e-8
    assert adapter.convs[0].weight.abs().sum() == torch.tensor(6.0)  # the one given is as it was


def test_the_chain_of_an_adapter_is_its_transpose():
    adapter = Adapter(3, 5, layers=2, kernel=3, start="random", order=torch.tensor([2, 0, 1]), scale=0.7).double()
    for conv in adapter.convs:
        conv.bias.data.fill_(100.0)  # every ReLU is open, so autograd agrees
    x = torch.rand(2, 3, 6, 6, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn(2, 5, 6, 6, dtype=torch.float64)
    (wanted,) = torch.autograd.grad(adapter(x), x, gradient)
    assert (adapter.back(gradient) - wanted).abs().max() <= 1e-12


def test_stitching_onto_paired_features(parts):
    cuts, images, features = parts
    wanted = cuts[1].below(images).detach()
    solved = solve_features(Adapter(6, 6, kernel=3), features, wanted)
    with torch.no_grad():
        left = ((solved(features) - wanted) ** 2).sum() / ((wanted - wanted.mean((0, 2, 3), keepdim=True)) ** 2).sum()
        before = ((features - wanted) ** 2).sum() / ((wanted - wanted.mean((0, 2, 3), keepdim=True)) ** 2).sum()
    assert left < 0.5 * before
    with pytest.raises(RequestError, match="not paired"):
        solve_features(Adapter(6, 6), features, wanted[:5])


@pytest.mark.parametrize("way", list(WAYS))
def test_every_way_learns_and_changes_the_adapter_alone(parts, way):
    (teacher, student), images, features = parts
    if "back" in way or way == "jacobian":  # gradients of two networks that learned nothing have nothing in common
        student = teacher
    labels = (teacher.above(features)[:, 0] > teacher.above(features)[:, 1]).long()
    before = [state_hash(m) for m in (teacher.above, student.above)]
    flags = [p.requires_grad for p in student.above.parameters()]
    options = {
        "teacher": teacher.above,
        "features": features,
        "labels": labels,
        "steps": 60,
        "batch_size": 16,
        "lr": 1e-2,
    }
    if "own" in WAYS[way].needs:
        options |= {"unlabelled": features, "wanted": student.below(images).detach()}
    adapter = Adapter(6, 6, start="random", seed=2)
    found, again = (learn_adapter(adapter, student.above, way=way, seed=1, progress=False, **options) for _ in range(2))
    assert state_hash(found.adapter) == state_hash(again.adapter) != state_hash(adapter)
    assert [state_hash(m) for m in (teacher.above, student.above)] == before
    assert [p.requires_grad for p in student.above.parameters()] == flags
    if WAYS[way].terms:
        first, last = found.history[0], found.history[-1]
        assert sum(last.values()) - last["step"] < sum(first.values()) - first["step"]


@pytest.mark.parametrize("start", ["identity", "random"])
@pytest.mark.parametrize("per", ["norm", "square"])
def test_back_distillation_without_labels_finds_the_reordering(parts, start, per):
    """The paper's own way, as printed: no label, no image, from any start."""
    (cut, _), _, features = parts
    adapter = Adapter(6, 6, order=torch.tensor([5, 3, 0, 1, 4, 2]), start=start, seed=1)
    options = {"way": "back-distill", "teacher": cut.above, "example": features[:1], "per": per, "progress": False}
    found = learn_adapter(adapter, cut.above, steps=300, lr=2e-2, **options).adapter
    with torch.no_grad():
        answer = cut.above(features)
        wrong, right = (cut.above(a(features)) - answer for a in (adapter, found))
    assert right.norm() < 0.2 * wrong.norm()
    assert not any(conv.bias.any() for conv in found.convs)  # no pseudo-gradient sees a bias: they stay


def test_alpha_is_what_the_teachers_gradients_are_larger_by_once(parts):
    """1 within one network, whatever the adapter is like; and learning does not change it, so no adapter shrinks."""
    (cut, _), _, features = parts
    for start in ("identity", "random"):
        adapter = Adapter(6, 6, start=start, seed=3)
        plain, one = (
            learn_adapter(
                adapter,
                cut.above,
                way="back-distill",
                teacher=cut.above,
                example=features[:1],
                steps=40,
                lr=1e-2,
                alpha=alpha,
                progress=False,
            ).adapter
            for alpha in (None, 1.0)
        )
        for name, value in plain.state_dict().items():
            assert torch.allclose(value, one.state_dict()[name], atol=1e-6)


def test_a_single_output_has_the_gradient_1(parts):
    one = split(zoo.build("lenet", num_classes=1, seed=0, in_channels=1).eval(), "pool1").above
    chain = Chain(one, parts[2][:1])
    assert torch.equal(chain.random(3), torch.ones(3, 1))
    assert chain.random(2, size=4).std() > 0  # an enlarged map has neighbours


def test_balance():
    assert balance(2 * torch.ones(3, 2, 2, 2), torch.ones(5, 2, 2, 2)) == pytest.approx(2.0)


def test_requests(parts):
    (cut, _), _, features = parts
    with pytest.raises(RequestError, match="did you mean 'distill'"):
        learn_adapter(Adapter(6, 6), cut.above, way="distil")
    with pytest.raises(RequestError, match="direct-learn needs labels"):
        learn_adapter(Adapter(6, 6), cut.above, way="direct-learn")
    with pytest.raises(RequestError, match="closed-form needs a teacher"):
        learn_adapter(Adapter(6, 6), cut.above)
    with pytest.raises(RequestError, match="distill needs images"):
        learn_adapter(Adapter(6, 6), cut.above, way="distill", teacher=cut.above)
    with pytest.raises(RequestError, match="give example="):
        learn_adapter(Adapter(6, 6), cut.above, teacher=cut.above)
    with pytest.raises(BadData, match="holds no images"):
        learn_adapter(Adapter(6, 6), cut.above, way="distill", teacher=cut.above, unlabelled=features[:0])
    with pytest.raises(BadData, match="60 images and 3 labels"):
        learn_adapter(
            Adapter(6, 6), cut.above, way="direct-learn", features=features, labels=torch.zeros(3, dtype=torch.long)
        )
    with pytest.raises(RequestError, match="one of first"):
        Dummy("none")


@pytest.mark.parametrize("way", [way for way, about in WAYS.items() if "teacher" in about.needs])
def test_a_teacher_with_other_outputs_is_refused_in_every_way(parts, way):
    (cut, _), images, features = parts
    other = split(zoo.build("lenet", num_classes=3, seed=1, in_channels=1).eval(), "pool1")
    given = (
        {"unlabelled": features, "wanted": other.below(images).detach()}
        if "own" in WAYS[way].needs
        else {"unlabelled": features}
    )
    with pytest.raises(RequestError, match="the task has 3 outputs and its teacher 2,"):
        learn_adapter(Adapter(6, 6), other.above, way=way, teacher=cut.above, steps=2, progress=False, **given)


@pytest.mark.parametrize(
    ("schedule", "first", "last"), [("constant", 1.0, 1.0), ("cosine", 1.0, 0.02), ("onecycle", 0.04, 0.02)]
)
def test_the_rate_follows_its_schedule(parts, monkeypatch, schedule, first, last):
    cuts, _, features = parts
    rates, step = [], torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: (rates.append(self.param_groups[0]["lr"]), step(self)))
    learn_adapter(
        Adapter(6, 6),
        cuts[1].above,
        way="distill",
        teacher=cuts[0].above,
        unlabelled=features,
        steps=20,
        lr=0.01,
        schedule=schedule,
        progress=False,
    )
    assert len(rates) == 20 and max(rates) <= 0.01
    assert rates[0] == pytest.approx(0.01 * first) and rates[-1] <= 0.01 * last
    with pytest.raises(RequestError, match="cosin"):
        learn_adapter(Adapter(6, 6), cuts[1].above, teacher=cuts[0].above, example=features[:1], schedule="cosin")


def test_class_255_counts_and_a_pixel_of_255_does_not():
    output = torch.randn(2, 256, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.tensor([3, 255])
    assert torch.isclose(task_loss(output, target), -output.log_softmax(1)[[0, 1], target].mean())
    pixels = task_loss(output[:, :, None, None], target[:, None, None])
    assert torch.isclose(pixels, -output.log_softmax(1)[0, 3])


@pytest.mark.parametrize("outputs", [1, 2])
def test_far_above_one_the_temperature_makes_the_loss_squares_of_logits(outputs):
    said, wanted = torch.randn(2, 8, outputs, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    said.requires_grad_()
    (softened,) = torch.autograd.grad(answer_loss(said, wanted, 1e4), said)
    (plain,) = torch.autograd.grad(answer_loss(said, wanted), said)
    apart = (said - wanted).detach()
    share = 0.25 if outputs == 1 else 0.5  # of a sigmoid's slope at nought, of two classes' shares
    squares = share * (apart if outputs == 1 else apart - apart.mean(1, keepdim=True)) / len(said)
    assert (softened - squares).abs().max() <= 1e-4 * squares.abs().max() < (plain - squares).abs().max()


def test_a_warm_teacher_is_a_way_of_its_own(parts):
    cuts, _, features = parts
    with torch.no_grad():
        wanted = cuts[0].above(features)
    how = {
        "way": "distill",
        "teacher": cuts[0].above,
        "unlabelled": features,
        "steps": 100,
        "lr": 0.01,
        "progress": False,
    }
    apart = []
    for temperature in (1.0, 20.0):
        found = learn_adapter(Adapter(6, 6, layers=3, kernel=3), cuts[1].above, temperature=temperature, **how)
        with torch.no_grad():
            apart.append(float((cuts[1].above(found.adapter(features)) - wanted).square().mean()))
    assert apart[1] < apart[0]  # it is logits that are matched now


def test_a_batch_without_a_pixel_that_counts_teaches_nothing():
    output = torch.randn(2, 3, 4, 4, requires_grad=True)
    loss = task_loss(output, torch.full((2, 4, 4), 255))
    (gradient,) = torch.autograd.grad(loss, output)
    assert float(loss.detach()) == 0 and not gradient.any()
