"""Copies of modules are those of deepcopy, and one trace serves two networks only where it would be the same."""

import copy

import pytest
import torch
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.blueprint import joining
from brickwork.copying import computes_alike, copy_module


class Own(nn.Module):
    def __init__(self, times: int = 2) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)
        self.times = times
        self.register_buffer("order", torch.tensor([0, 2, 1, 3]))

    def forward(self, x):
        x = torch.relu(self.first(x[:, self.order]))
        return self.second(x) * self.times


class Counted(nn.Linear):
    """A module that says itself how it is copied."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.copies = 0

    def __deepcopy__(self, memo):
        twin = Counted()
        memo[id(self)] = twin
        twin.load_state_dict(self.state_dict())
        twin.copies = self.copies + 1
        return twin


def held():
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    net[1].parent = [net]
    return net


class Remembering(nn.Module):
    """Keeps what its last forward computed, as many do for a picture or for a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), nn.Linear(8, 4)
        self.seen: dict[str, list[torch.Tensor]] = {}

    def forward(self, x):
        self.map = self.body(x)
        self.seen["features"] = [self.map.mean((2, 3))]
        return self.head(self.seen["features"][0])


def remembering():
    torch.manual_seed(0)
    model, x = Remembering(), torch.randn(60, 3, 6, 6)
    model(x).sum().backward()
    return model.eval(), x


def networks():
    tied = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    tied[2].weight = tied[0].weight
    hooked = nn.Sequential(nn.Linear(3, 3))
    hooked[0].register_forward_hook(lambda module, args, result: result + 1)
    return {
        "resnet8": zoo.build("resnet8", num_classes=3),
        "own": Own(),
        "tied": tied,
        "hooked": hooked,
        "recurrent": nn.Sequential(nn.LSTM(4, 3)),
        "a way of its own": nn.Sequential(Counted()),
        "child holds parent": held(),
    }


@pytest.mark.parametrize("name", networks())
def test_a_copy_is_that_of_deepcopy(name):
    model = networks()[name].train()
    model[0].train(False) if isinstance(model, nn.Sequential) else model.eval()
    ours, theirs = copy_module(model), copy.deepcopy(model)
    assert str(ours) == str(theirs)
    assert [m.training for m in ours.modules()] == [m.training for m in theirs.modules()]
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    mine = {t.data_ptr() for t in model.state_dict().values()}
    for key, value in ours.state_dict().items():
        assert torch.equal(value, theirs.state_dict()[key])
        assert value.data_ptr() not in mine
    for left, right in zip(ours.modules(), theirs.modules(), strict=True):
        assert vars(left).keys() == vars(right).keys()
    if name == "tied":
        assert ours[0].weight is ours[2].weight
    if name == "a way of its own":
        assert ours[0].copies == 1
    if name == "child holds parent":
        assert ours[1].parent[0] is ours
    if name == "hooked":
        assert torch.equal(ours(torch.ones(1, 3)), model(torch.ones(1, 3)))


def test_a_copy_has_what_a_forward_left_without_its_gradient():
    model, x = remembering()
    with pytest.raises(RuntimeError):
        copy.deepcopy(model)
    twin = copy_module(model)
    assert torch.equal(twin.map, model.map) and twin.map.is_leaf and not model.map.is_leaf
    assert twin.seen["features"][0].is_leaf and twin.seen["features"][0] is not model.seen["features"][0]
    assert torch.equal(twin(x), model(x))


def test_a_network_that_remembers_is_cut_joined_and_merged():
    model, x = remembering()
    data = (x, torch.arange(60) % 4)
    bp = brickwork.trace(model, x[:2])
    assert bp.select(model, {"body.0": [0, 3]})(x).shape == (60, 4)
    brick = brickwork.compress(model, data, budget=0.7, progress=False)
    student = brickwork.disassemble(model, [0, 1], data, keep=1.0, progress=False).model
    student(x).sum().backward()
    for cut in (student, brick.model):
        brickwork.distil(cut, [brick], x, epochs=1, progress=False)
    assert brickwork.join([model, brick.model], x[:2])(x).shape == (60, 8)
    brickwork.merge([model, model], method="linear")
    assert "body.0" in str(brickwork.info(model, input_shape=(3, 6, 6)))
    assert model.map.grad_fn is not None


def test_networks_that_differ_in_their_weights_alone_compute_alike():
    assert computes_alike(zoo.build("resnet8", num_classes=3, seed=0), zoo.build("resnet8", num_classes=3, seed=1))
    assert computes_alike(Own(), Own())
    turned = Own()
    turned.order.copy_(torch.tensor([3, 2, 1, 0]))
    narrow = Own()
    narrow.second = nn.Linear(6, 2)
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    for other in (turned, narrow, Own(times=3)):
        assert not computes_alike(Own(), other)
    assert not computes_alike(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), tied)
    assert not computes_alike(nn.Sequential(nn.ReLU()), nn.Sequential(nn.ReLU(), nn.ReLU()))


def test_a_join_traces_networks_that_compute_alike_once(monkeypatch):
    traced = []
    monkeypatch.setattr(
        joining, "trace", lambda model, *a, **k: traced.append(model) or brickwork.trace(model, *a, **k)
    )
    x = torch.randn(5, 4)
    same, other = [Own(), Own()], [Own(), Own(times=3)]
    for nets, count in ((same, 1), (other, 2)):
        traced.clear()
        joined = brickwork.join(nets, x[:1])
        assert len(traced) == count
        assert torch.allclose(joined(x), torch.cat([net(x) for net in nets], 1), atol=1e-6)


def test_layers_without_a_network_are_joined_as_branches():
    nets = [nn.Linear(4, 3), nn.Linear(4, 2)]
    x = torch.randn(5, 4)
    assert torch.equal(brickwork.join(nets, x[:1])(x), torch.cat([net(x) for net in nets], 1))


def test_weights_that_lie_side_by_side_are_copied():
    """A proof joins its own tensors without a copy; those of the caller never."""
    table = torch.randn(2, 6, 4)
    nets = [nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)) for _ in range(2)]
    for net, own in zip(nets, table, strict=True):
        net[0].weight = nn.Parameter(own)
    x = torch.randn(5, 4)
    joined = brickwork.join(nets, x[:1])
    before = joined(x)
    table.zero_()
    assert torch.equal(joined(x), before)
