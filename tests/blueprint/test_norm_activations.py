"""Norms that bring their activation, as timm's and transformers' do, keep it when their channels are cut."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import brickwork


class GroupNormAct(nn.GroupNorm):
    def __init__(self, groups, channels):
        super().__init__(groups, channels)
        self.drop, self.act = nn.Identity(), nn.LeakyReLU(0.3)

    def forward(self, x):
        return self.act(self.drop(F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)))


class LayerNormAct(nn.LayerNorm):
    def __init__(self, channels):
        super().__init__(channels)
        self.act = nn.LeakyReLU(0.3)

    def forward(self, x):
        return self.act(super().forward(x))


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 12, 3), GroupNormAct(4, 12), nn.Conv2d(12, 6, 3), nn.Flatten(), nn.Linear(96, 4))


def linears():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 12), LayerNormAct(12), nn.Linear(12, 4))


@pytest.mark.parametrize(
    ("make", "space", "keep"), [(convolutions, "0", [0, 2, 3, 7, 8, 11]), (linears, "1", [1, 4, 5, 9])]
)
def test_the_activation_of_a_norm_stays(make, space, keep):
    torch.manual_seed(0)
    net, x = make().double().eval(), torch.randn(5, 3, 8, 8).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    bp = brickwork.trace(net, x[:2])
    part, zeroed = bp.select(net, {space: keep}), bp.zero(net, {space: keep})
    with torch.no_grad():
        assert (part(x) - zeroed(x)).abs().max() <= 1e-10
        assert (part(x) - net(x)).abs().max() > 1e-3
