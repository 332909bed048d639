"""Whatever Brickwork writes, it notices a changed byte in: models that are merged, deltas, maps, checkpoints."""

import contextlib
import json
import random
import shutil

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import load_file, save_file

import brickwork
from brickwork import zoo
from brickwork.algebra.deltas import Delta
from brickwork.algebra.recipe import make_recipe
from brickwork.algebra.streaming import merge_files
from brickwork.cli import main
from brickwork.dependencies.map import DependencyMap
from brickwork.errors import BadFile, RequestError, Unverified
from brickwork.store import state_hash
from brickwork.tensor_file import SEAL, read_header


def flipped(path, number, seed=0):
    """The file's content with one bit turned over, so many times."""
    data, rng = path.read_bytes(), random.Random(seed)
    for _ in range(number):
        place, bit = rng.randrange(len(data)), rng.randrange(8)
        yield data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


@pytest.fixture
def folders(tmp_path):
    return [brickwork.save(zoo.build("lenet", num_classes=3, seed=k), tmp_path / name) for k, name in enumerate("ab")]


def merged(folders, out, **entries):
    return merge_files(make_recipe({"models": [str(f) for f in folders], **entries}), out, progress=False)


def test_a_merge_refuses_every_flipped_bit(folders, tmp_path):
    path = folders[1] / "model.safetensors"
    whole = path.read_bytes()
    for content in flipped(path, 40):
        path.write_bytes(content)
        with pytest.raises(BadFile, match=r"b/model\.safetensors"):
            merged(folders, tmp_path / "m")
        with pytest.raises(BadFile):  # the file alone: its config.json lies beside it
            merged([folders[0], path], tmp_path / "m")
        assert not (tmp_path / "m").exists()
    path.write_bytes(whole)
    assert merged(folders, tmp_path / "m").unverified == ()


def test_a_merge_of_shards_refuses_every_flipped_bit(tmp_path):
    for seed, name in enumerate("ab"):
        folder = tmp_path / name
        folder.mkdir()
        rng = np.random.default_rng(seed)
        names = {f"l{k}": f"model-{k:05}-of-00002.safetensors" for k in (1, 2)}
        for tensor, file in names.items():
            save_numpy({tensor: rng.normal(size=(30, 40)).astype(np.float32)}, folder / file)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    folders = [tmp_path / "a", tmp_path / "b"]
    told = merged(folders, tmp_path / "m")
    assert len(told.unverified) == 4 and "not verified" in str(told)  # a stranger's: read, and said
    again = merged([tmp_path / "m", tmp_path / "m"], tmp_path / "n")
    assert again.unverified == ()  # ours carry their hash
    path = tmp_path / "m" / "model-00002-of-00002.safetensors"
    for content in flipped(path, 40):
        path.write_bytes(content)
        with pytest.raises(BadFile, match="00002"):
            merged([tmp_path / "m", tmp_path / "m"], tmp_path / "o")


def test_a_flip_in_the_name_of_the_hash_does_not_make_a_file_a_strangers(tmp_path):
    path = tmp_path / "delta.safetensors"
    before, after = (zoo.build("lenet", num_classes=3, seed=k) for k in (0, 1))
    brickwork.delta(after, before).save(path)
    whole = path.read_bytes()
    first = whole.index(SEAL.encode())
    for place in range(first, first + len(SEAL)):
        for bit in range(8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            with pytest.raises(BadFile, match="damaged"):
                Delta.load(path)


def test_a_strangers_file_is_said_to_be_unverified(folders, tmp_path, capsys):
    shutil.copyfile(folders[1] / "model.safetensors", tmp_path / "strange.safetensors")
    with pytest.raises(SystemExit) as left:
        main(["merge", str(folders[0]), str(tmp_path / "strange.safetensors"), "--out", str(tmp_path / "m")])
    assert left.value.code == 0 and "not verified" in capsys.readouterr().out
    provenance = json.loads((tmp_path / "m" / "config.json").read_text())["provenance"]
    assert provenance["unverified"] == [str(tmp_path / "strange.safetensors")]


@pytest.mark.parametrize(
    "offsets", [[-8, 16], [0, 20], [4, 28], [0, 1 << 62], [24, 0], ["0", "24"], [0], None, [0.0, 24.0], [True, 24]]
)
def test_hostile_offsets(tmp_path, offsets):
    """Header bytes were merged as weights."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": offsets}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(24))
    save_file({"w": torch.zeros(2, 3)}, tmp_path / "y.safetensors")
    with pytest.raises(BadFile, match=r"x\.safetensors"):
        merged([tmp_path / "y.safetensors", path], tmp_path / "m")


def test_tensors_that_overlap_are_refused(tmp_path):
    facts = {name: {"dtype": "F32", "shape": [4], "data_offsets": at} for name, at in (("v", [0, 16]), ("w", [8, 24]))}
    header = json.dumps(facts).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(24))
    with pytest.raises(BadFile, match=r"x\.safetensors"):
        read_header(path)


def test_a_delta_refuses_every_flipped_bit(tmp_path):
    a, b = (zoo.build("lenet", num_classes=3, seed=k) for k in (0, 1))
    path = brickwork.delta(a, b).save(tmp_path / "g.safetensors")
    whole = path.read_bytes()
    head = len(read_header(path).text)
    for content in [*flipped(path, 40), *(c for c in _every_flip(whole, head, 97))]:
        path.write_bytes(content)
        with pytest.raises(BadFile):
            Delta.load(path)
    path.write_bytes(whole)
    assert state_hash(brickwork.assign(b, Delta.load(path))) == state_hash(brickwork.assign(b, brickwork.delta(a, b)))
    assert brickwork.delta(a, b).save(tmp_path / "h.safetensors").read_bytes() == whole


def _every_flip(whole, end, step):
    """A flip in every so many-th bit of the beginning."""
    for at in range(0, 8 * end, step):
        yield whole[: at // 8] + bytes([whole[at // 8] ^ 1 << at % 8]) + whole[at // 8 + 1 :]


def test_a_delta_of_before_is_read_with_a_warning(tmp_path):
    a, b = (zoo.build("lenet", num_classes=3, seed=k) for k in (0, 1))
    path = brickwork.delta(a, b).save(tmp_path / "g.safetensors")
    notes = {n: text for n, text in read_header(path).metadata.items() if n != SEAL}
    save_file(load_file(path), tmp_path / "old.safetensors", notes)
    with pytest.warns(Unverified, match="not verified"):
        old = Delta.load(tmp_path / "old.safetensors")
    assert old.norm() == Delta.load(path).norm()


@pytest.fixture
def map_folder(tmp_path):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(200, 6))
    logits[:, 5] = logits[:, 0] - logits[:, 1]
    return DependencyMap.fit(logits, logits.argmax(1), max_dependencies=2).save(tmp_path / "map")


@pytest.mark.parametrize("name", ["map.json", "map.safetensors"])
def test_a_map_refuses_every_flipped_bit(map_folder, name):
    path = map_folder / name
    whole = path.read_bytes()
    for content in [*flipped(path, 60), *_every_flip(whole, min(len(whole), 500), 13)]:
        path.write_bytes(content)
        with pytest.raises(BadFile):
            DependencyMap.load(map_folder)
    path.write_bytes(whole)
    DependencyMap.load(map_folder)


def test_a_map_of_before_is_read_with_a_warning(map_folder, capsys):
    numbers = map_folder / "map.safetensors"
    save_file(load_file(numbers), numbers)
    with pytest.warns(Unverified, match="not verified"):
        DependencyMap.load(map_folder)
    with pytest.raises(SystemExit) as left:
        main(["depend", "show", str(map_folder)])
    told = capsys.readouterr().err
    assert left.value.code == 0 and told.startswith("brickwork: ") and "not verified" in told


def test_a_shard_that_is_a_link_out_of_its_folder(folders, tmp_path):
    """A stranger's folder must not make a merge read another file of this machine."""
    secret = shutil.move(folders[1] / "model.safetensors", tmp_path / "elsewhere.safetensors")
    (folders[1] / "model.safetensors").symlink_to(secret)
    with pytest.raises(BadFile, match="outside the folder"):
        merged(folders, tmp_path / "m")
    index = folders[0] / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": "shard.safetensors"}}))
    (folders[0] / "shard.safetensors").symlink_to(secret)
    with pytest.raises(BadFile, match="outside the folder"):
        merged(folders[:1] * 2, tmp_path / "m")


def test_the_cache_of_the_hub_is_links(folders, tmp_path):
    """snapshots/REVISION/model.safetensors -> ../../blobs/HASH of the same repository, and of no other."""
    repo = tmp_path / "models--me--net"
    (repo / "blobs").mkdir(parents=True)
    (repo / "snapshots").mkdir()
    snapshot = shutil.move(folders[0], repo / "snapshots" / "abc")
    shutil.move(snapshot / "model.safetensors", repo / "blobs" / "123")
    (snapshot / "model.safetensors").symlink_to("../../blobs/123")
    merged([snapshot, folders[1]], tmp_path / "m")
    brickwork.load(snapshot)
    other = tmp_path / "blobs"
    other.mkdir()
    shutil.copyfile(repo / "blobs" / "123", other / "123")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(other / "123")
    for read in (lambda: merged([snapshot, folders[1]], tmp_path / "n"), lambda: brickwork.load(snapshot)):
        with pytest.raises(BadFile, match="outside the folder"):
            read()


def test_damaged_configs_and_indexes_are_one_sentence(folders, tmp_path):
    """53 of 77 ended as "unexpected" errors."""
    config = folders[0] / "config.json"
    whole = config.read_bytes()
    texts = [
        b"",
        b"[]",
        b"3",
        b"null",
        b'"x"',
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"brickwork": 1}',
        b'{"weights": 5}',
    ]
    entries = json.loads(whole)
    for key in ("weights", "format", "args", "steps", "classes", "preprocessing", "provenance", "parts"):
        for value in (None, 5, "x", [], [1], {}, {"x": 1}):
            texts.append(json.dumps({**entries, key: value}).encode())
    for key in ("file", "sha256", "state_hash", "tensors", "tied"):
        for value in (None, 5, "x", "../x.safetensors", [], [1], {}, {"x": 1}, {"x": "y"}):
            texts.append(json.dumps({**entries, "weights": {**entries["weights"], key: value}}).encode())
    for text in texts:
        config.write_bytes(text)
        shutil.rmtree(tmp_path / "m", ignore_errors=True)
        try:
            merged(folders, tmp_path / "m")
        except RequestError as error:
            assert "\n" not in str(error)
            continue
        with contextlib.suppress(RequestError):  # a stranger's config.json is copied as it is
            brickwork.load(tmp_path / "m")
    config.write_bytes(whole)
    index = folders[0] / "model.safetensors.index.json"
    names = [
        None,
        5,
        [],
        ["a"],
        "x",
        {},
        {"w": 5},
        {"w": None},
        {"w": "a/b"},
        {"w": ".."},
        {"w": "x\0y"},
        {"w": "x" * 999},
    ]
    for text in [*texts[:9], *(json.dumps({"weight_map": value}).encode() for value in names)]:
        index.write_bytes(text)
        with pytest.raises(RequestError):
            merged(folders, tmp_path / "n")
