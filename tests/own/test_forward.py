"""Networks that read their input with `view`, and networks whose forward fails."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import brickwork
from brickwork import data
from brickwork.data.pixels import as_input
from brickwork.origin import Origin, Preprocessing, attach
from brickwork.prediction import predict


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("prepared", [None, Preprocessing((8, 8), 3, (0.1, 0.2, 0.3), (0.5, 0.5, 0.5))])
def test_prepared_images_are_contiguous(channels, prepared):
    images = np.random.default_rng(0).integers(0, 255, (3, 12, 12, channels), np.uint8)
    assert as_input(images, prepared).is_contiguous()


class Viewing(nn.Module):
    """Flattens by `view`, and remembers in which layout its images came."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4 * 900, 2)
        self.views = True
        self.seen = []

    def forward(self, x):
        self.seen.append(x.is_contiguous())
        x = F.relu(self.conv(x))
        return self.head(x.view(len(x), -1) if self.views else x.flatten(1))


def test_a_network_that_views_is_given_what_it_can_view_and_others_the_faster_layout():
    net = Viewing()
    attach(net, Origin(preprocessing=Preprocessing((32, 32), 3, (0.5,) * 3, (0.5,) * 3)))
    images = np.random.default_rng(0).integers(0, 255, (100, 32, 32, 3), np.uint8)
    logits = predict(net, images)
    assert net.seen == [True, False, True]  # asked both ways, then all of them as it can
    net.seen.clear()
    net.views = False
    torch.testing.assert_close(predict(net, images), logits, rtol=1e-4, atol=1e-5)
    assert net.seen == [True, False, False]


def test_who_watches_a_network_sees_the_images_and_no_others():
    net, seen = Viewing(), []
    net.views = False
    net.head.register_forward_hook(lambda module, given, out: seen.append(len(out)))
    predict(net, np.zeros((100, 32, 32, 3), np.uint8), batch_size=60)
    assert seen == [60, 40]


def test_train_evaluate_cut_and_compress_a_network_that_views():
    digits = data.load("digits:A", size=32, channels=3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        net = Whole(net)
    brickwork.train(net, digits, epochs=4, lr=0.01, optimizer="adamw", batch_size=64, progress=False, device="cpu")
    assert brickwork.eval(net, digits).accuracy > 0.5
    brick = brickwork.disassemble(net, ["0", "1"], digits, budget=0.5)
    assert brick.parameters <= 0.5 and brickwork.eval(brick.model, digits.select([0, 1])).accuracy > 0.7
    assert brickwork.compress(net, digits, budget=0.6).parameters <= 0.6


class Whole(nn.Module):
    def __init__(self, stem):
        super().__init__()
        self.stem, self.head = stem, nn.Linear(4 * 15 * 15, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x)), 2)
        return self.head(x.view(x.size(0), -1))


def test_what_a_forward_raises_is_told_with_its_module_and_line(run, here):
    net = brickwork.zoo.build("tutorialnet:TutorialNet")
    attach(net, Origin(arch="tutorialnet:TutorialNet", classes=("zero", "one", "two", "three", "four")))
    brickwork.save(net, here / "whole")
    config = json.loads((here / "whole" / "config.json").read_text())
    (here / "whole" / "config.json").write_text(json.dumps({**config, "arch": "tutorialnet:Broken"}))
    code, _, err = run("eval", "whole", "pics/test", "--arch", "tutorialnet:Broken")
    lines = (here / "tutorialnet.py").read_text().splitlines()
    line = next(k for k, text in enumerate(lines, 1) if "torch.ones(3, 3)" in text)
    assert code == 2 and "fault of Brickwork" not in err
    assert f"the network's forward fails at Broken (tutorialnet.py:{line}): RuntimeError: mat1 and mat2 shapes" in err


def test_images_too_small_for_a_network_are_no_fault_of_brickwork(run, tmp_path):
    code, _, err = run("train", "lenet", "digits:A@5", "--size", 1, "--epochs", 1, "--out", tmp_path / "x")
    assert code == 2 and "the network's forward fails at" in err and "lenet.py:" in err
