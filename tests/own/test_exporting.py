"""`brickwork export`: files that run without Brickwork, and say the same."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import data, zoo
from brickwork.blueprint.norms import SparseLayerNorm
from brickwork.blueprint.parts import more_classes
from brickwork.errors import BadModel, JobFailed, RequestError
from brickwork.export import exporting
from brickwork.origin import Origin, Preprocessing, attach, origin_of

PREPARED = Preprocessing((32, 32), 3, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


def described(model, classes):
    attach(model, replace(origin_of(model), classes=tuple(classes), preprocessing=PREPARED, input_shape=(3, 32, 32)))
    return model.eval()


def cut(arch):
    net = described(zoo.build(arch, num_classes=4, seed=0), "abcd")
    blueprint = brickwork.trace(net, torch.zeros(1, 3, 32, 32))
    spaces = {name: range(0, size, 2) for name, size in blueprint.spaces.items() if name != "classes"}
    keep = {name: list(places) for name, places in spaces.items() if not blueprint.space(name).fixed}
    return described(blueprint.select(net, {**keep, "classes": [0, 2]}), "ac")


def joined(how, *archs):
    nets = [described(zoo.build(arch, num_classes=2, seed=k), f"{k}{arch}"[:2]) for k, arch in enumerate(archs)]
    model = brickwork.join(nets, torch.zeros(1, 3, 32, 32), how=how)
    return described(model, [str(k) for k in range(2 * len(archs))])


NETWORKS = {
    "cut": lambda: cut("resnet8"),
    "cut depthwise": lambda: cut("mobilenetv2"),
    "cut transformer": lambda: cut("vit_small"),
    "blocks": lambda: joined("blocks", "resnet8", "resnet8"),
    "blocks of transformers": lambda: joined("blocks", "vit_small", "vit_small"),
    "branches": lambda: joined("branches", "lenet", "resnet8"),
    "grown": lambda: described(more_classes(zoo.build("lenet", num_classes=2, seed=0), 2, 1), "abc"),
    "segmenter": lambda: described(zoo.build("fcn8s", num_classes=2, seed=0), "ab"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_plain_torch_says_the_same_without_brickwork(tmp_path, name):
    """In a process of its own that cannot import Brickwork or safetensors; on images as they are, and on prepared ones."""
    model = NETWORKS[name]()
    with torch.no_grad():
        for values in model.parameters():
            values.add_(torch.randn(values.shape, generator=torch.Generator().manual_seed(1)) * 0.02)
    brickwork.export_model(model, tmp_path / "prepared", to="torch")
    brickwork.export_model(model, tmp_path / "raw", to="torch", with_preprocessing=True)
    images = torch.randint(0, 256, (5, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    torch.save(images, tmp_path / "images.pt")
    code = (
        "import importlib, sys\n"
        "for name in ('brickwork', 'safetensors', 'timm', 'transformers'): sys.modules[name] = None\n"
        "import torch\n"
        "images = torch.load('images.pt')\n"
        "for kind in ('prepared', 'raw'):\n"
        "    sys.path.insert(0, kind)\n"
        "    network = importlib.import_module('network')\n"
        "    given = images if kind == 'raw' else network.prepare(images)\n"
        "    torch.save((network.load()(given).detach(), network.CLASSES), kind + '.pt')\n"
        "    del sys.modules['network'], sys.path[0]\n"
        "    importlib.invalidate_caches()\n"
    )
    surroundings = {**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=surroundings)
    with torch.no_grad():
        expected = model(data.pixels.as_input(images, PREPARED))
    for kind in ("prepared", "raw"):
        logits, classes = torch.load(tmp_path / f"{kind}.pt", weights_only=True)
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
        assert classes == list(origin_of(model).classes)


@pytest.mark.parametrize("name", ["cut", "blocks", "branches", "grown"])
def test_onnx_and_pt2_say_the_same_on_raw_images(tmp_path, name):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = NETWORKS[name]()
    images = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), np.uint8)
    with torch.no_grad():
        expected = model(data.pixels.as_input(images, PREPARED))
    options = {"dynamic_batch": True, "with_preprocessing": True}
    written = brickwork.export_model(model, tmp_path / "net.onnx", to="onnx", **options)
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    torch.testing.assert_close(
        torch.from_numpy(session.run(None, {"images": images})[0]), expected, rtol=1e-3, atol=1e-4
    )
    if hasattr(torch.onnx.ONNXProgram, "rename_axes"):
        assert [place.shape[0] for place in (*session.get_inputs(), *session.get_outputs())] == ["batch", "batch"]
    said = session.get_modelmeta().custom_metadata_map
    assert json.loads(said["classes"]) == list(origin_of(model).classes) and written.checked_with == "onnxruntime"
    assert json.loads(said["preprocessing"])["mean"] == [0.1, 0.2, 0.3]

    brickwork.export_model(model, tmp_path / "net.pt2", to="pt2", **options)
    extra = {"classes.json": "", "preprocessing.json": ""}
    program = torch.export.load(tmp_path / "net.pt2", extra_files=extra)
    torch.testing.assert_close(program.module()(torch.from_numpy(images)), expected, rtol=1e-4, atol=1e-4)
    assert json.loads(extra["classes.json"]) == list(origin_of(model).classes)


def test_tokens_that_are_zero_survive_the_optimiser_of_onnx(tmp_path):
    """A class token begins as zeros, an eps may be 1e-12: the optimiser took it for nothing, and 1 / 0 was written."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    conv = nn.Conv2d(3, 4, 32)
    net = described(
        nn.Sequential(conv, nn.ReLU(), nn.Flatten(), SparseLayerNorm(4, 6, eps=1e-12), nn.Linear(4, 2)), "ab"
    )
    with torch.no_grad():
        conv.bias.fill_(-1e6)
    brickwork.export_model(net, tmp_path / "net.onnx", to="onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    [said] = session.run(None, {session.get_inputs()[0].name: np.zeros((1, 3, 32, 32), np.float32)})
    assert np.allclose(said, net(torch.zeros(1, 3, 32, 32)).detach().numpy(), atol=1e-6)


def test_a_file_of_one_image_and_of_any_number(tmp_path):
    model = described(zoo.build("lenet", num_classes=2, seed=0), "ab")
    assert brickwork.export_model(model, tmp_path / "one.pt2", to="pt2").batch == "1"
    with pytest.raises(Exception, match=r"(?i)expected|guard|constraint"):
        torch.export.load(tmp_path / "one.pt2").module()(torch.zeros(3, 3, 32, 32))
    assert brickwork.export_model(model, tmp_path / "any.pt2", to="pt2", dynamic_batch=True).batch == "any"


def test_nothing_is_written_that_says_something_else(tmp_path, monkeypatch):
    model = described(zoo.build("lenet", num_classes=2, seed=0), "ab")
    real = exporting.write_plain
    monkeypatch.setattr(exporting, "write_plain", lambda *given: lambda images: real(*given)(images) + 0.5)
    with pytest.raises(JobFailed, match=r"would differ from the network by 0\.5 in a logit; nothing was written"):
        brickwork.export_model(model, tmp_path / "plain", to="torch")
    assert list(tmp_path.iterdir()) == []


class Counting(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :2] * (2.0 if len(x) == 2 else 1.0)


def test_wrong_requests(tmp_path, run):
    model = described(zoo.build("lenet", num_classes=2, seed=0), "ab")
    with pytest.raises(RequestError, match=r"net\.pt; by to onnx it must end in \.onnx"):
        brickwork.export_model(model, tmp_path / "net.pt", to="onnx")
    with pytest.raises(RequestError, match="a folder is written"):
        brickwork.export_model(model, tmp_path / "net.py", to="torch")
    with pytest.raises(RequestError, match="dynamic_batch is not used by to torch"):
        brickwork.export_model(model, tmp_path / "net", to="torch", dynamic_batch=True)
    with pytest.raises(BadModel, match="does not say which images it takes"):
        brickwork.export_model(nn.Linear(2, 2), tmp_path / "net", to="torch")
    bare = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    attach(bare, Origin(input_shape=(3, 2, 2)))
    with pytest.raises(BadModel, match="does not say how its images are prepared"):
        brickwork.export_model(bare, tmp_path / "net", to="torch", with_preprocessing=True)
    counting = Counting()
    attach(counting, Origin(input_shape=(3, 2, 2)))
    with pytest.raises(BadModel, match="fixes the number of images"):
        brickwork.export_model(counting, tmp_path / "net.pt2", to="pt2", dynamic_batch=True)
    brickwork.save(model, tmp_path / "folder")
    code, _, err = run("export", tmp_path / "folder", "--to", "tflite", "--out", tmp_path / "x.tflite")
    assert code == 2 and "--to is 'tflite'; it must be one of onnx, pt2, torch" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder"]


def test_a_part_of_a_network_of_ones_own_says_which_images_it_takes(tmp_path):
    """As does a network whose preprocessing has a size."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval()
    brick = brickwork.compress(net, (torch.randn(40, 3, 9, 7), torch.arange(40) % 4), keep=0.9, progress=False)
    assert "N×3×9×7" in brickwork.export_model(brick.model, tmp_path / "part", to="torch").takes
    assert origin_of(net).input_shape is None
    attach(net, Origin(preprocessing=PREPARED))
    assert "N×3×32×32" in brickwork.export_model(net, tmp_path / "whole", to="torch").takes


OTHER_INPUTS = {
    "table": ((7,), lambda: nn.Sequential(nn.Linear(7, 4), nn.ReLU(), nn.Linear(4, 2))),
    "sound": ((2, 16), lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(56, 2))),
    "volume": ((1, 4, 6, 6), lambda: nn.Sequential(nn.Conv3d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 2))),
}


@pytest.mark.parametrize("kind", OTHER_INPUTS)
def test_networks_that_take_no_images_are_exported(kind, tmp_path):
    shape, build = OTHER_INPUTS[kind]
    model = build().eval()
    attach(model, Origin(input_shape=shape))
    written = brickwork.export_model(model, tmp_path / "net.pt2", to="pt2")
    given = torch.randn(1, *shape)
    with torch.no_grad():
        torch.testing.assert_close(torch.export.load(written.path).module()(given), model(given))


def test_what_onnx_has_no_word_for_is_named(tmp_path):
    model = nn.Sequential(nn.AdaptiveAvgPool3d((2, 4, 4)), nn.Flatten(), nn.Linear(32, 2)).eval()
    attach(model, Origin(input_shape=(1, 4, 9, 9)))
    with pytest.raises(BadModel, match="_adaptive_avg_pool3d") as refused:
        brickwork.export_model(model, tmp_path / "net.onnx", to="onnx")
    assert "\x1b" not in str(refused.value)


def test_force_replaces_what_was_exported_and_nothing_else(tmp_path):
    model = described(zoo.build("lenet", num_classes=2, seed=0), "ab")
    brickwork.export_model(model, tmp_path / "net", to="torch")
    with pytest.raises(RequestError, match="exists already"):
        brickwork.export_model(model, tmp_path / "net", to="torch")
    brickwork.export_model(model, tmp_path / "net", to="torch", force=True)
    (tmp_path / "net" / "notes.txt").write_text("mine")
    with pytest.raises(RequestError, match=r"it holds notes\.txt, too"):
        brickwork.export_model(model, tmp_path / "net", to="torch", force=True)


def test_the_module_is_left_as_it_was(tmp_path):
    model = described(zoo.build("resnet8", num_classes=2, seed=0), "ab").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    brickwork.export_model(model, tmp_path / "net", to="torch")
    assert model.training and all(torch.equal(before[n], v) for n, v in model.state_dict().items())


@pytest.mark.parametrize("raw", [False, True])
def test_real_images_are_compared_where_there_are_any(raw, tmp_path, monkeypatch):
    net = described(zoo.build("lenet", num_classes=5, seed=0), "abcde")
    images = data.load("digits:A@40", size=32)
    seen = []
    monkeypatch.setattr(exporting, "_compare", lambda run, shown, expected, out: seen.extend(shown) or 0.0)
    options = {"to": "torch", "data": images, "with_preprocessing": raw}
    found = brickwork.export_model(net, tmp_path / "plain", **options)
    assert (found.images, found.real) == (70, 64) and "64 images of the data and 6 random images" in str(found)
    real = torch.cat(seen[3:])
    assert real.dtype == (torch.uint8 if raw else torch.float32) and len(real) == 64
    if raw:
        assert all((images.test_images == picture.numpy()).all((1, 2, 3)).any() for picture in real[:3])
