"""A user's own network, written as torch's tutorials write it, with its weights in a file and its images in folders."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from brickwork import data
from brickwork.training import train

NAMES = ("zero", "one", "two", "three", "four")
CODE = '''
import torch
from torch import nn
from torch.nn import functional as F


class TutorialNet(nn.Module):
    """LeNet as in torch's tutorial: the features are flattened by `view`."""

    def __init__(self, classes=5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 40)
        self.fc2 = nn.Linear(40, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), (2, 2))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.view(-1, self.num_flat_features(x))
        return self.fc2(F.relu(self.fc1(x)))

    def num_flat_features(self, x):
        size = 1
        for s in x.size()[1:]:
            size *= s
        return size


class Broken(TutorialNet):
    def forward(self, x):
        return super().forward(x) @ torch.ones(3, 3)
'''


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tutorialnet.py, net.pth (trained on five digits), classes.txt, and pics/train, pics/test of PNG files."""
    return fill(tmp_path_factory.mktemp("shelf"))


def fill(place: Path) -> Path:
    """Write the files of the shelf."""
    (place / "tutorialnet.py").write_text(CODE)
    sys.path.insert(0, str(place))
    try:
        from tutorialnet import TutorialNet
    finally:
        sys.path.remove(str(place))
    digits = data.load("digits:A", size=32, channels=3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = TutorialNet()
    prepared = digits.preprocessing()
    settings = {"epochs": 8, "lr": 0.003, "optimizer": "adamw", "batch_size": 32, "augment": "none"}
    train(net, digits.train_images, digits.train_labels, progress=False, preprocessing=prepared, **settings)
    torch.save(net.state_dict(), place / "net.pth")
    (place / "classes.txt").write_text("\n".join(NAMES) + "\n")
    for split in ("train", "test"):
        images, labels, _ = digits.split(split)
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            if number < 300:
                folder = place / "pics" / split / NAMES[label]
                folder.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image).save(folder / f"{number}.png")
    (place / "numbers.txt").write_text(f"{prepared.mean[0]} {prepared.std[0]}")
    return place


@pytest.fixture
def here(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new folder to work in that has the shelf's files."""
    for item in shelf.iterdir():
        (tmp_path / item.name).symlink_to(item)
    monkeypatch.chdir(tmp_path)
    return tmp_path
