"""The optimizer of polishes: how far and where a step goes, what it leaves to AdamW, and that a run can go on."""

import pytest
import torch
from torch import nn

from brickwork import data, zoo
from brickwork.training import train
from brickwork.training.muon import LEAST, OTHERS, Muon, orthogonal


def stepped(parameters, gradients, lr=0.01, steps=1, **options):
    """Copies of parameters after some steps with these gradients."""
    copies = [nn.Parameter(p.detach().clone()) for p in parameters]
    optimizer = Muon(copies, lr, **options)
    for _ in range(steps):
        for copy, gradient in zip(copies, gradients, strict=True):
            copy.grad = gradient.clone()
        optimizer.step()
    return [copy.detach() for copy in copies]


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 3, 3, 3), (40, 8, 1, 1)])
def test_a_step_has_the_size_it_is_given_and_no_favourite_direction(shape):
    torch.manual_seed(0)
    weight, gradient = torch.randn(shape, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)
    gradient.flatten(1)[0] *= 50  # one direction far stronger than the rest
    (after,) = stepped([weight], [gradient])
    step = (weight - after).flatten(1)
    assert float(step.norm()) == pytest.approx(0.01 * float(weight.norm()), rel=1e-9)
    u, _, v = torch.linalg.svd(gradient.flatten(1), full_matrices=False)
    even = u @ v
    assert float((step * even).sum() / step.norm() / even.norm()) > 0.9
    plain = gradient.flatten(1)
    assert float((plain * even).sum() / plain.norm() / even.norm()) < 0.75


def test_what_is_no_matrix_goes_as_by_adamw():
    torch.manual_seed(1)
    shapes = (7,), (1, 9, 4), (6, 1, 3, 3)
    given = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    gradients = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    theirs = [nn.Parameter(p.clone()) for p in given]
    adam = torch.optim.AdamW(theirs, OTHERS * 0.02, weight_decay=0.0)
    for _ in range(3):
        for p, gradient in zip(theirs, gradients, strict=True):
            p.grad = gradient.clone()
        adam.step()
    for mine, p in zip(stepped(given, gradients, lr=0.02, steps=3), theirs, strict=True):
        assert torch.allclose(mine, p.detach(), rtol=0, atol=1e-12)


def test_weights_that_begin_at_zero_begin():
    gradient = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (after,) = stepped([torch.zeros(6, 4, dtype=torch.float64)], [gradient], lr=0.5)
    assert float(after.norm()) == pytest.approx(0.5 * LEAST * 6**0.5, rel=1e-9)


def test_no_gradient_moves_nothing_but_decay_does():
    weight, zero = torch.ones(3, 2), torch.zeros(3, 2)
    assert torch.equal(stepped([weight], [zero])[0], weight)
    assert torch.allclose(stepped([weight], [zero], lr=0.1, weight_decay=0.5)[0], weight * 0.95)


def test_layers_of_one_shape_go_as_each_alone():
    torch.manual_seed(3)
    given, gradients = [torch.randn(5, 4) for _ in range(3)], [torch.randn(5, 4) for _ in range(3)]
    together = stepped(given, gradients)
    for k, after in enumerate(together):
        assert torch.allclose(after, stepped(given[k : k + 1], gradients[k : k + 1])[0], atol=1e-6)


def test_half_precision_matrices_stay_what_they_are():
    made = orthogonal(torch.randn(2, 8, 5).bfloat16())
    assert made.dtype == torch.bfloat16
    assert bool(((made.float().mT @ made.float() - torch.eye(5)).abs() < 0.7).all())


class Stopped(Exception):
    pass


def test_it_learns_and_an_interrupted_run_goes_on_to_the_same_bytes(tmp_path):
    digits = data.load("digits:0-4@60", size=8, channels=1)
    options = {
        "epochs": 6,
        "optimizer": "muon",
        "batch_size": 25,
        "augment": "none",
        "device": "cpu",
        "progress": False,
    }

    def stop(step: int, steps: int) -> None:
        if step == steps // 2:
            raise Stopped

    straight, broken, resumed = (zoo.build("lenet", num_classes=5, in_channels=1, seed=0) for _ in range(3))
    rows = train(straight, digits, **options).history
    assert rows[-1]["loss"] < 0.5 * rows[0]["loss"]
    with pytest.raises(Stopped):
        train(broken, digits, checkpoint=tmp_path / "run", before_step=stop, **options)
    assert train(resumed, digits, checkpoint=tmp_path / "run", **options).resumed_at == 3
    for a, b in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)
