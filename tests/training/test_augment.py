"""Crops, mirrors and schedules, checked against their plain definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from brickwork.training import TrainOptions, resolve
from brickwork.training.augment import PAD, Batches
from brickwork.training.schedules import learning_rate


@pytest.mark.parametrize("augment", ["none", "flip", "crop", "crop+flip"])
def test_a_batch_is_what_padding_cropping_and_mirroring_give(augment):
    images = torch.randint(0, 256, (30, 12, 10, 3), dtype=torch.uint8)
    masks, labels = images[..., 0].clone(), torch.arange(30)
    batches = Batches(images, labels, masks, augment=augment)
    draw = batches.draw(seed=4)
    got, got_labels, got_masks = batches.take(draw, slice(5, 25))
    assert got_labels is not None and got_masks is not None
    for place, (image, label) in enumerate(zip(got, got_labels, strict=True)):
        plain = images[label].permute(2, 0, 1)
        if draw.down is not None and draw.right is not None:
            padded = F.pad(plain[None].float(), (PAD,) * 4, mode="reflect")[0].to(torch.uint8)
            top, left = draw.down[5 + place], draw.right[5 + place]
            plain = padded[:, top : top + 12, left : left + 10]
        if draw.mirrored is not None and draw.mirrored[5 + place]:
            plain = plain.flip(2)
        assert torch.equal(image, plain)
        assert torch.equal(got_masks[place], plain[0].long())
    assert got.is_contiguous(memory_format=torch.channels_last)


def test_an_epoch_visits_every_image_once_in_its_own_order():
    batches = Batches(torch.zeros(50, 4, 4, 1, dtype=torch.uint8), torch.arange(50), augment="none")
    first, second = batches.draw(seed=0).order, batches.draw(seed=1).order
    assert sorted(first.tolist()) == list(range(50)) and not torch.equal(first, second)


def rates(steps=10, **options):
    run = TrainOptions(epochs=10, lr=2.0, **options)
    return np.array([learning_rate(run, step, steps) for step in range(10 * steps)])


def test_schedules():
    assert np.all(rates(schedule="constant") == 2.0)
    falling = rates(schedule="cosine")
    assert falling[0] == 2.0 and np.all(np.diff(falling) < 0) and falling[-1] < 0.01
    cycle = rates(schedule="onecycle")
    assert np.argmax(cycle) == 20 and cycle[20] == 2.0 and cycle[0] == pytest.approx(0.08) and cycle[-1] < 0.01
    steps = rates(schedule="milestones", milestones=(5, 8))
    assert [round(steps[i], 6) for i in (0, 49, 50, 79, 80, 99)] == [2.0, 2.0, 0.2, 0.2, 0.02, 0.02]


def test_recipes_give_way_to_what_is_given():
    plain = resolve(TrainOptions(), "vgg16", 50_000, "cifar10")
    assert plain.augment == "crop+flip" and plain.batch_size >= 256
    assert resolve(TrainOptions(), "lenet", 700, "digits").augment == "none"
    assert resolve(TrainOptions(lr=0.3, weight_decay=0.0), "vgg16", 50_000).weight_decay == 0.0
    assert (
        resolve(TrainOptions(), "nobody", 20).epochs * (20 // resolve(TrainOptions(), "nobody", 20).batch_size) >= 600
    )
    assert resolve(TrainOptions(milestones=(3,)), "vgg16", 1000).schedule == "milestones"
    assert resolve(TrainOptions(optimizer="adam"), "vgg16", 1000).lr == 1e-3
