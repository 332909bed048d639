"""Images without labels: the network's own answers say what class an image counts as, and what a part is judged by."""

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork.data.images import ImageData
from brickwork.errors import BadData


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 3)).eval()
    with torch.no_grad():  # every class is the answer for many images
        made[2].weight *= 5
        made[2].bias -= made(torch.randn(1000, 4)).mean(0)
    return made


@pytest.fixture(scope="module")
def images():
    return torch.randn(400, 4, generator=torch.Generator().manual_seed(1))


def test_images_alone_are_enough(net, images):
    answers = net(images).argmax(1)
    for data in (images, images.numpy()):
        brick = brickwork.compress(net, data, budget=0.4, progress=False)
        same = brickwork.compress(net, (images, answers), budget=0.4, progress=False)
        assert brick.judged_by == "agreement" and brick.accuracy_before == 1.0
        assert brick.used["labels"] == "network" and "held-out agreement" in str(brick)
        assert brick.kept == same.kept and brick.accuracy_after == same.accuracy_after
        assert same.judged_by == "accuracy" and "labels" not in same.used


def test_labels_are_not_looked_at_where_the_networks_answers_are_asked_for(net, images):
    wrong = torch.zeros(len(images), dtype=torch.int64)
    brick = brickwork.compress(net, (images, wrong), budget=0.4, labels="network", progress=False)
    alone = brickwork.compress(net, images, budget=0.4, progress=False)
    assert brick.kept == alone.kept and brick.accuracy_after == alone.accuracy_after


def test_a_part_of_some_classes_from_images_alone(net, images):
    brick = brickwork.disassemble(net, [2, 0], images, keep=0.5, progress=False)
    assert brick.classes == ("2", "0") and brick.judged_by == "agreement"
    never = nn.Sequential(nn.Linear(4, 3)).eval()
    with torch.no_grad():
        never[0].bias[1] = -100.0
    with pytest.raises(BadData, match="answers '1' to none of the images"):
        brickwork.disassemble(never, [1, 0], images, keep=0.5, progress=False)


def test_classes_the_network_never_answers_do_not_stop_a_compression(net, images):
    """As with a network of 1000 classes and images of ten."""
    few = images[net(images).argmax(1) != 1]
    brick = brickwork.compress(net, few, budget=0.4, progress=False)
    assert brick.parameters <= 0.4 and len(brick.classes) == 3
    labels = net(few).argmax(1)
    with pytest.raises(BadData, match=r"no images of '1' in the data; give some of every class.*labels network"):
        brickwork.compress(net, (few, labels), budget=0.4, progress=False)


def test_a_set_of_other_classes(net, images):
    rows = (images.numpy() * 40 + 128).clip(0, 255).astype(np.uint8).reshape(-1, 2, 2, 1)
    pictures = ImageData("pics", ("pics",), rows[:300], np.zeros(300, np.int64), rows[300:], np.zeros(100, np.int64))
    flat = nn.Sequential(nn.Flatten(), net)
    with pytest.raises(BadData, match="classes"):
        brickwork.compress(flat, pictures, budget=0.4, progress=False)
    brick = brickwork.compress(flat, pictures, budget=0.4, labels="network", progress=False)
    assert brick.used["judged"] == {"images": 100, "of": "test"} and brick.judged_by == "agreement"
    several = brickwork.compress(flat, pictures, budget=[0.6, 0.3], labels="network", progress=False)
    assert several.to_dict()["judged_by"] == "agreement" and "agreement on 100 images" in str(several)


def test_a_set_without_test_images(net, images):
    rows = (images.numpy() * 40 + 128).clip(0, 255).astype(np.uint8).reshape(-1, 2, 2, 1)
    none = np.zeros(0, np.int64)
    pictures = ImageData("pics", ("pics",), rows, np.zeros(400, np.int64), rows[:0], none)
    brick = brickwork.compress(nn.Sequential(nn.Flatten(), net), pictures, budget=0.4, labels="network", progress=False)
    assert brick.used["judged"]["of"] == "held out" and brick.judged_by == "agreement"


def test_classes_with_few_images_leave_room_to_the_others(net, images):
    from brickwork.bricks.samples import Samples

    labels = np.repeat([0, 1, 2], [5, 395, 0])
    samples = Samples(images, labels, np.arange(400), np.arange(0), None, torch.device("cpu"), torch.float32)
    drawn = samples.of_classes([0, 1, 2], 100, 0)
    assert np.bincount(labels[drawn]).tolist() == [5, 95]
