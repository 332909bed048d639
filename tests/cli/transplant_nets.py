"""What the tests of `brickwork transplant` share: networks to grow nets from, and ways to look at a net."""

import hashlib
import json

import pytest
import torch

import brickwork
from brickwork import cli, data, zoo
from brickwork.training import train
from brickwork.transplant import load_net

DIGITS = "digits:0-2"


def make_folders(root):
    """dog, cat: LeNets of three digits; wide: of another size; net: dog and cat, not yet connected."""
    for name, size, seed in (("dog", 16, 0), ("cat", 16, 1), ("wide", 20, 2)):
        images = data.load(DIGITS, size=size, channels=1)
        model = zoo.build("lenet", num_classes=3, in_channels=1, seed=seed)
        train(
            model,
            images.train_images,
            images.train_labels,
            epochs=3 if size == 16 else 1,
            classes=images.classes,
            seed=seed,
            device="cpu",
            progress=False,
        )
        brickwork.save(model, root / name)
    for call in (
        ["add", root / "dog", "--at", "pool1", "--category", "dog", "--task", "classify", "--out", root / "first"],
        [
            "add",
            root / "cat",
            "--at",
            "pool1",
            "--category",
            "cat",
            "--task",
            "cats",
            "--to",
            root / "first",
            "--out",
            root / "net",
        ],
    ):
        with pytest.raises(SystemExit) as caught:
            cli.main(["transplant", *map(str, call)])
        assert not caught.value.code
    return root


def fingerprint(folder, **options):
    """A hash of every answer of a net on fixed images, route by route."""
    net = load_net(folder, **options)
    images = torch.rand(4, *net.input_shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return {route: hashlib.sha256(net(images, *route).numpy().tobytes()).hexdigest() for route in net.routes}


def done(run, *arguments):
    code, out, err = run(*arguments, "--json")
    assert code == 0, err
    return json.loads(out, parse_constant=pytest.fail)
