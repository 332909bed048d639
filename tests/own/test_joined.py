"""Networks of a user's own architecture that were joined: loaded again, mixed with the zoo's, exported."""

import json

import pytest
import torch

import brickwork
from brickwork.errors import BadFile, RequestError
from brickwork.origin import Origin, attach, origin_of

NET = "tutorialnet:TutorialNet"
OTHER = "othernet:OtherNet"
IMAGES = ("--data", "pics")
CODE = """
from torch import nn


class OtherNet(nn.Module):
    def __init__(self, num_classes=5):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.head = nn.Linear(128, num_classes)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))
"""


@pytest.fixture
def bricks(run, here):
    """x3 and y1 of the user's network, z of another one of his, l of the zoo's LeNet."""
    (here / "othernet.py").write_text(CODE)
    mean, std = (here / "numbers.txt").read_text().split()
    words = ("--classes", "classes.txt", "--mean", mean, "--std", std, "--size", 32)
    assert run("import", "net.pth", "--arch", NET, *words, "--out", "whole")[0] == 0
    for arch, name in ((OTHER, "other"), ("lenet", "lenet")):
        assert run("train", arch, "pics", "--epochs", 1, "--out", f"{name}0")[0] == 0
    cuts = [("whole", "zero,one", "x3", NET), ("whole", "two", "y1", NET)]
    cuts += [("other0", "three", "z", OTHER), ("lenet0", "four", "l", None)]
    for model, classes, out, arch in cuts:
        named = ("--arch", arch) if arch else ()
        code, _, err = run("disassemble", model, "--classes", classes, *IMAGES, *named, "--keep", 0.7, "--out", out)
        assert code == 0, err
    return here


def test_what_was_assembled_of_an_own_architecture_is_loaded_again(run, bricks):
    assert run("assemble", "x3", "y1", "--arch", NET, "--out", "j1")[0] == 0
    code, out, err = run("eval", "j1", "pics:zero,one,two", "--arch", NET, "--json")
    assert code == 0 and json.loads(out)["accuracy"] > 0.8, err
    code, _, err = run("eval", "j1", "pics:zero,one,two")
    assert code == 2 and f"names code to import, {NET!r}" in err and f"give --arch {NET}" in err
    code, _, err = run("eval", "j1", "pics:zero,one,two", "--arch", OTHER)
    assert code == 2 and f"holds a {NET!r}, not a {OTHER!r}" in err
    from tutorialnet import TutorialNet

    x = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(brickwork.load("j1", arch=TutorialNet)(x), brickwork.load("j1", arch=[NET])(x))
    with pytest.raises(RequestError, match="not a 'othernet:OtherNet'"):
        brickwork.load("j1", arch=OTHER)


def test_own_and_zoo_bricks_are_mixed(run, bricks):
    archs = ("--arch", NET, "--arch", OTHER)
    code, _, err = run("assemble", "x3", "z", "l", *archs, "--out", "mixed")
    assert code == 0, err
    code, out, err = run("eval", "mixed", "pics:zero,one,three,four", *archs, "--json")
    assert code == 0 and json.loads(out)["classes"] == ["zero", "one", "three", "four"], err
    code, _, err = run("assemble", "x3", "l", "--arch", OTHER, "--out", "wrong")
    assert code == 2 and "not a 'othernet:OtherNet'; mend --arch, or leave it out" in err
    code, _, err = run("eval", "mixed", "pics:zero", "--arch", NET)
    assert code == 2 and f"names code to import, {OTHER!r}" in err


@pytest.mark.parametrize("to", ["onnx", "pt2", "torch"])
def test_a_joined_network_is_exported(run, bricks, to):
    out = {"torch": "plain"}.get(to, f"net.{to}")
    words = () if to == "torch" else ("--dynamic-batch",)
    assert run("assemble", "x3", "y1", "--arch", NET, "--out", "j1")[0] == 0
    code, text, err = run("export", "j1", "--arch", NET, "--to", to, *words, "--out", out, "--json")
    report = json.loads(text) if code == 0 else {}
    assert code == 0 and report["batch"] == "any" and report["largest_difference"] < 1e-4, err
    assert report["classes"] == ["zero", "one", "two"]


def test_networks_that_do_not_say_what_they_are(tmp_path):
    """Functions stand for them: one for all, or one for each in their order."""

    def make(width):
        def build():
            return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, width), torch.nn.Linear(width, 2))

        return build

    nets = [make(4)(), make(3)()]
    for net, names in zip(nets, ("ab", "cd"), strict=True):
        attach(net, Origin(classes=tuple(names), input_shape=(3, 2, 2)))
    joined = brickwork.join(nets, torch.zeros(1, 3, 2, 2), how="branches")
    brickwork.save(joined, tmp_path / "j")
    again = brickwork.load(tmp_path / "j", arch=[make(4), make(3)])
    x = torch.rand(5, 3, 2, 2)
    assert torch.equal(again(x), joined(x)) and origin_of(again).classes == tuple("abcd")
    with pytest.raises(BadFile, match="does not say which architecture it holds"):
        brickwork.load(tmp_path / "j")
    with pytest.raises(BadFile):
        brickwork.load(tmp_path / "j", arch=[make(3), make(4)])
    with pytest.raises(RequestError, match="2 networks that do not say what they are, and 3 arch are given"):
        brickwork.load(tmp_path / "j", arch=[make(4), make(3), make(2)])


def test_a_joined_network_says_what_it_takes():
    """torch.export speaks of the batch axis of `x`."""
    nets = [torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, k)) for k in (2, 3)]
    joined = brickwork.join(nets, torch.zeros(1, 3, 2, 2), how="branches").eval()
    shapes = ({0: torch.export.Dim("n")},)
    program = torch.export.export(joined, (torch.zeros(2, 3, 2, 2),), dynamic_shapes=shapes)
    assert program.module()(torch.zeros(7, 3, 2, 2)).shape == (7, 5)
