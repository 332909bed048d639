"""`brickwork import`: .pth, .safetensors, timm and transformers, and what is refused by name."""

import importlib.util
import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import brickwork
from brickwork import data, zoo
from brickwork.errors import BadFile, BadModel, RequestError
from brickwork.origin import Framing, Preprocessing
from brickwork.zoo.torchvision_shim import import_torchvision

NET = "tutorialnet:TutorialNet"


@pytest.fixture
def library():
    """timm or transformers, imported as Brickwork imports them (torchvision's registry build needs its shim)."""

    def found(name):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
        import_torchvision()
        return importlib.import_module(name)

    return found


def importing(here, *more, file="net.pth", out="net"):
    mean, std = (here / "numbers.txt").read_text().split()
    words = ("--classes", "classes.txt", "--mean", mean, "--std", std, "--size", 32, "--out", out)
    return ("import", file, "--arch", NET, *words, *more)


def test_from_a_file_of_weights_to_two_of_its_classes(run, here):
    """Every verb takes the folder; the accuracy is that of the module itself."""
    code, out, err = run(*importing(here))
    assert code == 0 and "saved in net" in out, err
    code, out, _ = run("eval", "net", "pics/test", "--arch", NET, "--json")
    images = len(list((here / "pics" / "test").rglob("*.png")))
    report = json.loads(out)
    assert code == 0 and report["images"] == images and report["accuracy"] > 0.9 and report["notes"] == []
    words = ("--data", "pics", "--arch", NET)
    assert run("disassemble", "net", "--classes", "zero,three", *words, "--out", "two")[0] == 0
    assert run("compress", "net", *words, "--budget", 0.6, "--out", "small")[0] == 0
    assert run("merge", "net", "net", "--method", "linear", "--out", "merged")[0] == 0
    code, out, _ = run("eval", "two", "pics/test:zero,three", "--arch", NET, "--json")
    assert json.loads(out)["accuracy"] > 0.9


@pytest.mark.parametrize("wrap", ["state_dict", "model_state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module.", "module._orig_mod."])
def test_wrappers_are_taken_off_and_said(here, wrap, prefix):
    state = torch.load("net.pth", weights_only=True)
    torch.save({"epoch": 3, wrap: {prefix + name: value for name, value in state.items()}}, "wrapped.pth")
    net = brickwork.import_model("wrapped.pth", arch=NET, mean=[0.5], std=[0.5], size=32)
    assert all(torch.equal(net.state_dict()[name], value) for name, value in state.items())
    notes = net.brickwork_origin.provenance["import"]["notes"]
    assert (f"the prefix {prefix!r} was taken off every name" in notes) == bool(prefix)


def test_safetensors_and_half_precision(here):
    state = {n: v.half() for n, v in torch.load("net.pth", weights_only=True).items()}
    save_file(state, "net.safetensors")
    net = brickwork.import_model("net.safetensors", arch=NET, mean=0.5, std=0.5, size=32)
    assert net.fc1.weight.dtype == torch.float32 and torch.equal(net.fc1.weight.half(), state["fc1.weight"])
    assert net.brickwork_origin.preprocessing == Preprocessing((32, 32), 3, (0.5,) * 3, (0.5,) * 3)
    assert any("float16" in note for note in net.brickwork_origin.provenance["import"]["notes"])


def test_a_function_builds_it(here):
    from tutorialnet import TutorialNet

    net = brickwork.import_model("net.pth", arch=TutorialNet, classes="classes.txt", mean=0.5, std=0.5, size=32)
    brickwork.save(net, "mine")
    assert brickwork.load("mine", arch=TutorialNet).brickwork_origin.classes[3] == "three"


def change(state, how):
    if how == "missing":
        del state["fc1.bias"]
    elif how == "unexpected":
        state["fc9.bias"] = torch.zeros(3)
    else:
        state["fc1.bias"] = torch.zeros(7)
    return state


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("missing", "it lacks fc1.bias"),
        ("unexpected", "it has, which the network has not, fc9.bias"),
        ("misshapen", "it has in another shape fc1.bias (7, the network has 40)"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(run, here, how, told):
    torch.save(change(torch.load("net.pth", weights_only=True), how), "bad.pth")
    code, _, err = run(*importing(here, file="bad.pth", out="bad"))
    assert code == 2 and told in err and not (here / "bad").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--classes", "six"), "5 outputs and 6 class names"),
        (("--classes", "none.txt"), "--classes none.txt cannot be read"),
        (("--size", "32x32"), "--size is (32, 32, 32); it must be one number, or height and width"),
        (("--key", "ema"), "has no table of tensors called 'ema'"),
        (("--resize", 16), "--resize 16×16 is smaller than --size 32×32"),
        (("--interpolation", "sinc"), "--interpolation is 'sinc'"),
    ],
)
def test_wrong_requests(run, here, more, told):
    code, _, err = run(*importing(here, *more))
    assert code == 2 and told in err and not (here / "net").exists()


def test_more_wrong_requests(here):
    words = {"arch": NET, "mean": [0.5], "std": [0.5], "size": 32}
    with pytest.raises(RequestError, match="give mean, std"):
        brickwork.import_model("net.pth", arch=NET, size=32)
    with pytest.raises(BadModel, match="5 outputs and 2 class names"):
        brickwork.import_model("net.pth", classes="a,b", **words)
    with pytest.raises(RequestError, match="'a' twice"):
        brickwork.import_model("net.pth", classes="a,b,c,d,a", **words)
    with pytest.raises(BadModel, match="does not take images of 3×20×20"):
        brickwork.import_model("net.pth", **{**words, "size": 20})
    with pytest.raises(RequestError, match=r"std is .*above 0"):
        brickwork.import_model("net.pth", **{**words, "std": 0})
    with pytest.raises(RequestError, match="holds tensors, not the network"):
        brickwork.import_model("net.pth", mean=0, std=1, size=32)


def test_one_number_for_all_may_be_for_grey_images(tmp_path):
    """An own architecture does not say how many channels it takes: three are tried first, then one."""
    for channels in (3, 1, 2):
        net = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
        save_file(net.state_dict(), tmp_path / "net.safetensors")
        given = {"arch": lambda net=net: net, "mean": [0.5], "std": [0.25], "size": [8]}
        if channels == 2:
            with pytest.raises(BadModel, match="does not take images of 3×8×8"):
                brickwork.import_model(tmp_path / "net.safetensors", **given)
        else:
            origin = brickwork.import_model(tmp_path / "net.safetensors", **given).brickwork_origin
            assert origin.input_shape == (channels, 8, 8) and origin.preprocessing.mean == (0.5,) * channels


def test_a_pickled_module_is_not_unpickled(here):
    torch.save(nn.Linear(2, 2), "whole.pth")
    with pytest.raises(BadFile, match="runs no code from a file"):
        brickwork.import_model("whole.pth", arch=NET, mean=0, std=1, size=32)


# how images are framed


@pytest.fixture
def photograph(tmp_path):
    """A file of no particular size in a folder of its class."""
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 255, (9, 12, 3), np.uint8))
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    small.resize((301, 233), Image.Resampling.BICUBIC).save(tmp_path / "photos" / "cat" / "1.png")
    return tmp_path / "photos" / "cat" / "1.png"


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224", "convnext_atto"])
def test_a_timm_network_sees_what_timm_would_show_it(tmp_path, photograph, name, library):
    """`pretrained_cfg` is recorded and applied: the same numbers, to the last bit, as timm's own transforms."""
    library("timm")
    built = zoo.build(f"timm:{name}", num_classes=2, seed=0)
    torch.save(built.state_dict(), tmp_path / "net.pth")
    net = brickwork.import_model(tmp_path / "net.pth", arch=f"timm:{name}", classes=["cat", "dog"])
    prepared = net.brickwork_origin.preprocessing
    from timm.data import create_transform, resolve_data_config

    with Image.open(photograph) as image:
        expected = create_transform(**resolve_data_config({}, model=built))(image.convert("RGB"))
    images = data.load_for(prepared, f"{tmp_path}/photos/").pooled()
    brickwork.save(net, tmp_path / "folder")
    again = brickwork.load(tmp_path / "folder").brickwork_origin.preprocessing
    assert again == prepared and prepared.resize is not None
    torch.testing.assert_close(data.pixels.as_input(images.test_images, again)[0], expected, rtol=0, atol=2e-6)


def test_a_transformers_folder(run, tmp_path, photograph, library):
    transformers = library("transformers")
    config = transformers.ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], num_labels=2, id2label={0: "cat", 1: "dog"}
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = transformers.ResNetForImageClassification(config).eval()
    net.save_pretrained(tmp_path / "hf")
    settings = {"size": {"shortest_edge": 64}, "crop_size": {"height": 48, "width": 48}, "do_center_crop": True}
    settings |= {"do_resize": True, "resample": 3, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4]}
    (tmp_path / "hf" / "preprocessor_config.json").write_text(json.dumps(settings))
    code, _, err = run("import", tmp_path / "hf", "--out", tmp_path / "folder")
    assert code == 0, err
    again = brickwork.load(tmp_path / "folder")
    prepared = again.brickwork_origin.preprocessing
    assert again.brickwork_origin.classes == ("cat", "dog") and prepared.size == (48, 48)
    assert prepared.framing == Framing(64, "bicubic") and prepared.mean == (0.5, 0.4, 0.3)
    x = torch.rand(2, 3, 48, 48)
    torch.testing.assert_close(again(x), net(x).logits)
    code, out, _ = run("eval", tmp_path / "folder", f"{tmp_path}/photos/", "--json")
    assert code == 0 and json.loads(out)["images"] == 1

    state = {n: v for n, v in net.state_dict().items() if n != "classifier.1.bias"}
    save_file(state, tmp_path / "hf" / "model.safetensors", {"format": "pt"})
    code, _, err = run("import", tmp_path / "hf", "--out", tmp_path / "other")
    assert code == 2 and "it lacks classifier.1.bias" in err and not (tmp_path / "other").exists()


def test_a_timm_folder_of_the_hub(tmp_path, library):
    library("timm")
    built = zoo.build("timm:resnet10t", num_classes=2, seed=0)
    facts = {"architecture": "resnet10t", "num_classes": 2, "label_names": ["cat", "dog"]}
    facts["pretrained_cfg"] = {"input_size": [3, 64, 64], "mean": [0.1] * 3, "std": [0.2] * 3, "crop_pct": 0.5}
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "config.json").write_text(json.dumps(facts))
    save_file(built.state_dict(), tmp_path / "hub" / "model.safetensors")
    net = brickwork.import_model(tmp_path / "hub")
    assert net.brickwork_origin.classes == ("cat", "dog") and net.brickwork_origin.preprocessing.resize == 128
    assert net.brickwork_origin.arch == "timm:resnet10t"


def test_arrays_are_framed_like_files(tmp_path, photograph):
    """The tensor's way and Pillow's way of scaling differ by rounding alone."""
    with Image.open(photograph) as image:
        raw = np.array(image.convert("RGB"))[None]
    for framing in (Framing(64), Framing(64, "bicubic"), Framing((48, 64)), Framing(64, "nearest")):
        images = data.load(f"{tmp_path}/photos/", size=48, framing=framing).pooled().test_images
        prepared = Preprocessing((48, 48), 3, (0.0,) * 3, (1 / 255,) * 3, framing.resize, framing.interpolation)
        close = data.pixels.as_input(raw, prepared)[0].permute(1, 2, 0).numpy() - images[0]
        assert images.shape == (1, 48, 48, 3) and np.abs(close).max() <= (
            60 if framing.interpolation == "nearest" else 2
        )


def test_folders_of_before_are_read_and_written_as_before(tmp_path):
    net = zoo.build("lenet", num_classes=2, seed=0)
    plain = Preprocessing((32, 32), 3, (0.5,) * 3, (0.5,) * 3)
    brickwork.origin.attach(net, brickwork.origin.Origin(arch="lenet", args={"num_classes": 2}, preprocessing=plain))
    brickwork.save(net, tmp_path / "net")
    facts = json.loads((tmp_path / "net" / "config.json").read_text())["preprocessing"]
    assert set(facts) == {"size", "channels", "mean", "std"}
    assert brickwork.load(tmp_path / "net").brickwork_origin.preprocessing == plain


def test_a_factory_of_ones_own_is_told_its_number_of_classes(tmp_path):
    def net(num_classes=10):
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, num_classes))

    file = tmp_path / "net.pth"
    torch.save(net(2).state_dict(), file)
    how = {"classes": ["cat", "dog"], "mean": [0], "std": [1], "size": [2]}
    with pytest.raises(BadFile, match=r"2×12, the network has 10×12.*Of 2 classes: arg num_classes=2\.$"):
        brickwork.import_model(file, arch=net, **how)
    assert brickwork.import_model(file, arch=net, args={"num_classes": 2}, **how).brickwork_origin.classes == (
        "cat",
        "dog",
    )


def with_heads(here):
    """The tutorial's weights as a checkpoint of a wrapped network with an auxiliary head and averaged weights."""
    state = torch.load("net.pth", weights_only=True)
    head = {
        "module.aux1.fc.weight": torch.ones(5, 9),
        "module.aux1.fc.bias": torch.ones(5),
        "n_averaged": torch.tensor(3),
    }
    torch.save({f"module.{name}": value for name, value in state.items()} | head, "heads.pth")
    return state, head


def test_named_tensors_are_left_out_and_said(run, here):
    """By their names with and without a wrapper's prefix, which is taken off what is left."""
    state, head = with_heads(here)
    code, out, err = run(*importing(here, "--skip", "aux*", "--skip", "n_averaged", "--json", file="heads.pth"))
    assert code == 0, err
    told = "2 tensors left out by 'aux*': module.aux1.fc.weight, module.aux1.fc.bias"
    notes = json.loads(out)["notes"]
    assert notes[:2] == [told, "1 tensor left out by 'n_averaged': n_averaged"]
    net = brickwork.load("net", arch=NET)
    assert all(torch.equal(net.state_dict()[name], value) for name, value in state.items())
    record = net.brickwork_origin.provenance["import"]
    assert record["skipped"] == list(head) and record["notes"] == notes


@pytest.mark.parametrize(
    ("skip", "told"),
    [
        ([], "that the weights were trained in, or leave out by --skip what the network does without."),
        (["AUX*"], "--skip 'AUX*' fits none of the tensors of heads.pth that are left; it has"),
        (["aux*", "n_averaged", "fc1.bias"], "it lacks fc1.bias"),
        (["n_averaged"], "it has, which the network has not, module.aux1.fc.weight, module.aux1.fc.bias."),
    ],
)
def test_what_is_not_left_out_must_fit(run, here, skip, told):
    with_heads(here)
    code, _, err = run(*importing(here, *(word for name in skip for word in ("--skip", name)), file="heads.pth"))
    assert code == 2 and told in err and not (here / "net").exists()
