"""A small file that asks for much is refused before anything is allocated, in one sentence that says how to raise the bound."""

import hashlib
import io
import json
import resource
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

import brickwork
from brickwork import data, zoo
from brickwork.dependencies.sources import read_logits
from brickwork.errors import BadFile, RequestError
from brickwork.limits import bound
from brickwork.pools import KernelPool
from brickwork.pools.taskfile import CHECK, FORMAT, read_header, read_task, write_task
from brickwork.recipes import read_yaml


@pytest.fixture(autouse=True)
def little_memory():
    """What is refused takes no memory on the way: at most 700 MB more than before, of Python and numpy at most 200."""
    tracemalloc.start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 200e6
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 700_000


@pytest.fixture(scope="module")
def pool():
    return KernelPool.cluster([zoo.build("lenet", num_classes=3, seed=0)], size=8)


def with_header(data, change):
    """A task file with another header, its checksum right."""
    start = len(FORMAT) + 4
    size = struct.unpack("<I", data[len(FORMAT) : start])[0]
    header = change(json.loads(zlib.decompress(data[start : start + size])))
    text = header if isinstance(header, bytes) else zlib.compress(json.dumps(header).encode(), 9)
    whole = FORMAT + struct.pack("<I", len(text)) + text + data[start + size : -CHECK]
    return whole + hashlib.blake2b(whole, digest_size=CHECK).digest()


def test_a_task_whose_header_unfolds(pool):
    whole = write_task(pool.base, pool)
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(b'{"x":"' + b" " * (1 << 24)) for _ in range(100)) + packer.flush()
    with pytest.raises(BadFile, match="a header of more than 16 MB"):
        read_header(with_header(whole, lambda header: bomb), "x.task")


def test_a_task_of_billions_of_outputs(pool):
    whole = write_task(pool.base, pool)
    for outputs in (10**8, 10**12, -5, "many", [1]):
        made = with_header(whole, lambda h, n=outputs: {**h, "outputs": n, "origin": {**h["origin"], "classes": None}})
        with pytest.raises(BadFile):
            read_task(made, pool, "x.task")
    with pytest.raises(BadFile, match=r"x\.task would take .* GB .* set BRICKWORK_LIMIT_GB="):
        read_task(
            with_header(whole, lambda h: {**h, "outputs": 10**8, "origin": {**h["origin"], "classes": None}}),
            pool,
            "x.task",
        )


def npy(shape, dtype="|u1"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


@pytest.mark.parametrize("read", [data.load, read_logits])
def test_an_npz_that_unfolds(tmp_path, read, monkeypatch):
    """8 MB of zeros in a zip became 8 GB; here a tenth of it, to write it quickly."""
    monkeypatch.setenv("BRICKWORK_LIMIT_GB", "0.3")
    path = tmp_path / "x.npz"
    archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with archive, archive.open("logits.npy", "w", force_zip64=True) as file:
        file.write(npy((5 * 10**8,)))
        for _ in range(50):
            file.write(bytes(10**7))
    read = (lambda p: read_logits(p)) if read is read_logits else (lambda p: data.load(str(p)))
    with pytest.raises(BadFile, match=r"x\.npz would take 0\.5 GB"):
        read(path)


@pytest.mark.parametrize("shape", [(10**12,), (-3,), (2**62, 2**62), (7,)])
def test_an_array_whose_header_lies(tmp_path, shape):
    content = npy(shape) + bytes(12)
    (tmp_path / "x.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("logits.npy", content)
    for name in ("x.npy", "x.npz"):
        with pytest.raises(BadFile):
            read_logits(tmp_path / name)


def test_aliases_of_aliases(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 40)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join([*lines, "models: *a39"]))
    with pytest.raises(BadFile, match=r"bomb\.yaml stands for more than"):
        read_yaml(path)
    path.write_text("a: &a [*a]")
    with pytest.raises(RequestError):
        read_yaml(path)
    path.write_text("[" * 100_000)
    with pytest.raises(BadFile):
        read_yaml(path)
    path.write_text("both: &both {density: 0.2}\nlayers: [{options: *both}, {options: *both}]")
    assert read_yaml(path)["layers"][1]["options"] == {"density": 0.2}


@pytest.fixture
def folder(tmp_path):
    return brickwork.save(zoo.build("lenet", num_classes=3, seed=0), tmp_path / "m")


def changed(folder, **entries):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **entries}))


HUGE = 4_000_000


@pytest.mark.parametrize(
    "entries",
    [
        {"args": {"num_classes": HUGE * 1000}, "steps": [{"op": "widen_output", "layer": "fc3", "new": 1}]},
        {"args": {"num_classes": HUGE * 1000}},
        {"steps": [{"op": "widen_output", "layer": "fc3", "new": HUGE}]},
        {"steps": [{"op": "add_classes", "known": 3, "new": HUGE}]},
        {"steps": [{"op": "deeper_classes", "layers": ["fc1"], "width": HUGE, "new": 2}]},
        {"steps": [{"op": "widen_output", "layer": "fc3", "new": 400_000}] * 10},
        {"parts": [{"arch": "vgg16", "args": {"num_classes": HUGE}}] * 2, "arch": "join", "args": {}},
        {"steps": [{"op": "select", "keep": {}, "example": {"shape": [10**6, 3, 32, 10**6], "dtype": "float32"}}]},
    ],
)
def test_a_config_that_asks_for_millions_of_classes(folder, entries):
    """A few lines of JSON took 8 GB."""
    changed(folder, **entries)
    with pytest.raises(RequestError) as caught:
        brickwork.load(folder)
    assert "\n" not in str(caught.value)


def test_the_bound_can_be_raised(folder, monkeypatch):
    monkeypatch.setenv("BRICKWORK_LIMIT_GB", "0.001")
    changed(folder, steps=[{"op": "widen_output", "layer": "fc3", "new": 2000}])
    with pytest.raises(BadFile, match="set BRICKWORK_LIMIT_GB=1"):
        brickwork.load(folder)
    monkeypatch.setenv("BRICKWORK_LIMIT_GB", "1")
    with pytest.raises(BadFile, match="lacks"):  # it is built, and the weights are not its own
        brickwork.load(folder)
    for text in ("none", "-1", "nan", "inf"):
        monkeypatch.setenv("BRICKWORK_LIMIT_GB", text)
        with pytest.raises(RequestError, match="BRICKWORK_LIMIT_GB is"):
            bound()
