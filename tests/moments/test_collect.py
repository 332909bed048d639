"""Moments of many layers in one pass equal those computed by hand, whatever the batches."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from brickwork.errors import BadData, RequestError, UnknownName
from brickwork.moments import collect_moments


@pytest.fixture
def net():
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3, groups=2), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(24, 3)).double().eval()


@pytest.fixture
def images():
    return torch.randn(10, 2, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def by_hand(conv: nn.Conv2d, x: torch.Tensor) -> torch.Tensor:
    rows = nn.functional.unfold(x, conv.kernel_size, conv.dilation, conv.padding, conv.stride)
    return rows.transpose(1, 2).reshape(-1, rows.shape[1])


@pytest.mark.parametrize("size", [10, 4, 1])
def test_any_batches_give_the_same_sums(net, images, size):
    found = collect_moments(net, images.split(size), progress=False)
    assert set(found) == {"0", "2", "5"}
    rows = by_hand(net[0], images)
    assert torch.allclose(found["0"].gram[0], rows.T @ rows, atol=1e-10)
    answers = net[0](images).flatten(2).transpose(1, 2).reshape(-1, 4)
    assert torch.allclose(found["0"].cross[0], rows.T @ answers, atol=1e-10)
    middle = by_hand(net[2], net[1](net[0](images)))
    for group in range(2):  # a group reads its own channels only
        part = middle[:, 18 * group : 18 * (group + 1)]
        assert torch.allclose(found["2"].gram[group], part.T @ part, atol=1e-10)
    flat = net[:5](images)
    assert torch.allclose(found["5"].gram[0], flat.T @ flat, atol=1e-10)


def test_chosen_layers_a_loader_and_a_sample(net, images):
    loader = torch.utils.data.DataLoader(list(zip(images, range(10), strict=True)), batch_size=4)
    found = collect_moments(net, loader, layers=["2"], places=2, seed=3, progress=False)
    again = collect_moments(net, loader, layers=["2"], places=2, seed=3, progress=False)
    assert list(found) == ["2"] and found["2"].rows == 20
    assert torch.equal(found["2"].gram, again["2"].gram)


def test_the_model_is_left_alone(net, images):
    net.train()
    before = [p.clone() for p in net.parameters()]
    collect_moments(net, [images], progress=False)
    assert net.training and all(map(torch.equal, before, net.parameters()))


def test_what_cannot_be_collected(net, images):
    with pytest.raises(UnknownName, match="layer '7'"):
        collect_moments(net, [images], layers=["7"], progress=False)
    with pytest.raises(BadData, match="no images"):
        collect_moments(net, [], progress=False)
    with pytest.raises(RequestError, match="places"):
        collect_moments(net, [images], places=0, progress=False)
    broken = images.clone()
    broken[7] = float("nan")
    with pytest.raises(BadData, match="at 0 became NaN or infinite in batch 1"):
        collect_moments(net, broken.split(5), progress=False)
