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
    assert code == 0 and "the model does not say how its images are prepared; they went in as 0..1, as they are." in out
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


def test_a_model_that_does_not_say_how_images_are_prepared_in_python():
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    images, labels = np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1])
    found = brickwork.eval(net, images, labels)
    assert "went in as 0..1" in str(found) and "went in as 0..1" in found.to_dict()["note"]
    assert "note" not in brickwork.eval(net, torch.zeros(4, 3, 8, 8), labels).to_dict()


# names and places that are odd


def paint(folder, *names, count=6):
    draw = np.random.default_rng(0)
    for name in names:
        (folder / name).mkdir(parents=True)
        for k in range(count):
            Image.fromarray(draw.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(folder / name / f"{k}.png")
    return folder


def test_a_class_name_with_a_comma(run, tmp_path):
    pics = paint(tmp_path / "pics", "cat, small", "dog", "owl")
    assert data.load(f"{pics}:owl,cat, small").classes == ("owl", "cat, small")
    net = brickwork.zoo.build("lenet", num_classes=3, seed=0)
    brickwork.train(net, data.load(str(pics), size=16), epochs=1, progress=False)
    brickwork.save(net, tmp_path / "net")
    words = ("disassemble", tmp_path / "net", "--classes", "dog,cat, small", "--data", pics)
    code, out, err = run(*words, "--keep", 0.5, "--out", tmp_path / "part", "--json")
    assert code == 0 and json.loads(out)["classes"] == ["dog", "cat, small"], err
    assert "Or numbers (0-2)" in run("eval", tmp_path / "net", f"{pics}:cat")[2]


@pytest.mark.parametrize("name", ["pi@cs", "pi:cs", "a@b:c@3", "pics@2"])
def test_a_path_with_colons_and_ats(tmp_path, name):
    pics = paint(tmp_path / name, "cat", "dog")
    assert len(data.load(str(pics)).pooled().test_labels) == 12
    assert data.load(f"{pics}:dog").classes == ("dog",)
    assert len(data.load(f"{pics}:dog@2").train_labels) == 2
    assert len(data.load(f"{pics}@3").train_labels) == 6


def test_a_class_folder_that_is_no_utf8_is_refused_before_training(run, tmp_path):
    import os

    pics = paint(tmp_path / "pics", "tea", "coffee")
    os.rename(pics / "coffee", os.fsencode(pics) + b"/caf\xe9")
    code, _, err = run("train", "lenet", pics, "--size", 16, "--epochs", 1, "--out", tmp_path / "net")
    assert code == 2 and "which is no UTF-8; rename it" in err and not (tmp_path / "net").exists()


def test_a_class_folder_that_cannot_be_opened_is_named(tmp_path, monkeypatch):
    import os

    pics, scandir = paint(tmp_path / "pics", "cat", "dog"), os.scandir

    def closed(path="."):
        if os.fspath(path).endswith("dog"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(BadFile, match=r"pics/dog cannot be opened: Permission denied"):
        data.load(str(pics))


def test_weights_that_may_not_be_read_are_not_called_damaged(run, pair, monkeypatch):
    import builtins

    real = builtins.open

    def closed(path, *args, **more):
        if str(path).endswith("b/model.safetensors"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **more)

    monkeypatch.setattr(builtins, "open", closed)
    code, _, err = run("merge", pair / "a", pair / "b", "--out", pair / "m")
    assert code == 2 and "cannot be opened: Permission denied" in err and "damaged" not in err


def test_one_image_a_class_is_refused_before_training(run, tmp_path):
    pics = paint(tmp_path / "pics", "cat", "dog", count=1)
    code, _, err = run("train", "lenet", pics, "--size", 16, "--epochs", 1, "--out", tmp_path / "net")
    assert code == 2 and "has no image to test on" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [(("--size", 1), "Output size is too small"), (("--metrics", "/proc/x.jsonl"), "choose another --metrics")],
)
def test_training_that_cannot_be_is_refused_in_a_sentence(run, tmp_path, words, expected):
    code, _, err = run("train", "lenet", "digits:A@4", "--epochs", 1, *words, "--out", tmp_path / "net")
    assert code == 2 and expected in err and "fault of Brickwork" not in err


def test_a_spread_of_zero_is_refused(run, pair):
    words = (
        "import",
        pair / "a" / "model.safetensors",
        "--arch",
        "lenet",
        "--arg",
        "num_classes=2",
        "--classes",
        "x,y",
    )
    code, _, err = run(*words, "--mean", 0.5, "--std", 0, "--size", 32, "--out", pair / "i")
    assert code == 2 and "--std is 0.0; it must be above 0" in err


def test_a_log_file_gets_a_line_a_minute(capsys, monkeypatch):
    from brickwork import progress

    clock = iter(range(0, 1000, 25))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    with progress.bar("training", 6) as advance:
        for k in range(6):
            advance(1, f"loss {k}")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["training: 3 of 6, loss 2", "training: 6 of 6, loss 5"]
    with progress.bar("training", 6, show=False) as advance:
        advance(6)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "options", [{"budget": 0.5}, {"budget": 0.5, "attribution": "taylor"}, {"budget": 0.5, "of": "macs"}]
)
def test_a_budget_for_more_classes_than_any_layer_is_wide(options):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 12, 3),
        nn.ReLU(),
        nn.Conv2d(12, 24, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 200),
    )
    images, labels = torch.rand(400, 3, 8, 8), torch.arange(400) % 200
    small = brickwork.compress(net, (images, labels), images=100, scored=200, progress=False, **options)
    share = small.macs if "of" in options else small.parameters
    assert share <= options["budget"] and len(small.classes) == 200
