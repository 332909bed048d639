"""Model folders: what goes in comes out; folders are written whole or not at all."""

import errno
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from folder_tools import edit_config, edit_tensors, refused, same
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

import brickwork
from brickwork import store, zoo
from brickwork.errors import BadFile, BadModel, JobFailed, OutputExists, RequestError
from brickwork.origin import Origin, Preprocessing, attach, origin_of
from brickwork.store.weights import write_safetensors


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


def test_tensors_lie_where_torch_would_have_put_them(model, tmp_path):
    """Elsewhere, some CPUs' products differ in their last bits from those of the network that was saved."""
    again = brickwork.load(brickwork.save(model, tmp_path / "m"))
    assert len(list(again.parameters())) > 4
    assert all(t.data_ptr() % 64 == 0 for t in [*again.parameters(), *again.buffers()])


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
    """The folder holds the architecture and the steps; store.replay turns one into the other."""
    step = {"op": "test", "indices": [0, 2]}
    small = zoo.build("lenet", num_classes=2, in_channels=1, seed=4)
    attach(small, origin_of(model).after(step))

    def rebuild(origin, sources):
        assert sources == ["lenet"] and origin.args["num_classes"] == 3 and origin.steps == (step,)
        return zoo.build("lenet", num_classes=2, in_channels=1)

    monkeypatch.setattr("brickwork.store.folder.rebuild", rebuild)
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


def test_an_output_that_exists(model, folder):
    before = (folder / "config.json").read_bytes()
    with pytest.raises(OutputExists, match="give force"):
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

    monkeypatch.setattr("brickwork.store.config.card", interrupted)
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


def test_the_same_model_is_the_same_bytes(model, tmp_path):
    """safetensors writes metadata in an order that changes from call to call; folders must not."""
    files = [brickwork.save(model, tmp_path / f"m{k}") / "model.safetensors" for k in range(12)]
    assert len({path.read_bytes() for path in files}) == 1
    notes = {"ä": 'ü\n"x"', "b": "2", "c": "3", "d": "4"}
    for k in range(12):
        write_safetensors({"w": torch.ones(3)}, tmp_path / f"{k}.safetensors", notes)
    assert len({(tmp_path / f"{k}.safetensors").read_bytes() for k in range(12)}) == 1
    with safe_open(tmp_path / "0.safetensors", "pt") as file:
        assert file.metadata() == notes and torch.equal(file.get_tensor("w"), torch.ones(3))


def test_a_card_names_the_task():
    from brickwork.store.card import SEGMENTERS, card
    from brickwork.zoo.registry import REGISTRY

    assert set(SEGMENTERS) == {name for name, arch in REGISTRY.items() if arch.task == "segment"}
    weights = {"tensors": {}, "state_hash": "0" * 64}
    for arch, task in (("lenet", "image-classification"), ("fcn8s", "image-segmentation")):
        assert f"pipeline_tag: {task}\n" in card(Origin(arch=arch, classes=("a",)), weights)
    assert "pipeline_tag" not in card(Origin(), weights)


@pytest.mark.parametrize("given", [None, {}, "lenet"])
def test_what_is_no_network_is_not_saved(tmp_path, given):
    with pytest.raises(BadModel, match=r"give the torch\.nn\.Module itself"):
        store.save(given, tmp_path / "model")
    assert not (tmp_path / "model").exists()
