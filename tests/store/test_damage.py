"""Damaged, foreign and malicious folders and weights are refused with one sentence."""

import os
import pickle
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from folder_tools import edit_config, edit_tensors, refused, same
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

import brickwork
from brickwork import store, zoo
from brickwork.errors import BadFile, BadModel, RequestError


@pytest.mark.parametrize("keep", [0, 5, 100, 5000, -1])
def test_truncated_weights(folder, keep):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    refused(folder, "damaged or cut short")


@pytest.mark.parametrize("place", [0, 9, 40, -1, -3000])
def test_one_flipped_bit(folder, place):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    refused(folder, "damaged")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return brickwork.save(zoo.build("lenet", seed=0), tmp_path_factory.mktemp("good") / "m")


@settings(max_examples=60, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_no_damage_goes_unseen(good, where, bit, cut):
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(shutil.copytree(good, f"{parent}/m"))
        path = folder / "model.safetensors"
        data = bytearray(path.read_bytes())
        place = int(where * len(data))
        if cut:
            data = data[:place]
        else:
            data[place] ^= 1 << bit
        path.write_bytes(data)
        with pytest.raises(BadFile):
            brickwork.load(folder)


@settings(max_examples=60, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_a_damaged_config_is_refused_or_harmless(good, where, bit, cut):
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(shutil.copytree(good, f"{parent}/m"))
        path = folder / "config.json"
        data = bytearray(path.read_bytes())
        place = int(where * len(data))
        if cut:
            data = data[:place]
        else:
            data[place] ^= 1 << bit
        path.write_bytes(data)
        try:
            model = brickwork.load(folder)
        except RequestError:
            return
        assert store.state_hash(model) == store.state_hash(brickwork.load(good))


def test_no_weights(folder):
    (folder / "model.safetensors").unlink()
    refused(folder, r"has no model\.safetensors")


def test_a_missing_tensor(folder):
    edit_tensors(folder, lambda t: t.pop("fc2.bias"))
    refused(folder, r"lacks fc2\.bias, which config\.json lists")
    edit_config(folder, lambda c: c["weights"]["tensors"].pop("fc2.bias"))
    refused(folder, r"lacks fc2\.bias, which the architecture has")


def test_an_extra_tensor(folder):
    edit_tensors(folder, lambda t: t.update(more=torch.zeros(2)))
    refused(folder, "has more, which is not among")
    edit_config(folder, lambda c: c["weights"]["tensors"].update(more={"dtype": "float32", "shape": [2]}))
    refused(folder, "has more, which is not among what the architecture has")


def test_a_wrong_shape(folder):
    edit_tensors(folder, lambda t: t.update({"fc2.bias": torch.zeros(7)}))
    refused(folder, r"fc2\.bias has shape \[7\], but config\.json lists \[84\]")
    edit_config(folder, lambda c: c["weights"]["tensors"]["fc2.bias"].update(shape=[7]))
    refused(folder, r"fc2\.bias has shape \[7\], but the architecture has \[84\]")


def test_a_wrong_dtype(folder):
    edit_tensors(folder, lambda t: t.update({"fc2.bias": torch.zeros(84, dtype=torch.float16)}))
    refused(folder, r"fc2\.bias has dtype float16, but config\.json lists float32")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nonfinite_weights(model, folder, tmp_path, value):
    with torch.no_grad():
        model.fc2.bias[3] = value
    with pytest.raises(BadModel, match=r"fc2\.bias has 1 of 84 values that are NaN or infinite"):
        brickwork.save(model, tmp_path / "bad")
    assert not (tmp_path / "bad").exists()
    brickwork.save(model, tmp_path / "bad", allow_nonfinite=True)
    refused(tmp_path / "bad", r"fc2\.bias has 1 of 84 values that are NaN or infinite")
    assert not brickwork.load(tmp_path / "bad", allow_nonfinite=True).fc2.bias.isfinite().all()


def test_large_but_finite_weights_are_fine(tmp_path):
    layer = nn.Linear(1000, 2).half()
    nn.init.constant_(layer.weight, 60000.0)  # the sum overflows float16, the values do not
    brickwork.save(layer, tmp_path / "m")


class Evil:
    def __reduce__(self):
        return (os.system, ("touch pwned",))


@pytest.mark.parametrize("name", ["a.pth", "a.pt", "a.bin", "a.th", "a.pth.tar"])
def test_a_pickle_that_runs_code(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": torch.zeros(2), "evil": Evil()}, name)
    with pytest.raises(BadFile, match=r"was not loaded: it asks for (posix|os|nt)\.system\."):
        store.load_weights(name)
    (tmp_path / name).write_bytes(pickle.dumps(Evil(), protocol=2))
    with pytest.raises(BadFile):
        store.load_weights(name)
    assert sorted(os.listdir()) == [name]


def test_plain_pth_files(model, tmp_path):
    state = model.state_dict()
    for wrapped in (state, {"state_dict": state, "epoch": 3}, {"model": state}):
        for name in ("w.pth", "w.th", "w.pth.tar"):
            torch.save(wrapped, tmp_path / name)
            loaded = store.load_weights(tmp_path / name)
            assert store.state_hash(loaded) == store.state_hash(model)
    save_file(dict(state), tmp_path / "w.safetensors")
    assert store.state_hash(store.load_weights(tmp_path / "w.safetensors")) == store.state_hash(model)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([torch.zeros(2)], "holds a list"),
        ({"a": torch.zeros(2), "b": 3}, "'b' is a int"),
        (b"", "damaged|not loaded"),
        (b"nonsense", "damaged|not loaded"),
    ],
)
def test_other_things_in_a_pth(tmp_path, content, message):
    path = tmp_path / "w.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(BadFile, match=message):
        store.load_weights(path)


def test_truncated_pth_and_wrong_names(model, tmp_path):
    path = tmp_path / "w.pth"
    torch.save(model.state_dict(), path)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(BadFile, match="damaged"):
        store.load_weights(path)
    with pytest.raises(BadFile, match="does not exist"):
        store.load_weights(tmp_path / "no.pth")
    with pytest.raises(BadFile, match="is missing"):
        store.load_weights(tmp_path / "no.safetensors")
    with pytest.raises(BadFile, match=r"not '\.h5'"):
        store.load_weights(tmp_path / "w.h5")


# config.json that is wrong


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arch": "os:system"}, "names code to import, 'os:system'"),
        ({"arch": "my.package:factory"}, "names code to import"),
        ({"arch": "hf:/etc/model"}, "a path is not allowed"),
        ({"arch": "hf:../model"}, "a path is not allowed"),
        ({"arch": "/etc/model"}, "a path is not allowed"),
        ({"args": {"pretrained": True}}, "pretrained is not allowed"),
        ({"auto_map": {"AutoModel": "evil.Model"}}, "unknown entry 'auto_map'"),
        ({"format": 2}, "has format 2; this Brickwork reads .brickwork.model/1."),
        ({"classes": [1, 2]}, "classes"),
        ({"input_shape": [1, -3]}, "input_shape"),
        ({"arch": None}, "does not say which architecture"),
        ({"arch": "join", "parts": [{"arch": "os:system"}]}, "names code to import, 'os:system'"),
    ],
)
def test_config_that_is_wrong(folder, change, message):
    edit_config(folder, lambda c: c.update(change))
    refused(folder, message)


@pytest.mark.parametrize("file", ["../model.safetensors", "/etc/passwd", "sub/model.safetensors", "weights.pth"])
def test_config_that_names_a_file_elsewhere(folder, file):
    edit_config(folder, lambda c: c["weights"].update(file=file))
    refused(folder, re.escape(f"{file!r} is not a .safetensors file inside the folder"))


def test_a_link_out_of_the_folder(folder, tmp_path):
    (folder / "model.safetensors").rename(tmp_path / "elsewhere.safetensors")
    (folder / "model.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    refused(folder, "outside the folder")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"format": 1}', '{"model_type": "vit"}', "\udcff"])
def test_config_that_is_no_config(folder, text):
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(folder, r"config\.json (is not JSON|must hold|was not written by Brickwork)")


def test_every_fault_of_a_config_at_once(folder):
    edit_config(folder, lambda c: c.update(classes=3, colour="red"))
    with pytest.raises(BadFile) as caught:
        brickwork.load(folder)
    assert "classes" in str(caught.value) and "'colour'" in str(caught.value)


def test_folders_that_are_none(tmp_path):
    refused(tmp_path / "none", "does not exist")
    refused(tmp_path, r"has no config\.json")
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file", "is a file")


def test_unknown_architecture_or_argument(folder):
    edit_config(folder, lambda c: c.update(arch="lenett"))
    with pytest.raises(RequestError, match="did you mean 'lenet'"):
        brickwork.load(folder)
    with pytest.raises(RequestError, match="holds a 'lenett', not a 'vgg16'"):
        brickwork.load(folder, arch="vgg16")


def test_own_code_when_the_caller_says_so(tmp_path, monkeypatch):
    (tmp_path / "own_net_for_store.py").write_text(
        "from torch import nn\ndef net(width=3):\n    return nn.Linear(2, width)\n"
    )
    monkeypatch.chdir(tmp_path)
    model = zoo.build("own_net_for_store:net", width=5)
    folder = brickwork.save(model, tmp_path / "m")
    sys.modules.pop("own_net_for_store")
    refused(folder, "names code to import")
    assert "own_net_for_store" not in sys.modules
    assert same(model, brickwork.load(folder, arch="own_net_for_store:net"))
    # the same for the parts of a joined model: the loader lets the name through, replay builds it
    part = {"arch": "own_net_for_store:net", "args": {"width": 5}}
    edit_config(folder, lambda c: c.update(arch="join", args={}, parts=[part]))
    refused(folder, "names code to import")
    seen = []
    monkeypatch.setattr(
        "brickwork.store.folder.rebuild", lambda o, sources: seen.append((sources, o.parts[0].arch)) or nn.Linear(2, 5)
    )
    assert same(model, brickwork.load(folder, arch="own_net_for_store:net"))
    assert seen == [(["own_net_for_store:net"], "own_net_for_store:net")]
    sys.modules.pop("own_net_for_store")


# saving that cannot be done
