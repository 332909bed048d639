"""Layers in front of rectifiers, fitted again to what passes them."""

from __future__ import annotations

import pytest
import torch
from moment_nets import error, images, matched, noisy, randomise, same, state
from torch import nn

from brickwork.errors import RequestError


class Rectified(nn.Module):
    """Two layers with a rectifier between; a second reader of the response, or a sum in front of it, where asked for."""

    def __init__(self, act=nn.ReLU, also_read=False, residual=False):
        super().__init__()
        self.a, self.norm = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.b, self.o = nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6, 4)
        self.act, self.also_read, self.residual = act(), also_read, residual

    def forward(self, x):
        x = self.norm(self.a(x))
        h = self.act(x)
        y = self.b(h) + h if self.residual else self.b(h)
        y = self.act(y) + x if self.also_read else self.act(y)
        return self.o(y.mean((2, 3)))


def passing_error(student, teacher, x, layer):
    """How far a layer's rectified responses are from the teacher's."""
    found = []
    for net in (student, teacher):
        heard = []
        with torch.no_grad():
            handle = getattr(net, layer).register_forward_hook(lambda _m, _i, out, heard=heard: heard.append(out))
            net(x)
            handle.remove()
        found.append(net.act(heard[0]))
    return float((found[0] - found[1]).square().mean())


@pytest.mark.parametrize("act", [nn.ReLU, nn.ReLU6])
def test_refits_come_closer_to_what_passes_a_rectifier(act):
    """Half of what the layer reads is gone, so that it cannot give all: what is cut off anyway is given up."""
    teacher, x = randomise(Rectified(act)), 3 * images(60, side=6)
    student = noisy(teacher, "a")
    with torch.no_grad():  # the second layer reads noise, in part
        errors = [
            passing_error(matched(student, teacher, x, layers=["b"], refits=k, places=None).model, teacher, x, "b")
            for k in (0, 1, 3)
        ]
    assert errors[2] < errors[1] < 0.97 * errors[0]


@pytest.mark.parametrize("how", [{}, {"act": nn.ReLU6}, {"residual": True}, {"also_read": True}])
def test_refits_leave_what_is_right_as_it_is(how):
    teacher = randomise(Rectified(**how))
    result = matched(teacher, teacher, images(40, side=6), refits=3)
    assert error(result.model, teacher, images(4, seed=1, side=6)) <= 1e-8


def test_refits_make_no_difference_where_a_response_has_other_readers():
    teacher = randomise(nn.Sequential(nn.Conv2d(3, 6, 3), nn.GELU(), nn.Conv2d(6, 4, 3), nn.Flatten()))
    student, x = noisy(teacher, "0", "2"), images(30, side=6)
    plain, again = (matched(student, teacher, x, refits=k).model for k in (0, 2))
    assert same(state(plain), state(again))
    with pytest.raises(RequestError, match="refits must be 0 or more, not -1"):
        matched(student, teacher, x, refits=-1)
