"""Networks whose outputs are no classes to choose by, of one output or behind a softmax: compressed, since all of them stay."""

import pytest
import torch
from torch import nn

import brickwork
from brickwork.data.images import hold_out
from brickwork.errors import BadData, RequestError

QUIET = {"progress": False}


def body(last):
    torch.manual_seed(0)
    first = [nn.Conv2d(2, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 10, 3), nn.ReLU()]
    return nn.Sequential(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last).double().eval().requires_grad_(False)


@pytest.fixture(scope="module")
def images():
    return torch.rand(120, 2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("repair", ["match", "none"])
@pytest.mark.parametrize("end", [nn.Softmax(1), nn.LogSoftmax(1)])
def test_what_is_behind_the_last_layer_is_behind_the_part_of_it(images, end, repair):
    plain = body(nn.Linear(10, 3))
    part = brickwork.compress(nn.Sequential(plain, end), images, keep=0.7, repair=repair, **QUIET)
    bare = brickwork.compress(plain, images, keep=0.7, repair=repair, **QUIET)
    assert [*part.kept.values()] == [*bare.kept.values()]
    assert part.judged_by == "agreement" and part.parameters == bare.parameters < 1
    assert float((part.model(images) - end(bare.model(images))).abs().max()) < 1e-10


def test_one_output_is_cut_as_the_same_network_of_two_classes_is(images):
    """One of whose rows is zeros: the softmax of the two is the sigmoid of the one."""
    one, two = body(nn.Linear(10, 1)), body(nn.Linear(10, 2))
    with torch.no_grad():
        two[-1].weight.zero_()
        two[-1].bias.zero_()
        two[-1].weight[1:], two[-1].bias[1:] = one[-1].weight, one[-1].bias
    part = brickwork.compress(one, images, keep=0.7, **QUIET)
    twin = brickwork.compress(two, images, keep=0.7, **QUIET)
    assert part.kept == {name: ids for name, ids in twin.kept.items() if name != "classes"}
    assert float((part.model(images)[:, 0] - twin.model(images)[:, 1]).abs().max()) < 1e-8


class Squeezed(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = body(nn.Linear(10, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


@pytest.mark.parametrize("net", [body(nn.Linear(10, 1)), Squeezed()], ids=["a column", "a number an image"])
@pytest.mark.parametrize(
    "how", [{}, {"budget": 0.7}, {"attribution": "taylor", "threshold": 0.5}, {"budget": [0.9, 0.7]}]
)
def test_one_output_is_judged_by_its_variance_on_images_without_labels(images, net, how):
    """Labels that are given count for nothing: of a regression they are no classes."""
    wrong = torch.arange(120) % 2
    for data in (images, (images, wrong)):
        result = brickwork.compress(net, data, **how, **QUIET)
        brick = result.bricks[0.7] if isinstance(how.get("budget"), list) else result
        held = brickwork.compress(net, images, keep=1.0, repair="none", **QUIET)
        assert brick.judged_by == "variance explained" and brick.used["labels"] == "network"
        assert brick.accuracy_before == held.accuracy_after == 1.0 and 0.5 < brick.accuracy_after <= 1
        assert brick.model(images).shape == net(images).shape
        assert "held-out variance explained" in str(brick) and "labels are not used" in brick.note


def test_what_is_said_of_variance_is_what_the_part_gives(images):
    net = body(nn.Linear(10, 1))
    brick = brickwork.compress(net, images, keep=0.5, repair="none", **QUIET)
    held = images[hold_out(torch.zeros(120, dtype=torch.int64).numpy(), key=(0, 0))[1]]
    whole, part = net(held), brick.model(held)
    expected = 1 - float((whole - part).square().mean() / whole.var(unbiased=False))
    assert brick.accuracy_after == pytest.approx(expected, abs=1e-12)


def test_one_output_is_polished(images):
    brick = brickwork.compress(Squeezed().float().requires_grad_(), images.float(), budget=0.7, polish=1e-4, **QUIET)
    assert brick.used["polish"]["kept"] in ("before", "after") and brick.judged_by == "variance explained"


def test_what_one_output_cannot_be_asked(images):
    with pytest.raises(RequestError, match="attribution frat scores channels for classes"):
        brickwork.compress(body(nn.Linear(10, 1)), images, attribution="frat", keep=0.5, **QUIET)
    silent = body(nn.Linear(10, 1))
    nn.init.zeros_(silent[-1].weight)
    with pytest.raises(BadData, match="what the model answers is the same for every image"):
        brickwork.compress(silent, images, **QUIET)
    with pytest.raises(BadData, match=r"float64.*taken with labels network"):
        brickwork.compress(silent, (images, torch.rand(120).double()), **QUIET)
