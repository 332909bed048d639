"""Halves of a network that writes in place answer as it does, or the write is refused by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from brickwork.blueprint.splitting import split
from brickwork.errors import BadModel
from brickwork.origin import Origin, attach


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.mid, self.fc = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1), nn.Linear(4, 2)
        self.act, self.drop, self.idle = nn.ReLU(inplace=True), nn.Dropout(inplace=True), nn.Identity()
        self.block = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1))

    def head(self, x):
        return self.fc(self.mid(x).mean((2, 3)))


def network(forward):
    class Net(Base):
        pass

    Net.forward = forward
    torch.manual_seed(0)
    return Net().eval()


def pre_activation(self, x):
    x = self.stem(x)
    return self.head(x + self.block(x))


def method(self, x):
    x = self.stem(x)
    x.relu_()
    return self.head(x)


def statement(self, x):
    x = self.stem(x)
    self.act(x)
    return self.head(x)


def through_a_name(self, x):
    x = self.stem(x)
    y = self.idle(self.drop(x))
    y.mul_(2).clamp_(max=0.5)
    return self.head(x)


def function(self, x):
    x = self.stem(x)
    F.leaky_relu_(x, 0.1)
    F.relu(x, inplace=True)
    return self.head(x)


def one_layer_twice(self, x):
    x = self.stem(x)
    self.act(x)
    x = x - 0.2
    self.act(x)
    return self.head(x)


def by_place(self, x):
    x = self.stem(x)
    F.leaky_relu(x, 0.1, True)
    return self.head(x)


def above_the_cut(self, x):
    y = self.mid(self.stem(x))
    z = self.mid(y)
    y.relu_()
    return self.fc((y + z).mean((2, 3)))


@pytest.mark.parametrize(
    "forward", [pre_activation, method, statement, through_a_name, function, one_layer_twice, by_place, above_the_cut]
)
@pytest.mark.parametrize("at", ["stem", "mid"])
def test_halves_answer_as_the_network(forward, at):
    net = network(forward)
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    wanted = net(x.clone())
    try:
        halves = split(net, at)
    except BadModel as error:  # two calls of one layer, or a skip: nothing to do with writing
        assert forward is above_the_cut and "crossed" in str(error)
        return
    features = halves.below(x)
    kept = features.clone()
    assert torch.equal(halves.above(features), wanted)
    assert torch.equal(features, kept)


@pytest.mark.parametrize(
    "part",
    [
        lambda x: x[:, :2].relu_(),
        lambda x: x.view(2, -1).relu_(),
        lambda x: x.chunk(2, 1)[0].add_(1),
        lambda x: x.double().relu_(),
    ],
)
def test_writing_to_a_part_is_refused(part):
    def forward(self, x):
        x = self.stem(x)
        part(x)
        return self.head(x)

    with pytest.raises(BadModel, match="writes in place into a tensor that stem is a part of or holds"):
        split(network(forward), "mid")


def test_what_a_trace_cannot_see_is_seen_by_running_both():
    def forward(self, x):
        x = self.stem(x)
        y = x
        x += 1  # recorded as x + 1, so y would stay as it was
        return self.head(y)

    net = network(forward)
    attach(net, Origin(input_shape=(3, 8, 8)))
    with pytest.raises(BadModel, match=r"halves answer .* apart from it .* write x = x \+ y"):
        split(net, "mid")


def normalised(self, x):
    return self.head(torch.nn.functional.normalize(self.mid(self.stem(x))))


def test_a_function_that_could_write_elsewhere_and_does_not():
    net, x = network(normalised), torch.randn(2, 3, 8, 8)
    halves = split(net, "mid")
    assert torch.equal(halves.above(halves.below(x)), net(x))


class Recurrent(nn.Module):
    """Reads what its cells say at every step, or at every step and at last."""

    def __init__(self, both: bool) -> None:
        super().__init__()
        self.stem, self.cells, self.head, self.both = nn.Linear(3, 4), nn.GRU(4, 5), nn.Linear(5, 2), both

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps, last = self.cells(self.stem(x))
        return self.head(steps * last if self.both else steps)


def test_a_layer_of_several_answers_is_cut_behind_the_one_that_is_read():
    net, x = Recurrent(both=False).eval(), torch.randn(2, 6, 3)
    halves = split(net, "cells", image=(6, 3))
    assert torch.equal(halves.above(halves.below(x)), net(x))
    with pytest.raises(BadModel, match=r"cut behind 'cells', .* several tensors"):
        split(Recurrent(both=True), "cells", image=(6, 3))


def test_every_layer_keeps_its_own_mode():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.BatchNorm2d(4)).train()
    net[1].eval()
    halves = split(net, "2")
    assert [halves.below.net.get_submodule(n).training for n in ("0", "1")] == [True, False]
    assert halves.above.net.get_submodule("3").training and halves.below.training
