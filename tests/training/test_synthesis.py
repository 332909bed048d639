"""Calibration images out of batch-norm statistics: nearer to them than noise is, and good enough to repair a part on."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import brickwork
from brickwork import data, zoo
from brickwork.data.pixels import as_input
from brickwork.errors import BadModel, RequestError
from brickwork.evaluation import evaluate_data
from brickwork.origin import Origin, Preprocessing, attach, origin_of
from brickwork.training import synthesise, train
from brickwork.training.synthesis import _divergence


@pytest.fixture(scope="module")
def trained():
    digits = data.load("digits:A", size=8, channels=1)
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 16), (16, 24), (24, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 5))
    train(net, digits, epochs=6, lr=0.02, optimizer="sgd", batch_size=64, device="cpu", progress=False)
    return net, digits


@pytest.fixture(scope="module")
def made(trained):
    return synthesise(trained[0], images=100, steps=40, progress=False)


def distance(net, images):
    """How far what the batch norms see is from what they remember."""
    far = []
    net = copy.deepcopy(net).eval()
    for norm in (m for m in net.modules() if isinstance(m, _BatchNorm)):
        norm.register_forward_pre_hook(lambda m, given: far.append(float(_divergence(m, given[0]))))
    with torch.no_grad():
        net(as_input(images, origin_of(net).preprocessing))
    return float(np.mean(far))


def test_statistics_are_brought_about_again(trained, made):
    net, digits = trained
    noise = np.random.default_rng(0).integers(0, 256, made.train_images.shape).astype(np.uint8)
    real = distance(net, digits.train_images[:100])
    assert distance(net, made.train_images) < min(0.1, 0.1 * distance(net, noise))
    assert real < 0.1  # the measure is small where it should be
    answers = net(as_input(made.train_images, origin_of(net).preprocessing)).argmax(1)
    assert (answers.numpy() == made.train_labels).mean() > 0.9


def test_a_part_repaired_without_a_real_image(trained, made):
    net, digits = trained
    free = brickwork.compress(net, made, budget=0.2, of="macs", progress=False).model
    broken = brickwork.compress(net, made, budget=0.2, of="macs", repair="none", progress=False).model
    accuracy = {
        name: evaluate_data(m, digits).accuracy for name, m in (("free", free), ("broken", broken), ("whole", net))
    }
    assert accuracy["free"] > accuracy["whole"] - 0.1 and accuracy["free"] > accuracy["broken"] + 0.1


def test_the_same_seed_gives_the_same_images_and_leaves_the_network_alone(trained):
    net = copy.deepcopy(trained[0]).train()
    before = copy.deepcopy(net.state_dict())
    one, two = (synthesise(net, images=6, steps=3, batch_size=3, progress=False) for _ in range(2))
    other = synthesise(net, images=6, steps=3, batch_size=3, seed=1, progress=False)
    assert np.array_equal(one.train_images, two.train_images) and not np.array_equal(
        one.train_images, other.train_images
    )
    assert net.training and all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(p.requires_grad for p in net.parameters())


def test_what_cannot_be_made_is_refused(trained):
    with pytest.raises(BadModel, match="no batch norm with statistics"):
        synthesise(zoo.build("lenet", num_classes=2, in_channels=1))
    with pytest.raises(RequestError, match="images is 3; with 5 classes"):
        synthesise(trained[0], images=3)
    with pytest.raises(RequestError, match="does not say how large its images are; give size"):
        synthesise(nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.Flatten()))
    grey = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2 * 36, 3))
    assert synthesise(grey, images=4, steps=1, size=8, progress=False).train_images.shape == (4, 8, 8, 1)
    with pytest.raises(BadModel, match=r"forward fails on images of 1×9×9 .* give their right size"):
        synthesise(grey, images=4, size=9)
    with pytest.raises(BadModel, match="answers 2×6×6 numbers an image"):
        synthesise(grey[:2], images=4, size=8)
    unused = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    unused.norm = nn.BatchNorm2d(3)
    unused.forward = lambda x: unused[1](unused[0](x))
    attach(unused, Origin(input_shape=(1, 8, 8)))
    with pytest.raises(BadModel, match="uses none of its batch norms"):
        synthesise(unused, images=4, progress=False)
    broken = copy.deepcopy(trained[0])
    with torch.no_grad():
        next(broken.parameters()).fill_(float("nan"))
    with pytest.raises(BadModel, match="became NaN or infinite"):
        synthesise(broken, images=5, steps=1, progress=False)


def test_half_precision_and_other_outputs(trained):
    net = copy.deepcopy(trained[0]).half()
    made = synthesise(net, images=9, batch_size=4, steps=2, progress=False)
    assert (
        len(made.train_labels) == 9
        and made.classes == trained[1].classes
        and next(net.parameters()).dtype == torch.float16
    )
    two = copy.deepcopy(trained[0])
    two[-1] = nn.Linear(128, 2)  # the record still has five names
    assert synthesise(two, images=4, steps=1, progress=False).classes == ("0", "1")


def test_the_command_writes_what_others_read(tmp_path, run):
    net = zoo.build("resnet8", num_classes=5, in_channels=1, seed=0, width=4)
    attach(net, replace(origin_of(net), preprocessing=Preprocessing((8, 8), 1, (0.3,), (0.4,))))
    brickwork.save(net, tmp_path / "net")
    out = tmp_path / "made.npz"
    code, text, _ = run("synthesise", str(tmp_path / "net"), "--images", "40", "--steps", "2", "--out", str(out))
    assert code == 0 and "40 images of 8×8×1 for 5 classes" in text
    read = data.load(str(out))
    assert read.classes == ("0", "1", "2", "3", "4") and len(read.train_labels) == 40 and len(read.test_labels) == 0
    asked = ["compress", str(tmp_path / "net"), "--data", str(out), "--keep", "0.5", "--out", str(tmp_path / "small")]
    assert run(*asked)[0] == 0
    code, _, error = run("synthesise", str(tmp_path / "net"), "--images", "40", "--out", str(out))
    assert code == 2 and "made.npz" in error and "--force" in error
