"""Cuts that a configuration can express, and the folders of transformers and timm that they become."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import brickwork
from brickwork import zoo
from brickwork.errors import BadFile, BrickworkError, RequestError
from brickwork.origin import Preprocessing, origin_of

VIT = {
    "hidden_size": 24,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "image_size": 16,
    "patch_size": 8,
}
TIMM_VIT = {"embed_dim": 24, "num_heads": 4, "depth": 2, "img_size": 16, "patch_size": 8}
STAGES = {"hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 1, 1]}
NETWORKS = {
    "hf:vit": VIT,
    "hf:resnet": {**STAGES, "embedding_size": 8, "layer_type": "basic"},
    "hf:convnext": STAGES,
    "hf:mobilenet_v1": {"depth_multiplier": 0.125},
    "timm:vit_tiny_patch16_224": TIMM_VIT,
    "timm:resnet18": {"channels": [64, 40, 40, 40]},
    "timm:resnet26": {"channels": [12, 12, 12, 12]},
    "timm:convnext_atto": {"dims": [8, 12, 16, 20], "depths": [1, 1, 1, 1]},
}


def images(side: int) -> tuple[np.ndarray, np.ndarray]:
    raw = np.random.default_rng(0).integers(0, 256, (40, side, side, 3), dtype=np.uint8)
    return raw, np.arange(40) % 5


def network(arch: str) -> torch.nn.Module:
    return zoo.build(arch, num_classes=5, seed=0, **NETWORKS[arch])


def cut(arch: str, **options) -> brickwork.Brick:
    side = 16 if "vit" in arch else 32
    return brickwork.disassemble(network(arch), [3, 1], images(side), uniform=True, progress=False, **options)


@pytest.mark.parametrize("arch", NETWORKS)
def test_the_librarys_own_network_has_the_cut_weights(arch, tmp_path):
    brick = cut(arch, budget=0.6)
    origin = origin_of(brick.model)
    assert brick.parameters <= 0.6 and origin.arch == arch and not origin.steps
    side = 16 if "vit" in arch else 32
    x = torch.rand(2, 3, side, side)
    again = brickwork.load(brick.save(tmp_path / "brick"))
    with torch.no_grad():
        expected = brick.model(x)
        assert torch.equal(again(x), expected)
        again.brickwork_origin = again.brickwork_origin.__class__(
            **{**again.brickwork_origin.__dict__, "input_shape": (3, side, side)}
        )
        to = "transformers" if arch.startswith("hf:") else "timm"
        brickwork.export_model(again, tmp_path / "out", to=to)
        config = json.loads((tmp_path / "out" / "config.json").read_text())
        if to == "timm":
            import timm

            other = timm.create_model(config["architecture"], num_classes=2, **config["model_args"]).eval()
            other.load_state_dict(load_file(tmp_path / "out" / "model.safetensors"))
            logits = other(x)
        else:
            import transformers

            other = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "out").eval()
            assert other.config.id2label == {0: "3", 1: "1"}
            logits = other(x).logits
    assert torch.allclose(logits, expected, atol=1e-6)


def test_a_share_of_every_number():
    args = origin_of(cut("hf:vit", keep=0.5).model).args
    assert (args["hidden_size"], args["num_attention_heads"], args["intermediate_size"]) == (12, 2, 24)


def test_several_budgets_and_a_budget_in_multiply_adds():
    found = brickwork.compress(
        network("hf:vit"), images(16), budget=[0.8, 0.5], of="macs", uniform=True, progress=False
    )
    assert all(brick.macs <= budget and not origin_of(brick.model).steps for budget, brick in found.bricks.items())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"attribution": "taylor", "keep": 0.5}, "`uniform` needs `attribution` rebuild"),
        ({"of": "latency", "budget": 0.5}, "`uniform` counts parameters or macs"),
        ({"depth": 2, "keep": 0.5}, "`depth` is not used beside `uniform`"),
        ({"round_to": 8, "keep": 0.5}, "`round_to` is not used beside `uniform`"),
        ({"threshold": 1.0}, "`uniform` needs `attribution` rebuild, not taylor"),
        ({"budget": 0.001}, "less than the narrowest configuration needs"),
    ],
)
def test_options_that_do_not_go_with_it(options, says):
    with pytest.raises(RequestError, match=says.replace("`", "`?")):
        cut("hf:vit", **options)


def test_networks_that_have_no_such_numbers():
    pair = images(32)
    small = brickwork.disassemble(network("hf:vit"), [0, 1], images(16), keep=0.5, progress=False).model
    for model, data, says in (
        (zoo.build("lenet", num_classes=5, seed=0), pair, "this is lenet"),
        (torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 8), torch.nn.Linear(8, 5)), pair, "Sequential"),
        (small, (images(16)[0], images(16)[1] % 2), "cut or joined before"),
        (zoo.build("torchvision:squeezenet1_1", num_classes=5, seed=0), images(64), "SqueezeNet"),
    ):
        with pytest.raises(RequestError, match=says):
            brickwork.compress(model, data, keep=0.5, uniform=True, progress=False)


def test_what_the_libraries_folders_refuse(tmp_path):
    vit = network("hf:vit")
    vit.brickwork_origin = vit.brickwork_origin.__class__(
        arch="hf:vit", args=origin_of(vit).args, input_shape=(3, 16, 16)
    )
    narrow = brickwork.disassemble(vit, [0, 1], images(16), keep=0.5, progress=False).model
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep me")
    for model, options, out, says in (
        (narrow, {"to": "transformers"}, "a", "cut with `?uniform"),
        (vit, {"to": "timm"}, "b", "takes networks of timm"),
        (zoo.build("lenet", seed=0), {"to": "transformers"}, "c", "this is lenet"),
        (vit, {"to": "transformers", "with_preprocessing": True}, "d", "with_preprocessing"),
        (vit, {"to": "transformers"}, "e.onnx", "a folder is written"),
        (vit, {"to": "transformers", "force": True}, "notes", "notes"),
    ):
        with pytest.raises(BrickworkError, match=says):
            brickwork.export_model(model, tmp_path / out, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes"]
    brickwork.export_model(vit, tmp_path / "ok", to="transformers")
    brickwork.export_model(vit, tmp_path / "ok", to="transformers", force=True)


def test_preprocessing_goes_there_and_comes_back(tmp_path):
    from PIL import Image

    from brickwork.data.folders import picture_array

    prepared = Preprocessing((16, 16), 3, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4), resize=20, interpolation="bicubic")
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)).resize((150, 120))
    mine = picture_array(picture, (16, 16), 3, prepared.framing).transpose(2, 0, 1) / 255
    mine = (mine - np.reshape(prepared.mean, (3, 1, 1))) / np.reshape(prepared.std, (3, 1, 1))
    for arch, to in (("hf:vit", "transformers"), ("timm:vit_tiny_patch16_224", "timm")):
        net = network(arch)
        origin = origin_of(net)
        names = ("a", "b", "c", "d", "e")
        net.brickwork_origin = origin.__class__(
            arch=arch, args=origin.args, input_shape=(3, 16, 16), classes=names, preprocessing=prepared
        )
        brickwork.export_model(net, tmp_path / to, to=to)
        again = brickwork.import_model(tmp_path / to)
        assert origin_of(again).preprocessing == prepared and origin_of(again).classes == names
        x = torch.rand(2, 3, 16, 16)
        with torch.no_grad():
            assert torch.equal(again(x), net(x))
    import timm
    import transformers

    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "transformers")
    theirs = processor(picture, return_tensors="np")["pixel_values"][0]
    assert np.abs(theirs - mine).max() < 0.1  # their scaling is torch's, which is not Pillow's to the last bit
    config = timm.data.resolve_model_data_config(timm.create_model(f"local-dir:{tmp_path / 'timm'}", pretrained=True))
    assert np.abs(timm.data.create_transform(**config)(picture).numpy() - mine).max() < 1e-5


def test_networks_of_timm_and_transformers_that_could_not_be_built():
    assert zoo.build("timm:deit_tiny_patch16_224", **TIMM_VIT).embed_dim == 24
    assert origin_of(zoo.build("timm:vit_tiny_patch16_224", **TIMM_VIT)).input_shape == (3, 16, 16)
    assert zoo.build("hf:deit", num_classes=3, **VIT).model.config.num_labels == 3


@pytest.mark.parametrize(
    "hostile", [{"pretrained": True}, {"checkpoint_path": "/etc/passwd"}, {"embed_dim": "/etc/passwd"}, ["embed_dim"]]
)
def test_a_strangers_arguments_open_and_fetch_nothing(hostile, tmp_path):
    net = network("timm:vit_tiny_patch16_224")
    brickwork.export_model(net, tmp_path / "out", to="timm")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    config["model_args"] = hostile if isinstance(hostile, list) else {**config["model_args"], **hostile}
    (tmp_path / "out" / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadFile, match=r"config\.json"):
        brickwork.import_model(tmp_path / "out")
