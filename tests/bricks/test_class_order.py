"""Which logit a class number means where the forward puts logits in an order of its own, or several layers make them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import brickwork
from brickwork.errors import Unsupported
from brickwork.origin import Origin, attach, origin_of

NAMES = ("a", "b", "c", "d", "e")
X = torch.randn(60, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class Ordered(nn.Module):
    """One layer makes all logits, or two do."""

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how, self.stem = how, nn.Conv2d(3, 8, 3)
        self.one, self.two = nn.Linear(8, 2 if how == "heads" else 5), nn.Linear(8, 3) if how == "heads" else None
        self.register_buffer("order", torch.tensor([2, 0, 4, 3, 1]))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu().mean((2, 3))
        if self.two is not None:
            return torch.cat([self.one(x), self.two(x)], 1)
        return self.one(x).flip(1) if self.how == "flipped" else self.one(x)[:, self.order]


def named(how: str) -> nn.Module:
    net = Ordered(how).double().eval()
    attach(net, Origin(classes=NAMES))
    return net


@pytest.mark.parametrize("how", ["table", "flipped"])
@pytest.mark.parametrize("classes", [[0, 2], [3, 1], [1], [4, 3, 2, 1, 0]])
def test_a_number_of_a_class_is_that_of_its_logit(how, classes):
    net = named(how)
    small = brickwork.trace(net, X[:2]).select(net, {"classes": classes})
    torch.testing.assert_close(small(X), net(X)[:, classes], rtol=0, atol=1e-12)
    assert origin_of(small).classes == tuple(NAMES[k] for k in classes)


@pytest.mark.parametrize("repair", ["match", "none"])
@pytest.mark.parametrize(
    ("how", "classes"), [("table", [3, 1]), ("flipped", [0, 4, 2]), ("heads", [0, 1, 4, 2]), ("heads", [1, 0, 3, 2])]
)
def test_parts_answer_the_classes_that_were_asked_for(how, classes, repair):
    net = named(how)
    data = (X, torch.arange(60) % 5)
    brick = brickwork.disassemble(net, classes, data, keep=1.0, repair=repair, progress=False)
    torch.testing.assert_close(brick.model(X), net(X)[:, classes], rtol=0, atol=1e-9)
    assert brick.classes == tuple(NAMES[k] for k in classes)


def test_an_order_that_cannot_be_had_is_refused():
    net = named("heads")
    with pytest.raises(Unsupported, match="'classes' cannot be put in an order of their own here; give them rising"):
        brickwork.trace(net, X[:2]).select(net, {"classes": [1, 0, 2]})  # a layer with one row left
