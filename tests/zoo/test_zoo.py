"""Every architecture of the registry, without a new test for a new entry."""

import subprocess
import sys

import pytest
import torch

from brickwork import zoo
from brickwork.errors import RequestError, UnknownName
from brickwork.origin import origin_of
from brickwork.zoo.shuffle import channel_shuffle


@pytest.mark.parametrize("name", zoo.names())
def test_output_shape_and_origin(name):
    model = zoo.build(name, num_classes=7, in_channels=1, seed=0)
    with torch.no_grad():
        out = model(zoo.example_input(model))
    spatial = (32, 32) if zoo.REGISTRY[name].task == "segment" else ()
    assert out.shape == (2, 7, *spatial)
    assert torch.isfinite(out).all()
    origin = origin_of(model)
    assert origin.arch == name
    assert origin.args == {"num_classes": 7, "in_channels": 1}
    assert origin.input_shape == (1, 32, 32)
    assert not model.training


@pytest.mark.parametrize("name", zoo.names())
def test_seed_decides_the_weights_and_leaves_the_global_generator_alone(name):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, other = (zoo.build(name, seed=s).state_dict() for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[k], second[k]) for k in first)
    assert any(not torch.equal(first[k], other[k]) for k in first)


@pytest.mark.parametrize("name", zoo.names())
def test_every_parameter_gets_a_gradient(name):
    small = {"image_size": 8} if name == "vit_small" else {}
    model = zoo.build(name, num_classes=3, seed=0, **small).train()
    out = model(torch.randn(2, 3, 8, 8))
    # The logits' sum is blind to what the last layers add equally; squares see everything.
    (out**2).sum().backward()
    lost = [n for n, p in model.named_parameters() if p.grad is None]
    assert lost == []


@pytest.mark.parametrize("name", [n for n in zoo.names() if n != "vit_small"])
@pytest.mark.parametrize("size", [8, 28])
def test_other_image_sizes(name, size):
    model = zoo.build(name, num_classes=3, in_channels=1)
    with torch.no_grad():
        out = model(torch.zeros(1, 1, size, size))
    assert out.shape == ((1, 3, size, size) if zoo.REGISTRY[name].task == "segment" else (1, 3))


@pytest.mark.parametrize("name", zoo.names())
def test_builds_on_the_meta_device(name):
    with torch.device("meta"):
        assert all(p.is_meta for p in zoo.build(name).parameters())


def test_parameter_counts_of_the_papers():
    def count(name, **args):
        with torch.device("meta"):
            return sum(p.numel() for p in zoo.build(name, **args).parameters())

    assert count("lenet") == 44_726
    assert count("resnet18", stem="imagenet", num_classes=1000) == 11_689_512  # torchvision's number
    assert count("resnet50", stem="imagenet", num_classes=1000) == 25_557_032
    assert count("mobilenetv2", stem="imagenet", num_classes=1000) == 3_504_872
    assert 5.4e6 < count("simplenetv1") < 5.5e6  # "5.48 M" in the paper


def test_resnet8_has_eight_convolutions_and_two_shortcuts():
    model = zoo.build("resnet8", width=4, seed=0).double()
    convolutions = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convolutions) == 8
    x = zoo.example_input(model)
    with torch.no_grad():
        before = model(x)
        for block in (model.res1, model.res2):  # with a silent inner path, only the shortcut is left
            block[1][1].weight.zero_()
            block[1][1].bias.zero_()
        y = model.conv2(model.conv1(x))
        y = model.conv4(model.conv3(y))
        alone = model.fc(model.pool(y).flatten(1))
        assert torch.allclose(model(x), alone)
        assert not torch.allclose(before, alone)


def test_fcn8s_at_96_px():
    with torch.no_grad():
        assert zoo.build("fcn8s", num_classes=2)(torch.zeros(1, 3, 96, 96)).shape == (1, 2, 96, 96)


def test_fcn8s_skips_start_silent_and_matter_once_they_speak():
    model = zoo.build("fcn8s", num_classes=2, seed=0)
    x = zoo.example_input(model, batch=1)
    with torch.no_grad():
        before = model(x)
        for skip in (model.score_8, model.score_16):
            torch.nn.init.normal_(skip.weight)
            after = model(x)
            assert not torch.allclose(before, after)
            before = after


def test_bilinear_upsampling_keeps_a_constant_image():
    from brickwork.zoo.fcn import bilinear_upsampling

    up = bilinear_upsampling(2, 4)
    out = up(torch.ones(1, 2, 5, 5))
    assert out.shape == (1, 2, 20, 20)
    assert torch.allclose(out[:, :, 2:-2, 2:-2], torch.ones(1, 2, 16, 16))


def test_channel_shuffle_is_undone_by_the_other_grouping():
    x = torch.randn(2, 12, 3, 3)
    assert torch.equal(channel_shuffle(channel_shuffle(x, 3), 4), x)


def test_vit_position_embeddings_tell_patches_apart():
    model = zoo.build("vit_small", image_size=8, patch_size=4, seed=0)
    x = zoo.example_input(model, batch=1)
    assert x.shape == (1, 3, 8, 8)
    with torch.no_grad():
        assert not torch.allclose(model(x), model(x.flip(3)))


@pytest.mark.parametrize(
    ("arch", "args", "message"),
    [
        ("lenett", {}, "did you mean 'lenet'"),
        ("lenet", {"num_clases": 3}, "did you mean 'num_classes'"),
        ("resnet18", {"stem": "cifr"}, "did you mean 'cifar'"),
        ("mobilenetv2", {"stem": "x"}, "Known: cifar, imagenet"),
    ],
)
def test_unknown_names(arch, args, message):
    with pytest.raises(UnknownName, match=message):
        zoo.build(arch, **args)


@pytest.mark.parametrize(
    ("arch", "args", "message"),
    [
        ("lenet", {"num_classes": "ten"}, "lenet cannot be built"),
        ("lenet", {"num_classes": {1, 2}}, "JSON value"),
        ("lenet", {"num_classes": torch.tensor(3)}, "JSON value"),
        ("vit_small", {"image_size": 30, "patch_size": 4}, "multiple of patch_size"),
        ("vit_small", {"heads": 5}, "multiple of heads"),
        ("shuffle_small", {"width": 20}, "multiple of 4 × groups"),
    ],
)
def test_refused_arguments(arch, args, message):
    with pytest.raises(RequestError, match=message):
        zoo.build(arch, **args)


def test_example_input_of_a_name_of_a_module_and_of_a_stranger():
    assert zoo.example_input("resnet50").shape == (2, 3, 32, 32)
    assert zoo.example_input(zoo.build("lenet").double()).dtype == torch.float64
    with pytest.raises(RequestError, match="give an example"):
        zoo.example_input(torch.nn.Linear(2, 2))


def test_two_entries_of_one_name_are_a_mistake():
    with pytest.raises(ValueError, match="two architectures"):
        zoo.architecture("lenet")(lambda: None)


def test_core_zoo_needs_no_extra():
    code = """
import sys
for name in ("timm", "torchvision", "transformers"):
    sys.modules[name] = None  # what a machine without the extra looks like to import
from brickwork import errors, zoo
zoo.build("lenet")
for arch in ("timm:resnet18", "torchvision:resnet18", "hf:resnet"):
    try:
        zoo.build(arch)
    except errors.MissingExtra as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert "pip install -e '.[timm]'" in lines[0]
    assert lines[1].startswith("torchvision models need the extra 'timm'")
    assert "pip install -e '.[hf]'" in lines[2]
