"""Model folders: what goes in comes out, and what is wrong is refused with one sentence."""

import errno
import hashlib
import json
import os
import pickle
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

import brickwork
from brickwork import blueprint, store, zoo
from brickwork.errors import BadFile, BadModel, JobFailed, OutputExists, RequestError
from brickwork.origin import Origin, Preprocessing, attach, origin_of


@pytest.fixture
def model():
    return zoo.build("lenet", num_classes=3, in_channels=1, seed=0)


@pytest.fixture
def folder(model, tmp_path):
    return brickwork.save(model, tmp_path / "model")


def same(a, b):
    left, right = a.state_dict(), b.state_dict()
    return list(left) == list(right) and all(torch.equal(left[k], right[k]) for k in left)


def edit_config(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def edit_tensors(folder, change):
    """Change the tensors and make the recorded hash agree, as a careful stranger would."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    edit_config(folder, lambda c: c["weights"].update(sha256=digest))


def refused(folder, message, **options):
    with pytest.raises(BadFile, match=message) as caught:
        brickwork.load(folder, **options)
    assert "\n" not in str(caught.value)


# what goes in comes out


@pytest.mark.parametrize("name", zoo.names())
def test_every_architecture_comes_back(name, tmp_path):
    model = zoo.build(name, num_classes=3, seed=1)
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    brickwork.save(model, tmp_path / "m")
    again = brickwork.load(tmp_path / "m")
    assert same(model, again)
    assert origin_of(again) == origin_of(model)
    assert not again.training
    assert not any(t.is_meta for t in [*again.parameters(), *again.buffers()])
    assert store.state_hash(again) == store.state_hash(model)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtype_survives(model, tmp_path, dtype):
    brickwork.save(model.to(dtype), tmp_path / "m")
    again = brickwork.load(tmp_path / "m")
    assert again.fc1.weight.dtype == dtype
    assert same(model, again)


def test_origin_travels(model, tmp_path):
    prep = Preprocessing(size=(8, 8), channels=1, mean=(0.25,), std=(0.5,))
    attach(model, replace(origin_of(model), classes=("a", "b", "ü"), preprocessing=prep))
    brickwork.save(model, tmp_path / "m", provenance={"data": "digits:A", "accuracy": 0.5})
    origin = origin_of(brickwork.load(tmp_path / "m"))
    assert origin.classes == ("a", "b", "ü")
    assert origin.preprocessing == prep
    assert origin.provenance == {"data": "digits:A", "accuracy": 0.5}
    assert origin_of(model).provenance == {}, "saving leaves the model as it is"
    card = (tmp_path / "m" / "README.md").read_text()
    assert "digits:A" in card and "library_name: brickwork" in card and "a, b, ü" in card


def test_channels_last_and_training_mode(model, tmp_path):
    model.to(memory_format=torch.channels_last).train()
    brickwork.save(model, tmp_path / "m")
    assert model.training
    assert same(model, brickwork.load(tmp_path / "m"))


def test_a_compiled_model_is_saved_under_its_own_names(model, tmp_path):
    brickwork.save(torch.compile(model), tmp_path / "m")
    assert same(model, brickwork.load(tmp_path / "m"))


def test_surgery_is_replayed(model, tmp_path, monkeypatch):
    """The folder holds the architecture and the steps; blueprint.replay turns one into the other."""
    step = {"op": "test", "indices": [0, 2]}
    small = zoo.build("lenet", num_classes=2, in_channels=1, seed=4)
    attach(small, origin_of(model).after(step))

    def replay(built, origin):
        assert built.fc3.out_features == 3 and origin.steps == (step,)
        return zoo.build("lenet", num_classes=2, in_channels=1)

    monkeypatch.setattr(blueprint, "replay", replay, raising=False)
    brickwork.save(small, tmp_path / "m")
    again = brickwork.load(tmp_path / "m")
    assert same(small, again)
    assert origin_of(again) == origin_of(small)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight


def test_tied_weights_are_stored_once_and_come_back_tied(tmp_path):
    model = Tied()
    folder = brickwork.save(model, tmp_path / "m")
    assert sorted(load_file(folder / "model.safetensors")) == ["first.bias", "first.weight", "second.bias"]
    again = brickwork.load(folder, arch=Tied)
    assert again.second.weight is again.first.weight
    assert same(model, again)
    assert len(list(again.parameters())) == 3


class Computes(nn.Module):
    """Needs values while it is built and keeps a tensor outside its state: not for the meta device."""

    def __init__(self, width=2):
        super().__init__()
        self.scale = float(torch.ones(()) * 3)
        self.fc = nn.Linear(2, width)
        self.register_buffer("hidden", torch.arange(3.0), persistent=False)


def test_a_module_that_cannot_be_built_on_meta(tmp_path):
    model = Computes()
    attach(model, Origin(args={"width": 2}))
    brickwork.save(model, tmp_path / "m")
    again = brickwork.load(tmp_path / "m", arch=Computes)
    assert again.hidden.tolist() == [0, 1, 2]
    assert again.scale == 3
    assert same(model, again)


def test_other_peoples_models(tmp_path):
    pytest.importorskip("transformers", reason="needs the extra hf")
    small = {"hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 1, "intermediate_size": 32}
    model = zoo.build("hf:vit", num_classes=4, image_size=16, patch_size=8, **small)
    brickwork.save(model, tmp_path / "m")
    assert same(model, brickwork.load(tmp_path / "m"))


def test_a_stranger_needs_arch(tmp_path):
    folder = brickwork.save(nn.Linear(2, 3), tmp_path / "m")
    refused(folder, "does not say which architecture")
    assert brickwork.load(folder, arch=lambda: nn.Linear(2, 3)).out_features == 3
    refused(folder, r"weight has shape \[3, 2\]", arch=lambda: nn.Linear(2, 4))


def test_state_hash_sees_values_names_shapes_and_dtypes():
    base = {"a": torch.zeros(4), "b": torch.ones(2)}
    others = [
        {"a": torch.zeros(4), "b": torch.tensor([1.0, 1.0000001])},
        {"a": torch.zeros(4), "c": torch.ones(2)},
        {"a": torch.zeros(2, 2), "b": torch.ones(2)},
        {"a": torch.zeros(4, dtype=torch.int32), "b": torch.ones(2)},
        {"a": torch.zeros(4)},
    ]
    hashes = {store.state_hash(s) for s in [base, *others]}
    assert len(hashes) == 6
    assert store.state_hash({"s": torch.tensor(1), "e": torch.zeros(0)})  # a scalar and an empty one


# files that are wrong


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


@pytest.mark.parametrize("name", ["a.pth", "a.pt", "a.bin"])
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
        torch.save(wrapped, tmp_path / "w.pth")
        loaded = store.load_weights(tmp_path / "w.pth")
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
        ({"format": 2}, "has format 2; this Brickwork reads format 1"),
        ({"classes": [1, 2]}, "classes"),
        ({"input_shape": [1, -3]}, "input_shape"),
        ({"arch": None}, "does not say which architecture"),
        ({"arch": "join", "parts": [{"arch": "os:system"}]}, "names code to import, 'os:system'"),
    ],
)
def test_config_that_is_wrong(folder, change, message):
    edit_config(folder, lambda c: c.update(change))
    refused(folder, message)


@pytest.mark.parametrize(
    "file", ["../model.safetensors", "/etc/passwd", "sub/model.safetensors", "weights.pth"]
)
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
        blueprint,
        "replay",
        lambda m, o: seen.append((m, o.parts[0].arch)) or nn.Linear(2, 5),
        raising=False,
    )
    assert same(model, brickwork.load(folder, arch="own_net_for_store:net"))
    assert seen == [(None, "own_net_for_store:net")]
    sys.modules.pop("own_net_for_store")


# saving that cannot be done


def test_an_output_that_exists(model, folder):
    before = (folder / "config.json").read_bytes()
    with pytest.raises(OutputExists, match="--force"):
        brickwork.save(model, folder)
    assert (folder / "config.json").read_bytes() == before
    brickwork.save(zoo.build("lenet", seed=9), folder, force=True)
    assert brickwork.load(folder).fc3.out_features == 10


def test_a_full_disk_leaves_the_old_folder(folder, tmp_path, monkeypatch):
    def full(state, path, metadata):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store.weights, "write_safetensors", full)
    with pytest.raises(JobFailed, match="No space left on device"):
        brickwork.save(zoo.build("lenet"), folder, force=True)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["model"]
    assert brickwork.load(folder).fc3.out_features == 3


def test_a_real_write_error_leaves_the_old_folder(folder, tmp_path):
    """A file size limit stands in for a full disk: the operating system itself stops the write half way."""
    code = (
        "import resource, sys, brickwork\nfrom brickwork import errors, zoo\n"
        "model = zoo.build('lenet')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))\n"
        "try:\n    brickwork.save(model, sys.argv[1], force=True)\n"
        "except errors.JobFailed as error:\n    print(error)\n"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True)
    assert "File too large; what was there before is unchanged" in done.stdout, done.stderr
    assert os.listdir(tmp_path) == ["model"]
    assert brickwork.load(folder).fc3.out_features == 3


def test_ctrl_c_while_saving(folder, tmp_path, monkeypatch):
    def interrupted(origin, weights):
        raise KeyboardInterrupt

    monkeypatch.setattr(store.folder, "card", interrupted)
    with pytest.raises(KeyboardInterrupt):
        brickwork.save(zoo.build("lenet"), folder, force=True)
    assert os.listdir(tmp_path) == ["model"]
    assert brickwork.load(folder).fc3.out_features == 3


def test_models_that_cannot_be_saved(model, tmp_path):
    with pytest.raises(BadModel, match="lazy"):
        brickwork.save(nn.LazyLinear(3), tmp_path / "m")
    with pytest.raises(BadModel, match="meta"):
        brickwork.save(nn.Linear(2, 2, device="meta"), tmp_path / "m")
    with pytest.raises(RequestError, match="not JSON"):
        brickwork.save(model, tmp_path / "m", provenance={"loss": float("nan")})
    model.fc3 = nn.Linear(84, 5)
    with pytest.raises(BadModel, match=r"was changed since it was built.*fc3\.weight has shape \[5, 84\]"):
        brickwork.save(model, tmp_path / "m")
    assert os.listdir(tmp_path) == []


# the hub, without a network


def test_from_pretrained_is_strict(model, folder):
    assert same(store.from_pretrained(folder), model)
    edit_tensors(folder, lambda t: t.pop("fc2.bias"))
    edit_config(folder, lambda c: c["weights"]["tensors"].pop("fc2.bias"))
    with pytest.raises(BadFile, match=r"lacks fc2\.bias"):
        store.from_pretrained(folder)


def test_push_to_hub_uploads_a_model_folder(model, tmp_path, monkeypatch):
    import shutil

    import huggingface_hub

    seen = {}

    def create_repo(self, repo_id, **options):
        seen["private"] = options.get("private")
        return SimpleNamespace(repo_id=repo_id)

    def upload_folder(self, *, repo_id, folder_path, **options):
        seen["repo_id"] = repo_id
        shutil.copytree(folder_path, tmp_path / "uploaded")
        return "done"

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    store.push_to_hub(model, "somebody/lenet", private=True)
    assert seen == {"private": True, "repo_id": "somebody/lenet"}
    assert sorted(os.listdir(tmp_path / "uploaded")) == ["README.md", "config.json", "model.safetensors"]
    assert same(store.from_pretrained(tmp_path / "uploaded"), model)
