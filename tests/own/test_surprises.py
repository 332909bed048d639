"""What used to happen in silence: half of the images, another split, white pictures, rounded targets."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import brickwork
from brickwork import data
from brickwork.data.folders import picture_array
from brickwork.errors import BadData, BadFile
from brickwork.origin import Origin, attach


@pytest.fixture
def whole(here):
    """The tutorial's network as a folder that says nothing of how images are prepared."""
    net = brickwork.zoo.build("tutorialnet:TutorialNet")
    net.load_state_dict(torch.load("net.pth", weights_only=True))
    attach(net, Origin(arch="tutorialnet:TutorialNet", classes=("zero", "one", "two", "three", "four")))
    brickwork.save(net, "whole")
    return "whole"


def test_a_plain_folder_of_images_is_evaluated_whole(run, here, whole):
    images = len(list((here / "pics" / "test").rglob("*.png")))
    code, out, _ = run("eval", whole, "pics/test", "--arch", "tutorialnet:TutorialNet", "--json")
    assert code == 0 and json.loads(out)["images"] == images and json.loads(out)["split"] == "all"
    code, out, _ = run("eval", whole, "pics/test@4", "--arch", "tutorialnet:TutorialNet", "--json")
    assert json.loads(out)["images"] == 20
    held = data.load("pics/test")
    code, out, _ = run("eval", whole, "pics/test", "--arch", "tutorialnet:TutorialNet", "--split", "test")
    assert code == 0 and out.startswith(f"{len(held.test_labels)} images")
    assert "pics/test has no test split of its own; its test images are a part that is always the same" in out


def test_a_model_is_not_judged_on_the_pile_it_was_trained_on(run, here):
    pile = "pics/train"
    code, *_ = run("train", "lenet", pile, "--epochs", 1, "--out", "trained")
    code, out, _ = run("eval", "trained", pile, "--json")
    assert code == 0 and json.loads(out)["images"] == len(data.load(pile).test_labels)
    net, images = brickwork.zoo.build("lenet", num_classes=5, seed=0), data.load(pile)
    brickwork.train(net, images, epochs=1, progress=False)
    assert brickwork.eval(net, images).images == len(images.test_labels)
    stranger = brickwork.zoo.build("lenet", num_classes=5, seed=0)
    assert brickwork.eval(stranger, images).images == len(images.train_labels) + len(images.test_labels)


@pytest.mark.parametrize("name", ["val", "valid", "validation", "test"])
def test_the_other_names_of_a_test_split(shelf, tmp_path, name):
    shutil.copytree(shelf / "pics" / "train", tmp_path / "train")
    shutil.copytree(shelf / "pics" / "test", tmp_path / name)
    images = data.load(f"{tmp_path}/")
    assert len(images.train_labels) == len(list((tmp_path / "train").rglob("*.png")))
    assert len(images.test_labels) == len(list((tmp_path / name).rglob("*.png"))) and not images.piled


def test_a_network_that_does_not_say_how_images_are_prepared(run, here, whole):
    code, out, _ = run("eval", whole, "pics", "--arch", "tutorialnet:TutorialNet")
    assert code == 0 and "whole does not say how its images are prepared; they go in as 0..1, as they are." in out
    code, *_ = run("train", "lenet", "pics", "--epochs", 0, "--out", "fresh")
    assert "go in as 0..1" not in run("eval", "fresh", "pics")[1]


@pytest.mark.parametrize("targets", [torch.rand(20), np.linspace(0, 3, 20)])
def test_float_targets_are_refused_not_rounded(targets):
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    with pytest.raises(BadData, match=r"labels are float.*they must be whole numbers"):
        brickwork.train(net, torch.rand(20, 3, 4, 4), targets, epochs=1, progress=False)


def test_all_unreadable_files_are_named_and_other_kinds_passed_over(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "good.png")
        (tmp_path / name / "notes.txt").write_text("not an image")
    assert data.load(str(tmp_path) + "/").classes == ("cat", "dog")
    (tmp_path / "cat" / "cut.jpg").write_bytes(b"\xff\xd8")
    (tmp_path / "dog" / "empty.png").write_bytes(b"")
    with pytest.raises(BadFile, match=r"2 files of .*cut\.jpg is not an image.*empty\.png is not an image"):
        data.load(str(tmp_path) + "/")


def test_sixteen_bits_are_scaled_not_cut_off(tmp_path):
    levels = np.array([[0, 256 * 100], [256 * 200, 65535]], np.uint16)
    Image.fromarray(levels).save(tmp_path / "deep.png")
    with Image.open(tmp_path / "deep.png") as image:
        assert picture_array(image, None, 1)[..., 0].tolist() == [[0, 100], [200, 255]]


# merging


@pytest.fixture
def pair(tmp_path):
    for seed, name in enumerate("ab"):
        brickwork.save(brickwork.zoo.build("lenet", num_classes=2, seed=seed), tmp_path / name)
    return tmp_path


def test_infinite_weights_are_not_written(run, pair):
    for word in ("1e308", "1e39"):
        code, _, err = run("merge", pair / "a", pair / "b", "--weight", word, "--weight", word, "--out", pair / "n")
        assert code == 2 and "would become infinite or NaN" in err and not (pair / "n").exists()
    nets = [brickwork.load(pair / name) for name in "ab"]
    with pytest.raises(brickwork.errors.BadModel, match="would become infinite"):
        brickwork.merge(nets, weights=[1e308, 1e308])


def test_half_precision_that_overflows_is_not_written(run, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        save_file({"w": torch.full((3,), 40000.0, dtype=torch.float16)}, tmp_path / name / "model.safetensors")
    words = ("merge", tmp_path / "a", tmp_path / "b", "--weight", 1, "--weight", 1, "--out", tmp_path / "m")
    code, _, err = run(*words)
    assert code == 2 and "w would reach 8e+04, which float16 cannot hold" in err and not (tmp_path / "m").exists()


def test_weights_that_do_not_add_up_to_one_are_said(run, pair):
    words = ("merge", pair / "a", pair / "b", "--weight", 1, "--weight", 1)
    code, out, _ = run(*words, "--out", pair / "sum")
    assert code == 0 and "note: the weights add up to 2, not 1, so every tensor is scaled by 2" in out
    assert "note" not in run(*words, "--arg", "normalize=yes", "--out", pair / "mean")[1]
    assert "note" not in run(*words[:3], "--weight", 0.5, "--weight", 0.5, "--out", pair / "half")[1]
