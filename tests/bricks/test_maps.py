"""Networks that answer with maps are made smaller: judged by masks, by the whole's answers, or as numbers."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import brickwork
from brickwork.bricks import Brick
from brickwork.errors import BadData, BadModel, RequestError
from brickwork.evaluation import evaluate
from brickwork.origin import attach, origin_of
from brickwork.outputs import PLACES
from brickwork.store import state_hash

QUIET = {"progress": False}


class UNet(nn.Module):
    """Down, up and across; every second channel of the first layer is twice the one before it."""

    def __init__(self, outputs: int = 3):
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, stride=2)
        self.up, self.last = nn.ConvTranspose2d(8, 8, 2, stride=2), nn.Conv2d(16, outputs, 1)
        with torch.no_grad():
            for tensor in (self.one.weight, self.one.bias):
                tensor[1::2] = 2 * tensor[::2]

    def forward(self, x):
        across = self.one(x).relu()
        return self.last(torch.cat([self.up(self.two(across).relu()), across], 1))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return UNet().double().eval()


@pytest.fixture
def images():
    return torch.randn(60, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def named(net):
    attach(net, replace(origin_of(net), classes=("ground", "disc", "square")))
    return net


@pytest.mark.parametrize("outputs", [1, 3])
def test_channels_that_others_rebuild_go_and_the_map_stays(outputs, images):
    torch.manual_seed(0)
    net = UNet(outputs).double().eval()
    before = state_hash(net)
    half = brickwork.compress(net, images, budget=0.66, ridge=1e-12, **QUIET)
    assert {space: len(half.kept[space]) for space in ("one", "two", "up")} == {"one": 4, "two": 8, "up": 8}
    assert half.judged_by == "variance explained"
    assert half.accuracy_after == pytest.approx(1.0, abs=1e-9)
    with torch.no_grad():
        assert (half.model(images) - net(images)).abs().max() <= 1e-6
    assert state_hash(net) == before


def test_masks_judge_by_mean_iou(net, images):
    masks = torch.randint(0, 3, (60, 8, 8), generator=torch.Generator().manual_seed(2))
    masks[:, 0] = 255  # does not count
    data = brickwork.data.ImageData(
        "shapes",
        ("one",),
        *((images * 50 + 128).clamp(0, 255).byte().permute(0, 2, 3, 1).numpy(), torch.zeros(60).long().numpy()) * 2,
        train_masks=masks.byte().numpy(),
        test_masks=masks.byte().numpy(),
    )
    net = net.float()
    for given, truth in (((images.float(), masks), None), (data, data)):
        brick = brickwork.compress(net, given, budget=0.45, **QUIET)
        assert brick.judged_by == "mean IoU"
        if truth is not None:
            wanted = evaluate(net, truth.test_images, None, masks=truth.test_masks).mean_iou
            assert brick.accuracy_before == pytest.approx(wanted, abs=1e-6)
    assert brickwork.compress(net, data, budget=0.45, labels="network", **QUIET).judged_by == "variance explained"
    with pytest.raises(BadData, match="masks are of ink, paper, edge, and the model's classes are ground, disc"):
        brickwork.compress(named(net), replace(data, mask_classes=("ink", "paper", "edge")), budget=0.5, **QUIET)


def test_without_masks_the_answers_of_a_network_that_names_classes_judge(net, images):
    brick = brickwork.compress(named(net), images, budget=0.3, **QUIET)
    assert brick.judged_by == "mean IoU with the whole"
    assert brick.classes == ("ground", "disc", "square")
    assert brick.accuracy_before == 1.0 > brick.accuracy_after > 0.3


def test_several_budgets_and_the_smallest_within_a_tolerance(net, images):
    several = brickwork.compress(named(net), images, budget=[0.6, 0.3], **QUIET)
    assert [brick.judged_by for brick in several.bricks.values()] == ["mean IoU with the whole"] * 2
    small = brickwork.compress(named(net), images, tolerance=0.02, ridge=1e-12, **QUIET)
    assert small.parameters < 0.7
    assert small.accuracy_after >= 0.98


def test_a_part_is_saved_polished_and_loaded(net, images, tmp_path):
    brick = brickwork.compress(net.float(), images.float(), budget=0.3, polish=0.01, **QUIET)
    assert brick.used["polish"]["after"] is not None
    brick.save(tmp_path / "part")
    again = Brick.load(tmp_path / "part", arch=UNet)
    assert again.judged_by == brick.judged_by
    with torch.no_grad():
        assert torch.equal(again.model(images.float()), brick.model(images.float()))


def test_a_large_map_is_looked_at_in_places(images):
    torch.manual_seed(0)
    large = torch.randn(10, 1, 100, 90)
    brick = brickwork.compress(UNet().eval(), large, budget=0.5, **QUIET)
    assert brick.accuracy_after > 0.9
    assert PLACES < 100 * 90


class Phases(nn.Module):
    """Half of the channels write one corner of each two by two places, the others the other three."""

    def __init__(self):
        super().__init__()
        self.a, self.up = nn.Conv2d(1, 32, 3, padding=1), nn.ConvTranspose2d(32, 2, 2, stride=2)
        with torch.no_grad():
            corner = torch.zeros(2, 2)
            corner[0, 0] = 1
            self.up.weight[::2] *= 1 - corner
            self.up.weight[1::2] *= corner

    def forward(self, x):
        return self.up(self.a(x).relu())


def test_every_corner_of_what_is_upsampled_is_looked_at():
    torch.manual_seed(0)
    net, images = Phases().double().eval(), torch.randn(60, 1, 32, 32).double()
    brick = brickwork.compress(net, images, budget=0.5, **QUIET)
    with torch.no_grad():
        whole, part = net(images), brick.model(images)
    variance = whole.transpose(0, 1).flatten(1).var(1).mean()
    true = 1 - (whole - part).square().mean() / variance
    assert brick.accuracy_after == pytest.approx(float(true), abs=0.1)


def test_a_map_of_one_place_is_a_map(images):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 3, 1), nn.AdaptiveAvgPool2d(1)).double().eval()
    brick = brickwork.compress(named(net), images, budget=0.5, **QUIET)
    assert brick.judged_by == "mean IoU with the whole"
    assert brick.accuracy_before == 1.0


def test_classes_are_named_by_the_masks_and_not_by_the_images(net, images):
    pictures, labels = (
        (images * 50 + 128).clamp(0, 255).byte().permute(0, 2, 3, 1).numpy(),
        torch.zeros(60).long().numpy(),
    )
    masks = torch.randint(0, 3, (60, 8, 8)).byte().numpy()
    data = brickwork.data.ImageData(
        "shapes",
        ("cat", "dog", "cow"),
        pictures,
        labels,
        pictures[:0],
        labels[:0],
        masks,
        mask_classes=("ink", "paper", "edge"),
    )
    assert brickwork.compress(net.float(), data, budget=0.5, **QUIET).classes == ("ink", "paper", "edge")
    data = replace(data, mask_classes=())
    assert brickwork.compress(net.float(), data, budget=0.5, **QUIET).classes == ("0", "1", "2")


def test_where_no_layout_says_which_axis_holds_the_classes(images):
    torch.manual_seed(0)
    body = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, padding=1)]
    shuffled = brickwork.compress(nn.Sequential(*body, nn.PixelShuffle(2)).double().eval(), images, budget=0.5, **QUIET)
    assert shuffled.classes == ("0", "1", "2")
    with torch.no_grad():
        assert shuffled.model(images).shape == (60, 3, 16, 16)
    line = nn.Sequential(nn.Conv1d(1, 8, 3), nn.ReLU(), nn.Conv1d(8, 3, 3), nn.Softmax(1)).double().eval()
    assert brickwork.compress(line, images[:, 0, :1], budget=0.5, **QUIET).classes == ("0", "1", "2")

    class Last(nn.Sequential):
        def forward(self, x):
            return super().forward(x).permute(0, 2, 3, 1).softmax(-1)

    with pytest.raises(BadModel, match="map of 8 × 8 × 12"):
        brickwork.compress(Last(*body).double().eval(), images, budget=0.5, **QUIET)


def test_parts_that_answer_with_maps_are_assembled_side_by_side(net, images):
    torch.manual_seed(1)
    other = UNet(2).double().eval()
    attach(other, replace(origin_of(other), classes=("cat", "dog")))
    parts = [brickwork.compress(n, images, budget=0.5, **QUIET) for n in (named(net), other)]
    with torch.no_grad():
        wanted = torch.cat([part.model(images) for part in parts], 1)
        assert (brickwork.assemble(parts)(images) - wanted).abs().max() <= 1e-10
    with pytest.raises(RequestError, match="calibrate is source, and these parts answer with maps"):
        brickwork.assemble(parts, calibrate="source")
    plain = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2)).double().eval()
    attach(plain, replace(origin_of(plain), classes=("x", "y")))
    one = brickwork.compress(plain, images, keep=0.9, **QUIET)
    with pytest.raises(RequestError, match="at 8 × 8 places of an image and that of x, y at one"):
        brickwork.assemble([parts[0], one])


def test_wrong_requests(net, images):
    masks = torch.zeros(60, 8, 8, dtype=torch.long)
    for wrong in (masks[:, :4], masks.double(), masks[:, 0, 0]):
        with pytest.raises(BadData, match=r"map of 3 × 8 × 8, .*give masks of class numbers, \(60, 8, 8\)"):
            brickwork.compress(net, (images, wrong), budget=0.5, **QUIET)
    with pytest.raises(BadData, match="masks run from 0 to 7, and the model has 3 classes"):
        brickwork.compress(net, (images, masks + 7 * (torch.arange(8) > 3)), budget=0.5, **QUIET)
    for below in ((masks - 1).to(torch.int8), (masks - 1).numpy()):
        with pytest.raises(BadData, match="masks run from -1 to -1"):
            brickwork.compress(net, (images, below), budget=0.5, **QUIET)
    with pytest.raises(
        RequestError, match=r"frat scores channels for classes.*a row of logits per image; choose rebuild"
    ):
        brickwork.compress(net, images, budget=0.5, attribution="frat", **QUIET)

    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 5)

        def forward(self, x):
            return self.b(self.a(x).relu())

    with pytest.raises(BadModel, match="map of 6 × 5"):
        brickwork.compress(Tokens(), torch.randn(20, 6, 4), budget=0.5, **QUIET)
    assert copy.deepcopy(net)(images).shape == (60, 3, 8, 8)
