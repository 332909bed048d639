"""Every kind of file, damaged at random and on purpose: refused in one sentence, or what is read is what was written."""

from __future__ import annotations

import json
import random
import shutil
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import brickwork
from brickwork import data, zoo
from brickwork.algebra.deltas import Delta
from brickwork.algebra.recipe import make_recipe, read_recipe
from brickwork.algebra.streaming import merge_files
from brickwork.bricks import Brick
from brickwork.dependencies.map import DependencyMap
from brickwork.dependencies.sources import read_logits
from brickwork.errors import RequestError, Unverified
from brickwork.pools import KernelPool, PoolFolder
from brickwork.store import state_hash
from brickwork.tensor_file import read_header
from brickwork.training import checkpoint
from brickwork.transplant import TransplantNet
from brickwork.transplant.parts import grown_by

EACH = 40  # damages of each file

#: texts that JSON allows and nobody expects
TEXTS = ["", "null", "[]", "{}", "0", '"x"', "[" * 5000, '{"a":' * 3000, "NaN", "\ufeff{}", "{}{}", '{"format": null}']


def damaged(content: bytes, rng: random.Random) -> bytes:
    """One of: a bit turned over, a cut, bytes doubled, zeroed, exchanged, put in; a number made large; a hostile text."""
    size = len(content)
    place, length = rng.randrange(size), rng.randint(1, 40)
    kind = rng.randrange(8)
    if kind == 0:
        return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]
    if kind == 1:
        return content[:place]
    if kind == 2:
        return content[: place + length] + content[place:]
    if kind == 3:
        return content[:place] + bytes(min(length, size - place)) + content[place + length :]
    if kind == 4:
        return content[:place] + rng.randbytes(length) + content[place + length :]
    if kind == 5:
        digits = [k for k in range(min(size, 4000)) if chr(content[k]).isdigit()]
        if digits:
            at = rng.choice(digits)
            return content[:at] + rng.choice([b"9" * 18, b"-1", b"1e400", b"null"]) + content[at + 1 :]
    if kind == 6:
        return struct.pack("<Q", rng.choice([0, 1, 2**31, 2**63, 2**64 - 1, size])) + content[8:]
    return rng.choice(TEXTS).encode()


def _lenet(seed: int = 0) -> torch.nn.Module:
    return zoo.build("lenet", num_classes=3, in_channels=1, seed=seed)


def _model(place: Path) -> tuple[Path, Callable[[], Any]]:
    folder = brickwork.save(_lenet(), place / "model")
    return folder, lambda: state_hash(brickwork.load(folder))


def _joined(place: Path) -> tuple[Path, Callable[[], Any]]:
    example = torch.zeros(1, 1, 32, 32)
    cut = brickwork.trace(_lenet(), example).select(_lenet(), {"classes": [0, 2]})
    folder = brickwork.save(brickwork.join([cut, _lenet(1)], example), place / "joined")
    return folder, lambda: state_hash(brickwork.load(folder))


def _merge(place: Path) -> tuple[Path, Callable[[], Any]]:
    folder = brickwork.save(_lenet(), place / "model")
    other = brickwork.save(_lenet(1), place / "other")

    def merged() -> str:
        shutil.rmtree(place / "merged", ignore_errors=True)
        recipe = make_recipe({"models": [str(folder), str(other)]})
        merge_files(recipe, place / "merged", progress=False)
        return state_hash(brickwork.store.load_weights(place / "merged" / "model.safetensors"))

    return folder, merged


def _delta(place: Path) -> tuple[Path, Callable[[], Any]]:
    (place / "delta").mkdir()
    path = brickwork.delta(_lenet(), _lenet(1)).save(place / "delta" / "g.safetensors")
    return path.parent, lambda: (state_hash(dict(Delta.load(path).tensors)), Delta.load(path).base)


def _map(place: Path) -> tuple[Path, Callable[[], Any]]:
    rng = np.random.default_rng(0)
    folder = DependencyMap.fit(rng.normal(size=(100, 5)), max_dependencies=2).save(place / "map")
    return folder, lambda: DependencyMap.load(folder).to_dict()


def _pool(place: Path) -> tuple[Path, Callable[[], Any]]:
    pool = KernelPool.cluster([_lenet()], size=8)
    folder = PoolFolder.create(place / "pool", pool)
    folder.add("one", pool.base)

    def read() -> Any:
        again = PoolFolder.open(place / "pool")
        return again.pool.hash, again.task("one").hash

    return place / "pool", read


def _net(place: Path) -> tuple[Path, Callable[[], Any]]:
    net = grown_by(TransplantNet((1, 32, 32)), _lenet(), at="pool1", category="cat", task="mark")
    folder = net.save(place / "net")
    return folder, lambda: {
        name: state_hash(part.module) for name, part in TransplantNet.load(folder).categories.items()
    }


def _checkpoint(place: Path) -> tuple[Path, Callable[[], Any]]:
    model = _lenet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    (place / "checkpoint").mkdir()
    checkpoint.save(place / "checkpoint", model, optimizer, {"settings": {}, "data": "x"})

    def read() -> Any:
        facts, again = checkpoint.read_facts(place / "checkpoint"), _lenet(1)
        checkpoint.restore(place / "checkpoint", again, torch.optim.SGD(again.parameters(), lr=0.1, momentum=0.9))
        return facts, state_hash(again)

    return place / "checkpoint", read


def _arrays(place: Path) -> tuple[Path, Callable[[], Any]]:
    folder = place / "arrays"
    folder.mkdir()
    images, labels = np.zeros((10, 4, 4), np.uint8), np.arange(10) % 2
    np.savez_compressed(folder / "x.npz", images=images, labels=labels)
    np.save(folder / "y.npy", np.ones((6, 3)))

    def read() -> None:  # there is no hash in these: it is enough that nothing but a refusal comes
        data.load(str(folder / "x.npz"))
        read_logits(folder / "y.npy")

    return folder, read


def _recipe(place: Path) -> tuple[Path, Callable[[], Any]]:
    for seed, name in enumerate("ab"):
        brickwork.save(_lenet(seed), place / name)
    folder = place / "recipe"
    folder.mkdir()
    (folder / "r.yaml").write_text("method: linear\nmodels: [../a, ../b]\noptions: {weights: [0.3, 0.7]}\n")

    def read() -> None:
        read_recipe(folder / "r.yaml")

    return folder, read


KINDS = [_model, _joined, _merge, _delta, _map, _pool, _net, _checkpoint, _arrays, _recipe]


def files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in (".lock", "README.md"):
            yield path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__[1:])
def test_damage_is_refused_or_harmless(tmp_path, kind):
    folder, read = kind(tmp_path)
    wanted, rng, refused = read(), random.Random(kind.__name__), 0
    for path in files(folder):
        whole = path.read_bytes()
        for _ in range(EACH):
            path.write_bytes(damaged(whole, rng))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Unverified)
                try:
                    found = read()
                except RequestError as error:
                    refused += 1
                    assert len(str(error)) < 3000
                    continue
            assert found == wanted, f"{path} was changed, and read as something else"
        path.write_bytes(whole)
    assert read() == wanted and refused > EACH // 2


HEADERS: list[Any] = [
    {"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}},
    {"w": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}},
    {"w": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 16]}},
    {"w": {"dtype": "F33", "shape": [4], "data_offsets": [0, 16]}},
    {"w": {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]}},
    {"w": {"dtype": "F32", "shape": [4], "data_offsets": [4, 20]}},
    {"w": {"dtype": "F32", "shape": "4", "data_offsets": [0, 16]}},
    {"w": {"dtype": "F32", "shape": [4]}},
    {"w": []},
    {"w": None},
    {"__metadata__": {"a": 1}, "w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}},
    {"__metadata__": [], "w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}},
    {
        "v": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
        "w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},
    },
    {},
    [],
    None,
    "w",
]


@pytest.mark.parametrize("header", HEADERS, ids=lambda h: json.dumps(h)[:40])
def test_hostile_headers(tmp_path, header):
    """Every reader of tensors refuses them alike."""
    text = json.dumps(header).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(16))
    for read in (
        lambda: read_header(path),
        lambda: Delta.load(path),
        lambda: brickwork.store.load_weights(path),
        lambda: merge_files(make_recipe({"models": [str(path)] * 2}), tmp_path / "m", progress=False),
    ):
        with pytest.raises(RequestError) as caught:
            read()
        assert "\n" not in str(caught.value)


def test_a_brick_is_a_model_folder_whose_record_may_be_damaged(tmp_path):
    images = data.load("digits:A@10", size=32, channels=1)
    model = zoo.build("lenet", num_classes=5, in_channels=1, seed=0)
    brick = brickwork.disassemble(model, [0, 1], images, keep=0.5, repair="none", attribution="taylor", progress=False)
    folder = brick.save(tmp_path / "brick")
    config = json.loads((folder / "config.json").read_text())
    wanted, rng = state_hash(Brick.load(folder).model), random.Random(0)
    values: list[Any] = [None, 0, -1, "x", [], {}, [[]], 1e308, True, {"op": "select"}]

    def changed(entry: Any) -> Any:
        if isinstance(entry, dict) and entry and rng.random() < 0.8:
            key = rng.choice(list(entry))
            return {**entry, key: changed(entry[key])}
        if isinstance(entry, list) and entry and rng.random() < 0.8:
            at = rng.randrange(len(entry))
            return [*entry[:at], changed(entry[at]), *entry[at + 1 :]]
        return rng.choice(values)

    for _ in range(60):
        (folder / "config.json").write_text(json.dumps(changed(config)))
        try:
            assert state_hash(Brick.load(folder).model) == wanted
        except RequestError as error:
            assert str(error)


def test_a_part_of_a_net_whose_step_says_too_little(tmp_path):
    """A step without its entries ended as KeyError 'at'."""
    folder, read = _net(tmp_path)
    path = folder / "categories" / "cat" / "config.json"
    config, wanted = json.loads(path.read_text()), read()
    for entry in ("at", "carry", "side", "op"):
        missing = [{k: v for k, v in step.items() if k != entry} for step in config["steps"]]
        path.write_text(json.dumps({**config, "steps": missing}))
        with pytest.raises(RequestError):
            read()
        for value in (None, 5, [], {}, "nowhere"):
            path.write_text(json.dumps({**config, "steps": [{**step, entry: value} for step in config["steps"]]}))
            try:
                assert read() == wanted  # nothing is carried here: an empty list is what was written
            except RequestError as error:
                assert str(error)
