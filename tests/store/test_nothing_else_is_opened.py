"""A stranger's folder describes a network; opening it opens no other path and asks no other machine."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

import brickwork
from brickwork import zoo
from brickwork.errors import RequestError

LIBRARIES = ("timm", "torchvision", "transformers")
pytestmark = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, LIBRARIES)), reason="needs the extras timm and hf"
)
WATCHED: list[list[str]] = []


def _hook(event, given):
    if WATCHED and event in (
        "open",
        "os.listdir",
        "socket.connect",
        "socket.getaddrinfo",
        "urllib.Request",
        "os.scandir",
    ):
        WATCHED[-1].append(f"{event} {given[0] if event != 'socket.connect' else given[1]}")


@pytest.fixture(scope="module", autouse=True)
def hook():
    sys.addaudithook(_hook)  # cannot be taken away; it looks at nothing outside `watched`


@pytest.fixture
def strange(tmp_path):
    """A folder elsewhere, as transformers and timm would write one, that must not be looked at."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    (place / "config.json").write_text('{"architecture": "resnet18", "model_type": "vit", "num_classes": 3}')
    (place / "model.safetensors").write_bytes(b"secret")
    return place


HOSTILE = [
    ("hf:timm_wrapper", {"architecture": "local-dir:{place}", "num_labels": 3}),
    ("hf:timm_wrapper", {"architecture": "hf-hub:timm/resnet18.a1_in1k"}),
    ("hf:timm_wrapper", {"architecture": "resnet18", "model_args": {"checkpoint_path": "{place}/model.safetensors"}}),
    ("hf:timm_wrapper", {"architecture": "resnet18", "model_args": {"pretrained": True}}),
    ("hf:..", {}),
    ("hf:.", {}),
    ("hf:elsewhere", {}),
    ("hf:vit", {"_name_or_path": "{place}"}),
    ("hf:vit", {"auto_map": {"AutoConfig": "x"}}),
    ("hf:vit", {"hidden_act": "{place}/model.safetensors"}),
    ("timm:resnet18", {"checkpoint_path": "{place}/model.safetensors"}),
    ("timm:resnet18", {"pretrained_cfg": {"file": "{place}/model.safetensors"}}),
    ("timm:resnet18", {"pretrained_cfg_overlay": {"url": "http://127.0.0.1:9/x"}}),
    ("timm:resnet18", {"pretrained": True}),
    ("timm:resnet18", {"cache_dir": "{place}"}),
    ("timm:resnet18", {"kwargs": {"weights": "x"}}),
    ("timm:resnet18", {"act_layer": "{place}/model.safetensors"}),
    ("torchvision:fcn_resnet50", {"weights_backbone": "DEFAULT"}),
    ("torchvision:fcn_resnet50", {"weights_backbone": "IMAGENET1K_V1"}),
    ("torchvision:fcn_resnet50", {"pretrained_backbone": True}),
    ("torchvision:resnet18", {"weights": "DEFAULT"}),
    ("torchvision:resnet18", {"pretrained": True}),
    ("torchvision:resnet18", {"progress": "x/y"}),
]


def libraries():
    """Imported beforehand: what an import reads is Python's, not the folder's."""
    for arch in ("timm:resnet10t", "torchvision:squeezenet1_1", "hf:resnet"):
        zoo.build(arch)


@pytest.mark.parametrize("where", ["arch", "parts"])
@pytest.mark.parametrize(("arch", "args"), HOSTILE, ids=lambda value: value if isinstance(value, str) else None)
def test_hostile_records(tmp_path, strange, monkeypatch, arch, args, where):
    monkeypatch.chdir(tmp_path)
    libraries()
    folder = brickwork.save(zoo.build("lenet", num_classes=3, seed=0), tmp_path / "m")
    args = json.loads(json.dumps(args).replace("{place}", str(strange)))
    config = json.loads((folder / "config.json").read_text())
    config |= (
        {"arch": arch, "args": args} if where == "arch" else {"parts": [{"arch": arch, "args": args}], "arch": "join"}
    )
    (folder / "config.json").write_text(json.dumps(config))
    WATCHED.append([])
    try:
        with pytest.raises(RequestError) as caught:
            brickwork.load(folder)
    finally:
        seen = WATCHED.pop()
    assert "\n" not in str(caught.value)
    own = (str(folder), sys.prefix, os.path.dirname(os.__file__), str(Path(brickwork.__file__).parent), "/proc", "/dev")
    assert not [s for s in seen if not s.split(" ", 1)[1].startswith(own) and not s.split(" ", 1)[1].isdigit()]
    assert not [s for s in seen if s.startswith(("socket", "urllib"))]


def test_a_wrapped_network_is_refused_before_it_is_saved(tmp_path):
    """hf:timm_wrapper was saved and could not be loaded."""
    with pytest.raises(RequestError, match="build it as timm:NAME"):
        zoo.build("hf:timm_wrapper", architecture="resnet18")
    (tmp_path / "config.json").write_text('{"model_type": "timm_wrapper", "architecture": "resnet18"}')
    with pytest.raises(RequestError, match="build it as timm:NAME"):
        zoo.build(f"hf:{tmp_path}")


@pytest.mark.parametrize(
    ("arch", "args"),
    [
        ("timm:vit_tiny_patch16_224", {"image_size": 32, "patch_size": 8, "num_classes": 3, "act_layer": "relu"}),
        ("timm:mobilenetv3_small_050", {"num_classes": 3, "drop_rate": 0.1}),
        (
            "timm:swinv2_tiny_window8_256",
            {"num_classes": 3, "depths": [1, 1, 1, 1], "pretrained_window_sizes": [0] * 4},
        ),
        ("torchvision:fcn_resnet50", {"num_classes": 3}),
        ("torchvision:squeezenet1_1", {"num_classes": 3, "dropout": 0.2}),
        ("hf:swinv2", {"embed_dim": 12, "depths": [1], "num_heads": [2], "hidden_act": "relu", "image_size": 32}),
    ],
)
def test_ordinary_arguments_are_taken(tmp_path, arch, args):
    model = zoo.build(arch, seed=0, **args)
    brickwork.load(brickwork.save(model, tmp_path / "m"))
