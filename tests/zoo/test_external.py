"""Other people's models: the same words, an honest record, and no code or file that was not asked for."""

import importlib.util
import sys

import pytest
import torch

from brickwork import zoo
from brickwork.errors import BadFile, BadModel, RequestError, UnknownName
from brickwork.origin import origin_of

HF_VIT = {
    "image_size": 16,
    "patch_size": 8,
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_hidden_layers": 1,
    "intermediate_size": 32,
}


@pytest.fixture
def need_timm():
    import importlib.util

    if importlib.util.find_spec("timm") is None or importlib.util.find_spec("torchvision") is None:
        pytest.skip("needs the extra timm")


@pytest.fixture
def need_hf():
    pytest.importorskip("transformers", reason="needs the extra hf")


def outputs(model):
    with torch.no_grad():
        return model(zoo.example_input(model, batch=1))


def test_timm(need_timm):
    model = zoo.build("timm:resnet18", num_classes=5, in_channels=1, seed=0)
    assert outputs(model).shape == (1, 5)
    assert origin_of(model).args == {"num_classes": 5, "in_channels": 1}
    assert origin_of(model).input_shape == (1, 224, 224)


def test_timm_image_size(need_timm):
    model = zoo.build("timm:vit_tiny_patch16_224", image_size=32, num_classes=3)
    assert origin_of(model).input_shape == (3, 32, 32)
    assert outputs(model).shape == (1, 3)


@pytest.mark.parametrize("ours", ["resnet18", "resnet50", "mobilenetv2"])
def test_state_dicts_are_torchvisions(need_timm, ours):
    theirs = {"mobilenetv2": "mobilenet_v2"}.get(ours, ours)
    mine = zoo.build(ours, stem="imagenet", num_classes=1000).double()
    other = zoo.build(f"torchvision:{theirs}", seed=1).double()
    assert list(mine.state_dict()) == list(other.state_dict())
    mine.load_state_dict(other.state_dict())  # a published file loads, and means the same
    x = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        assert (mine(x) - other(x)).abs().max() <= 1e-10


def test_vgg_trunk_is_torchvisions(need_timm):
    mine = zoo.build("vgg16", batch_norm=True).features.double()
    theirs = zoo.build("torchvision:vgg16_bn", seed=1).features.double()
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(mine.eval()(x), theirs.eval()(x))


def test_vit_names_are_timms(need_timm):
    mine = zoo.build("vit_small", dim=192, depth=12, heads=3, mlp_ratio=4.0, num_classes=10).double()
    theirs = zoo.build("timm:vit_tiny_patch16_224", image_size=32, patch_size=4, num_classes=10, seed=1).double()
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn(1, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        assert (mine(x) - theirs(x)).abs().max() <= 1e-10


def test_torchvision_segmentation_gives_a_tensor(need_timm):
    model = zoo.build("torchvision:lraspp_mobilenet_v3_large", num_classes=4)
    with torch.no_grad():
        assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 4, 64, 64)


def test_torchvision_wants_three_channels(need_timm):
    zoo.build("torchvision:squeezenet1_1", in_channels=3)
    with pytest.raises(BadModel, match="3 image channels, not 1"):
        zoo.build("torchvision:squeezenet1_1", in_channels=1)


@pytest.mark.parametrize("option", ["checkpoint_path", "weights", "pretrained_cfg", "cache_dir"])
def test_arguments_that_would_read_a_file(need_timm, option):
    for arch in ("timm:resnet18", "torchvision:resnet18"):
        with pytest.raises(RequestError, match=f"does not take '{option}'"):
            zoo.build(arch, **{option: "somewhere"})


@pytest.mark.parametrize("arch", ["timm:resnet188", "torchvision:resnet181"])
def test_unknown_model_names(need_timm, arch):
    with pytest.raises(UnknownName, match="did you mean 'resnet18"):
        zoo.build(arch)


@pytest.mark.parametrize("arch", ["timm:resnet18", "torchvision:resnet18"])
def test_arguments_the_library_does_not_take(need_timm, arch):
    with pytest.raises(RequestError, match=f"{arch} cannot be built.*'colour'"):
        zoo.build(arch, colour=1)


def test_huggingface_config(need_hf):
    model = zoo.build("hf:vit", num_classes=4, seed=0, **HF_VIT)
    assert outputs(model).shape == (1, 4)
    origin = origin_of(model)
    assert origin.input_shape == (3, 16, 16)
    again = zoo.build(origin.arch, **origin.args)  # the record alone rebuilds it
    again.load_state_dict(model.state_dict())
    assert torch.equal(outputs(again), outputs(model))


def test_huggingface_folder_is_recorded_without_its_path(need_hf, tmp_path):
    model = zoo.build("hf:vit", num_classes=4, seed=0, **HF_VIT)
    model.model.save_pretrained(tmp_path)
    again = zoo.build(f"hf:{tmp_path}")
    assert torch.equal(outputs(again), outputs(model))
    assert origin_of(again) == origin_of(model)


def test_huggingface_folder_without_weights(need_hf, tmp_path):
    model = zoo.build("hf:vit", num_classes=4, **HF_VIT)
    model.model.config.save_pretrained(tmp_path)
    assert outputs(zoo.build(f"hf:{tmp_path}", num_classes=2)).shape == (1, 2)


def test_huggingface_refusals(need_hf, tmp_path):
    with pytest.raises(UnknownName, match="did you mean 'resnet'"):
        zoo.build("hf:reznet")
    with pytest.raises(UnknownName, match="did you mean 'hidden_size'"):
        zoo.build("hf:vit", hiden_size=3)
    with pytest.raises(UnknownName, match="_attn_implementation"):
        zoo.build("hf:vit", _attn_implementation="x")
    with pytest.raises(BadFile, match=r"no config\.json"):
        zoo.build(f"hf:{tmp_path}")
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoConfig": "evil.Config"}, "model_type": "evil"}')
    (tmp_path / "evil.py").write_text("raise SystemExit('code of the folder was run')")
    with pytest.raises(RequestError, match="cannot be built"):
        zoo.build(f"hf:{tmp_path}")


def test_a_library_that_wants_another_package(need_hf):
    if importlib.util.find_spec("natten") is not None:
        pytest.skip("natten is installed")
    with pytest.raises(RequestError, match=r"hf:dinat needs a package that is not installed: .*natten"):
        zoo.build("hf:dinat")


@pytest.fixture
def own_code(tmp_path, monkeypatch):
    (tmp_path / "my_nets_for_test.py").write_text(
        "from torch import nn\ndef net(width=3):\n    return nn.Linear(2, width)\ndef number():\n    return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_nets_for_test", None)


def test_a_function_of_the_users(own_code):
    path = list(sys.path)
    model = zoo.build("my_nets_for_test:net", width=5)
    assert model.out_features == 5
    assert origin_of(model).arch == "my_nets_for_test:net"
    assert sys.path == path


@pytest.mark.parametrize(
    ("arch", "args", "message"),
    [
        ("my_nets_for_test:nett", {}, "did you mean 'net'"),
        ("my_nets_for_test:net", {"depth": 2}, "'depth'"),
        ("my_nets_for_test:number", {}, "returned a int"),
        ("no_such_module_here:net", {}, "cannot import"),
        ("./nets/mine.py:net", {}, "as Python imports it, nets[.]mine:net, from"),
        (":net", {}, "cannot import"),
    ],
)
def test_a_function_of_the_users_refused(own_code, arch, args, message):
    with pytest.raises(RequestError, match=message):
        zoo.build(arch, **args)
