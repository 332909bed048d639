"""Files: every number type to and fro, merging tensor by tensor, shards, recipes, and what is refused."""

from __future__ import annotations

import errno
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

import brickwork
from brickwork import zoo
from brickwork.algebra.files import INDEX, Tensors, Writer
from brickwork.algebra.methods import registry
from brickwork.algebra.numbers import decode, encode
from brickwork.algebra.recipe import make_recipe, read_recipe
from brickwork.algebra.streaming import merge_files
from brickwork.errors import BadFile, BadModel, JobFailed, OutputExists, RequestError
from brickwork.store import state_hash

TYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}


@pytest.mark.parametrize("kind", TYPES)
def test_every_pattern_of_bits(kind):
    """All stored patterns mean what torch says they mean, and go back to the same bits."""
    bits = np.arange(256, dtype=np.uint8) if kind.startswith("F8") else np.arange(2**16, dtype=np.uint16)
    stored = bits.view(np.float16) if kind == "F16" else bits
    wanted = torch.from_numpy(bits.copy()).view(TYPES[kind]).float().numpy()
    values = decode(stored, kind)
    assert np.array_equal(values, wanted, equal_nan=True)
    finite = np.isfinite(values)
    assert np.array_equal(encode(values, kind)[finite].view(bits.dtype), bits[finite])


@pytest.mark.parametrize("kind", TYPES)
def test_rounding_is_torchs(kind):
    rng = np.random.default_rng(0)
    values = (rng.normal(size=20000) * 10.0 ** rng.uniform(-6, 2, 20000)).astype(np.float32)
    wanted = torch.from_numpy(values).to(TYPES[kind])
    found = encode(values, kind)
    width = torch.uint8 if kind.startswith("F8") else torch.uint16
    assert np.array_equal(found.view(np.uint8 if width == torch.uint8 else np.uint16), wanted.view(width).numpy())


def test_written_files_are_read_by_safetensors(tmp_path):
    with open(tmp_path / "x.safetensors", "wb") as file:
        writer = Writer(file, [("a", "BF16", (2, 3)), ("é", "I64", ())], {"note": "grün"})
        writer.put("a", np.arange(6, dtype=np.float32))
        writer.put("é", np.array(7))
    found = load_file(tmp_path / "x.safetensors")
    assert found["a"].dtype == torch.bfloat16 and found["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["é"].item() == 7


@pytest.fixture
def folders(tmp_path):
    paths = []
    for seed, name in enumerate(("zero", "a", "b")):
        model = zoo.build("resnet8", num_classes=4, seed=seed, width=8)
        paths.append(brickwork.save(model, tmp_path / name))
    return paths


@pytest.mark.parametrize(
    ("method", "options"),
    [("linear", {}), ("ties", {"density": 0.3}), ("dare", {}), ("della", {}), ("slerp", {"t": 0.3}), ("iso_c", {})],
)
def test_files_and_memory_give_the_same(folders, tmp_path, method, options):
    zero, a, b = folders
    needs = registry()[method].needs_base
    base = {"base": str(zero)} if needs else {}
    recipe = make_recipe({"method": method, "models": [str(a), str(b)], "options": options, **base})
    told = merge_files(recipe, tmp_path / "m", progress=False)
    merged = brickwork.load(tmp_path / "m")  # an ordinary model folder: hashes and all
    nets = [brickwork.load(p) for p in folders]
    wanted = brickwork.merge(nets[1:], method, base=nets[0] if needs else None, **options)
    assert state_hash(merged) == state_hash(wanted)
    assert told.merged + len(told.kept) == told.tensors and all("num_batches" in n for n in told.kept)
    assert json.loads(Tensors(tmp_path / "m").metadata["model.safetensors"]["recipe"])["method"] == method
    with pytest.raises(OutputExists):
        merge_files(recipe, tmp_path / "m", progress=False)


def sharded(folder, states, dtype=torch.float32):
    folder.mkdir()
    weight_map = {}
    for number, state in enumerate(states, 1):
        name = f"model-{number:05}-of-{len(states):05}.safetensors"
        save_file({n: t.to(dtype) for n, t in state.items()}, folder / name, {"format": "pt"})
        weight_map |= dict.fromkeys(state, name)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def test_shards_stay_shards(tmp_path):
    rng = torch.Generator().manual_seed(0)
    make = lambda: [{f"l{k}.w": torch.randn(3, 4, generator=rng)} for k in range(3)]  # noqa: E731
    one, two = make(), make()
    a, b = sharded(tmp_path / "a", one, torch.bfloat16), sharded(tmp_path / "b", two, torch.bfloat16)
    merge_files(make_recipe({"models": [str(a), str(b)]}), tmp_path / "m", progress=False)
    merged = Tensors(tmp_path / "m")
    assert len(merged.shards) == 3 and json.loads((tmp_path / "m" / INDEX).read_text())["weight_map"]["l1.w"].endswith(
        "00002-of-00003.safetensors"
    )
    wanted = ((one[1]["l1.w"].bfloat16().float() + two[1]["l1.w"].bfloat16().float()) / 2).bfloat16()
    assert torch.equal(load_file(merged.shards[1])["l1.w"], wanted)


def test_torch_is_not_imported(folders, tmp_path):
    code = (
        "import sys; from brickwork.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: assert 'torch' not in sys.modules, 'torch was imported'"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "merge", *map(str, folders[1:]), "--out", str(tmp_path / "m"), "--json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["recipe"]["method"] == "linear"


def test_a_recipe(folders, tmp_path):
    told = {
        "method": "ties",
        "base": "zero",
        "models": ["a", "b"],
        "options": {"density": 0.5},
        "layers": [{"match": "fc*", "method": "linear", "options": {"weights": [0, 1]}}],
        "seed": 3,
    }
    path = tmp_path / "recipe.yaml"
    path.write_text("# brickwork merge recipe.yaml --out m\n" + yaml.safe_dump(told))
    recipe = read_recipe(path)
    assert read_again(recipe) == recipe.to_dict()
    merge_files(recipe, tmp_path / "m", progress=False)
    assert torch.equal(brickwork.load(tmp_path / "m").fc.weight, brickwork.load(folders[2]).fc.weight)


def read_again(recipe):
    return make_recipe(recipe.to_dict()).to_dict()


def test_three_mistakes_are_all_told(folders, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("method: tis\nmodels: [a, nothing]\noptions: {density: 2}\nbn: guess\nseeds: 1\n")
    with pytest.raises(RequestError) as caught:
        read_recipe(path)
    for part in ("did you mean 'ties'", "nothing does not exist", "bn is 'guess'", "did you mean 'seed'"):
        assert part in str(caught.value)
    for text, message in (
        ("- a\n", "is a list; it must say"),
        ("models: 3\n", "models are 3"),
        ("models: [a]\nlayers: [{match: 3}]\n", "layer rule 1 has match 3"),
        ("models: [a]\nlayers: 3\n", "layers are 3"),
        ("models: [a]\noptions: 3\n", "options are 3"),
        ("models: [a]\nbase: 3\n", "base is 3"),
    ):
        path.write_text(text)
        with pytest.raises(RequestError, match=message):
            read_recipe(path)
    path.write_text("a: [")
    with pytest.raises(BadFile, match="is not YAML"):
        read_recipe(path)


def test_damaged_files(folders, tmp_path):
    weights = folders[1] / "model.safetensors"
    whole = weights.read_bytes()
    for content, message in (
        (whole[:-10], "damaged or cut short"),
        (whole[:4], "cannot be read as safetensors"),
        (b"x" * 100, "cannot be read as safetensors"),
    ):
        weights.write_bytes(content)
        with pytest.raises(BadFile, match=message):
            merge_files(make_recipe({"models": [str(folders[1]), str(folders[2])]}), tmp_path / "m", progress=False)
    assert not (tmp_path / "m").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadFile, match="holds neither"):
        Tensors(tmp_path / "empty")
    (tmp_path / "empty" / INDEX).write_text('{"weight_map": {"w": "../x.safetensors"}}')
    with pytest.raises(BadFile, match="not a file beside it"):
        Tensors(tmp_path / "empty")


def test_a_full_disk_leaves_nothing(folders, tmp_path, monkeypatch):
    written = []

    def full(self, name, values):
        written.append(name)
        if len(written) > 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Writer, "put", full)
    with pytest.raises(JobFailed, match="No space left"):
        merge_files(make_recipe({"models": [str(f) for f in folders[1:]]}), tmp_path / "m", progress=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "zero"]


def test_other_architectures_and_numbers(folders, tmp_path):
    other = brickwork.save(zoo.build("lenet", num_classes=4, seed=0), tmp_path / "lenet")
    with pytest.raises(BadModel, match=r"they differ in .*missing"):
        merge_files(make_recipe({"models": [str(folders[0]), str(other)]}), tmp_path / "m", progress=False)
    with pytest.raises(RequestError, match="one of the models to merge"):
        merge_files(make_recipe({"models": [str(f) for f in folders]}), folders[0], force=True, progress=False)


def test_a_base_has_a_use(folders, tmp_path, run):
    """One model is thinned out against its base; what is kept can be the base's."""
    zero, a, b = folders
    code, _, err = run("merge", a, "--base", zero, "--method", "ties", "--out", tmp_path / "one")
    assert code == 0, err
    assert not same_state(tmp_path / "one", a)
    code, _, err = run("merge", a, b, "--base", zero, "--bn", "keep", "--out", tmp_path / "kept")
    assert code == 0, err


def same_state(one, other):
    states = [brickwork.load(folder).state_dict() for folder in (one, other)]
    return all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_the_command_line(folders, tmp_path, run):
    zero, a, b = folders
    code, printed, complaint = run("delta", a, zero, "--out", tmp_path / "g.safetensors", "--json")
    assert code == 0 and json.loads(printed)["norm"] > 0
    code, printed, complaint = run("assign", zero, tmp_path / "g.safetensors", "--out", tmp_path / "a2")
    assert code == 0
    same = brickwork.load(tmp_path / "a2").state_dict()
    assert all(torch.allclose(v, same[n], atol=1e-6) for n, v in brickwork.load(a).state_dict().items())
    options = ["--method", "ties", "--base", zero, "--arg", "density=0.4", "--weight", "1", "--weight", "0.5"]
    code, printed, complaint = run("merge", a, b, *options, "--out", tmp_path / "m", "--json")
    assert code == 0 and json.loads(printed)["recipe"]["options"] == {"weights": [1.0, 0.5], "density": 0.4}
    (tmp_path / "r.yaml").write_text("models: [a, b]\n")
    for wrong, message in (
        (["merge", a, b, "--out", tmp_path / "m"], "exists"),
        (["merge", a, b, "--method", "ties", "--out", tmp_path / "x"], "were trained from (--base)"),
        (["merge", a, "--out", tmp_path / "x"], "is that model; give two or more, or a method"),
        (["merge", a, b, "--method", "slerp", "--base", zero, "--out", tmp_path / "x"], "slerp has no use for a base"),
        (["merge", a, b, "--base", zero, "--out", tmp_path / "x"], "linear has no use for a base; leave it out"),
        (["merge", a, b, "--weight", "1", "--out", tmp_path / "x"], "1 weight for 2 models"),
        (["merge", a, tmp_path / "no", "--out", tmp_path / "x"], "does not exist"),
        (["merge", tmp_path / "r.yaml", "--bn", "keep", "--out", tmp_path / "x"], "a recipe says --bn itself"),
        (["merge", tmp_path / "r.yaml", "--seed", "3", "--out", tmp_path / "x"], "a recipe says --seed itself"),
        (["delta", a, zero, "--out", tmp_path / "g.bin"], "it must end in .safetensors"),
        (["delta", a, zero, "--out", tmp_path / "g.safetensors"], "exists"),
        (["assign", zero, a / "model.safetensors", "--out", tmp_path / "x"], "is not a delta"),
    ):
        code, printed, complaint = run(*wrong)
        assert code == 2 and message in complaint and printed == "", complaint
        assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("linear", {"weights": [0.3, 0.7]}),
        ("task_arithmetic", {}),
        ("ties", {"density": 0.3}),
        ("ties", {"density": 0.3, "trim": "tensor"}),
        ("dare", {"density": 0.4}),
    ],
)
def test_pieces_give_the_same_bytes(tmp_path, monkeypatch, method, options):
    """Large tensors are merged piece by piece; nobody can tell."""
    from brickwork.algebra import streaming

    rng = torch.Generator().manual_seed(0)
    for name in ("zero", "a", "b"):
        state = {"w": torch.randn(37, 11, generator=rng), "v": torch.randn(5, generator=rng)}
        save_file(state, tmp_path / f"{name}.safetensors")
    paths = {n: str(tmp_path / f"{n}.safetensors") for n in ("zero", "a", "b")}
    base = {"base": paths["zero"]} if registry()[method].needs_base else {}
    recipe = make_recipe({"method": method, "models": [paths["a"], paths["b"]], "options": options, **base})
    merge_files(recipe, tmp_path / "whole", progress=False)
    monkeypatch.setattr(streaming, "PIECE", 64)
    merge_files(recipe, tmp_path / "pieces", progress=False)
    files = [(tmp_path / n / "model.safetensors").read_bytes() for n in ("whole", "pieces")]
    assert files[0] == files[1]
