"""A branch reads what its layer answered: with the head's own weights it says what the network says, to the bit."""

import importlib.util
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from brickwork import zoo
from brickwork.blueprint.splitting import places, split
from brickwork.dependencies.branching import branched_classes, branching_place
from brickwork.dependencies.depths import deeper_classes, pooled
from brickwork.errors import BadModel, RequestError


def twin(model, at, head):
    """A branch whose head has the weights of the network's: its answers are the network's once more."""
    grown = branched_classes(model, at, head, model.get_submodule(head).out_features)
    grown.branch.net.get_submodule(head).load_state_dict(model.get_submodule(head).state_dict())
    return grown


@pytest.mark.parametrize("at", ["0", "1", "2", "3"])
def test_what_is_written_over_the_answer_of_the_layer_does_not_reach_the_branch(at):
    torch.manual_seed(0)
    net = (
        nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.SiLU(inplace=True),
            nn.Conv2d(4, 4, 3),
            nn.Hardswish(inplace=True),
            nn.Flatten(),
            nn.Linear(64, 3),
        )
        .double()
        .eval()
    )
    x = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    answers = twin(net, at, "5")(x)
    assert torch.equal(answers[:, :3], net(x)) and torch.equal(answers[:, 3:], net(x))


def wide():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, 3))


@pytest.mark.parametrize("kind", ["branch", "depths"])
def test_two_threads_do_not_read_each_others_answers(kind):
    net = wide().double().eval()
    images = [torch.randn(2, 1, 8, 8, dtype=torch.float64) for _ in range(2)]
    if kind == "branch":
        grown = twin(net, "1", "4")
    else:
        grown = deeper_classes(net, ["1"], pooled([net[:2](images[0])]).shape[1], 3)
        nn.init.normal_(grown.more.weight)
    with torch.no_grad():
        alone = [grown(x) for x in images]
        meeting = threading.Barrier(2, timeout=30)
        for layer in (grown.model[1], grown.model[2]):  # both have begun, and both have the answer of layer 1
            layer.register_forward_pre_hook(lambda *_: (meeting.wait(), None)[1])
        with ThreadPoolExecutor(2) as pool:
            together = list(pool.map(lambda x: grown(x).detach(), images))
    assert all(torch.equal(a, b) for a, b in zip(together, alone, strict=True))


def test_images_by_name_or_by_place_and_nothing_else():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.low, self.up, self.head = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Linear(4, 3)

        def forward(self, x, mask=None):
            x = self.low(x)
            return self.head(self.up(x if mask is None else x * mask).mean((2, 3)))

    net, x = Masked().eval(), torch.randn(2, 1, 8, 8)
    grown = twin(net, "low", "head")
    assert torch.equal(grown(x=x), grown(x)) and torch.equal(grown(x)[:, 3:], net(x))
    with pytest.raises(RequestError, match="takes images and nothing else, and was given 2 inputs"):
        grown(x, mask=torch.zeros(()))


class Tokens(nn.Module):
    """Blocks inside a layer of torch, which a trace takes as a whole."""

    def __init__(self):
        super().__init__()
        block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.cells, self.blocks = (nn.Conv2d(1, 8, 4, 4), nn.TransformerEncoder(block, 5, enable_nested_tensor=False))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.blocks(self.cells(x).flatten(2).transpose(1, 2)).mean(1))


def test_a_layer_that_is_followed_as_a_whole_is_branched_before_it():
    net, x = Tokens().eval(), torch.randn(2, 1, 16, 16)
    assert branching_place(net, x, "head") == "cells"
    torch.testing.assert_close(twin(net, "cells", "head")(x)[:, 3:], net(x))


def test_a_network_without_a_place_to_branch_off_is_told_what_else_there_is():
    class Loops(nn.Module):
        def __init__(self):
            super().__init__()
            self.low, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 3)

        def forward(self, x):
            x = self.low(x)
            while x.sum() > 1e9:  # depends on values
                x = x / 2
            return self.head(x.mean((2, 3)))

    with pytest.raises(BadModel, match=r"no place to branch off .* use on='features' or on='depths': .* followed"):
        branching_place(Loops().eval(), torch.randn(2, 1, 16, 16), "head")


class Residual(nn.Module):
    """Blocks with a way around them: inside of one no cut is clean."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
        self.norm, self.head = nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x):
        around = x.shape[2]  # a length may go past every cut
        x = self.stem(x)
        for block in self.blocks[:2]:
            x = block(x).relu() + x
        y = self.norm(self.blocks[2](x))
        return self.head((y + x).sum((2, 3)) / around**2)


def test_a_place_is_clean_where_every_way_leads_through_it():
    net = Residual().double().eval()
    found = places(net)
    assert {name: place.clean for name, place in found.items()} == {
        "stem": True,
        "blocks.0": False,
        "blocks.1": False,
        "blocks.2": False,
        "blocks": False,
        "norm": False,
        "head": True,
    }
    assert "blocks.1" in found["blocks.0"].behind and "blocks.1" not in found["blocks.1"].behind
    with pytest.raises(BadModel, match="crossed"):
        split(net, "norm")
    assert branching_place(net, torch.randn(2, 1, 8, 8, dtype=torch.float64), "head") == "stem"


def test_where_a_depth_is_crossed_the_outermost_place_before_it_is_taken():
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("needs the extra timm")
    shuffle = zoo.build("torchvision:shufflenet_v2_x0_5", num_classes=3).eval()
    x = torch.randn(2, 3, 64, 64)
    at = branching_place(shuffle, x, "fc")
    assert at == "stage3"
    assert torch.equal(twin(shuffle, at, "fc").eval()(x)[:, 3:], shuffle(x))
