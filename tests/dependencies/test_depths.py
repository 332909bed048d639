"""Which layers answer at several depths, and over which axes their maps are pooled."""

import importlib.util

import pytest
import torch
from torch import nn

from brickwork import zoo
from brickwork.dependencies.depths import deeper_classes, pooled, several_depths, watched
from brickwork.errors import BadModel
from brickwork.prediction import eval_mode


class Turned(nn.Module):
    """A stage that answers (B, C, H, W), or the same values as (B, H, W, C)."""

    def __init__(self, given, width, last):
        super().__init__()
        self.conv, self.last = nn.Conv2d(given, width, 3, 2, 1), last

    def forward(self, x):
        x = torch.relu(self.conv(x.movedim(-1, 1) if self.last and x.shape[1] != 3 else x))
        return x.movedim(1, -1) if self.last else x


class Pyramid(nn.Module):
    """Maps of an image's 1/2, 1/4 and 1/8, with their channels first or last."""

    def __init__(self, last, widths=(8, 6, 5)):
        super().__init__()
        self.stages = nn.Sequential(*(Turned(a, b, last) for a, b in zip((3, *widths), widths, strict=False)))
        self.head, self.over = nn.Linear(widths[-1], 2), (1, 2) if last else (2, 3)

    def forward(self, x):
        return self.head(self.stages(x).mean(self.over))


def twins(**options):
    first, last = Pyramid(False, **options).double(), Pyramid(True, **options).double()
    last.load_state_dict(first.state_dict())
    return first, last


def rows(net, images):
    layers = several_depths(net, images)
    with torch.no_grad(), watched(net, layers) as seen:
        net(images)
    return layers, pooled([seen[name] for name in layers])


@pytest.mark.parametrize("side", [16, 32])
def test_the_same_maps_with_channels_last_give_the_same_rows(side):
    """At 16 the first map is 8 x 8 x 8: the other sizes tell where its channels are."""
    images = torch.rand(2, 3, side, side, dtype=torch.float64)
    (of_first, one), (of_last, two) = (rows(net, images) for net in twins())
    assert of_first == of_last == ["stages.0", "stages.1", "stages"]
    assert one.shape == (2, 2 * (8 + 6 + 5))
    torch.testing.assert_close(one, two, rtol=0, atol=1e-12)


def test_a_folder_made_over_the_other_axis_answers_as_it_did():
    """Until maps with channels last were known, they were pooled as (B, C, H, W); the width in the folder says so."""
    _, net = twins()
    net = net.float()
    images, layers = torch.rand(2, 3, 32, 32), ["stages.0", "stages.1", "stages"]
    for width, over in ((2 * (16 + 8 + 4), (2, 3)), (2 * (8 + 6 + 5), (1, 2))):
        grown = deeper_classes(net, layers, width, 1)
        with torch.no_grad():
            grown.more.weight.normal_()
            with watched(net, layers) as seen:
                net(images)
            parts = [part for name in layers for part in (seen[name].amax(over), seen[name].mean(over))]
            wanted = grown.more(torch.cat(parts, 1))
            torch.testing.assert_close(grown(images)[:, 2:], wanted)


def test_what_cannot_be_told_is_refused_by_name():
    _, net = twins()
    with pytest.raises(
        BadModel, match=r"which axis of stages.0's maps \(2, 16, 32, 8\).*images of 32 x 64; use square"
    ):
        several_depths(net.float(), torch.rand(2, 3, 32, 64))
    first, _ = twins()  # channels first of images that are not square are told
    assert several_depths(first.float(), torch.rand(2, 3, 32, 64))[-1] == "stages"


def test_looking_leaves_a_network_in_training_as_it_was():
    net = nn.Sequential(Pyramid(False).stages, nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(80, 2)).train()
    several_depths(net, torch.rand(2, 3, 32, 32))
    assert net.training and net[1].training and int(net[1].num_batches_tracked) == 0


def test_answers_of_windows_and_shares_of_attention_are_not_chosen():
    class Windowed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.windows = Pyramid(False), nn.Linear(2, 2)
            self.shares, self.bias = nn.Softmax(-1), nn.ReLU()

        def forward(self, x):
            y = self.windows(self.body(x)).reshape(4, 1, 1, 1)
            self.windows(y.expand(4, 3, 9, 2))
            self.bias(torch.ones(1, 3, 3, 7) * y.sum())
            self.shares(x.new_ones(2, 3, 11, 11))
            return y.reshape(2, 2)

    assert several_depths(Windowed(), torch.rand(2, 3, 32, 32)) == ["body.stages.0", "body.stages.1", "body.stages"]


def test_published_networks_with_channels_last():
    """Swin: fixed image size, windows in the batch, its first stage 16 x 16 x 16 here."""
    if any(importlib.util.find_spec(package) is None for package in ("timm", "torchvision")):
        pytest.skip("needs the extra timm")
    net = zoo.build(
        "timm:swin_tiny_patch4_window7_224",
        num_classes=3,
        image_size=64,
        window_size=2,
        depths=[1, 1, 2, 1],
        embed_dim=16,
        num_heads=[1, 2, 4, 8],
        seed=0,
    )
    with eval_mode(net):
        layers, found = rows(net, torch.rand(2, 3, 64, 64))
    assert layers == ["layers.0", "layers.1", "layers.2", "norm"] and found.shape == (2, 2 * (16 + 32 + 64 + 128))
