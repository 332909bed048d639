"""Weight matching undoes a permutation exactly, on every architecture of the zoo."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from checks import randomise

import brickwork
from brickwork import zoo
from brickwork.errors import BadModel


def shuffled(bp: brickwork.Blueprint, seed: int) -> dict[str, list[int]]:
    """A random order of every space but the classes, channels staying within their layers and groups."""
    rng, orders = random.Random(seed), {}
    for name, size in bp.spaces.items():
        if name == "classes" or bp.space(name).fixed:
            continue
        kinds, order = bp.kinds(name, groups=True), list(range(size))
        for kind in np.unique(kinds):
            places = np.flatnonzero(kinds == kind).tolist()
            for a, b in zip(places, rng.sample(places, len(places)), strict=True):
                order[a] = b
        orders[name] = order
    return orders


@pytest.mark.parametrize("name", zoo.names())
def test_permuted_copies_are_matched_exactly(name):
    model = randomise(zoo.build(name, num_classes=3, seed=0)).float()
    bp = brickwork.trace(model, zoo.example_input(model, batch=1))
    turned = bp.permute(model, shuffled(bp, 1))
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), turned.parameters(), strict=True))
    back = bp.permute(turned, bp.align(model, turned))
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, back.state_dict()[key]), key


def test_networks_that_differ_come_closer():
    models = [zoo.build("lenet", seed=k) for k in (0, 1)]
    bp = brickwork.trace(models[0], zoo.example_input("lenet"))
    aligned = bp.permute(models[1], bp.align(*models))

    def distance(other):
        return sum((a - b).square().sum() for a, b in zip(models[0].parameters(), other.parameters(), strict=True))

    assert distance(aligned) < distance(models[1])


def test_another_architecture_is_refused():
    models = [zoo.build(name, seed=0) for name in ("lenet", "resnet8")]
    with pytest.raises(BadModel, match="another model"):
        brickwork.trace(models[0], zoo.example_input("lenet")).align(*models)
