"""Sets known by name: `$BRICKWORK_DATA/NAME.npz`, made from the official archive when it is missing."""

from __future__ import annotations

import gzip
import os
import struct
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brickwork.atomic import write_file
from brickwork.data.download import fetch
from brickwork.errors import BadFile, UnknownName

Arrays = dict[str, np.ndarray]

CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
FASHION = ["top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]


@dataclass(frozen=True)
class Official:
    """Where a set's archives lie, and how they become arrays."""

    base: str
    files: dict[str, str]  # file name -> checksum
    convert: Callable[[list[Path]], Arrays]


def data_folder(root: str | os.PathLike[str] | None = None) -> Path:
    """The argument, else $BRICKWORK_DATA, else `brickwork` in the user's cache folder."""
    if root or os.environ.get("BRICKWORK_DATA"):
        return Path(root or os.environ["BRICKWORK_DATA"])
    if sys.platform == "win32":
        cache = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local"))
    elif sys.platform == "darwin":
        cache = Path.home() / "Library/Caches"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "brickwork"


def known_names(root: str | os.PathLike[str] | None = None) -> list[str]:
    """The embedded digits, the sets that can be downloaded, and what else lies in the data folder."""
    return sorted({"digits", *OFFICIAL, *(path.stem for path in data_folder(root).glob("*.npz") if path.is_file())})


@dataclass(frozen=True)
class KnownSet:
    """A set that has a name: embedded, there (a file of so many bytes), or to be fetched from its official place."""

    name: str
    state: str
    where: str

    def to_dict(self) -> dict[str, str]:
        return dict(vars(self))


def known_sets(root: str | os.PathLike[str] | None = None) -> list[KnownSet]:
    """All of them, by name.

    >>> known_sets("/nowhere")[0].to_dict()
    {'name': 'cifar10', 'state': 'to be fetched', 'where': 'https://www.cs.toronto.edu/~kriz'}
    """
    result = []
    for name in known_names(root):
        path = data_folder(root) / f"{name}.npz"
        if name == "digits":
            result.append(KnownSet(name, "embedded", "comes with Brickwork"))
        elif path.is_file():
            result.append(KnownSet(name, f"{path.stat().st_size / 1e6:.1f} MB", str(path)))
        else:
            result.append(KnownSet(name, "to be fetched", OFFICIAL[name].base))
    return result


def find(
    name: str, *, root: str | os.PathLike[str] | None = None, mirror: str | None = None, progress: bool = True
) -> Path:
    """The .npz of a named set, downloaded and converted first if need be.

    `mirror` (else $BRICKWORK_MIRROR) is an address that serves the official files; the
    checksums stay the official ones.
    """
    folder = data_folder(root)
    path = folder / f"{name}.npz"
    if path.exists():
        return path
    if name not in OFFICIAL:
        hint = f"Or a folder of images, a .npz file, hfds:NAME. The data folder is {folder}."
        raise UnknownName("data set", name, known_names(root), hint)
    official = OFFICIAL[name]
    base = (mirror or os.environ.get("BRICKWORK_MIRROR") or official.base).rstrip("/")
    archives = folder / "archives" / name  # apart: two sets use the same file names
    paths = [
        fetch(f"{base}/{file}", archives / file, checksum, progress=progress)
        for file, checksum in official.files.items()
    ]
    arrays = official.convert(paths)
    with write_file(path, force=True) as draft, open(draft, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    for archive in paths:
        archive.unlink()
    archives.rmdir()
    return path


def _cifar(path: Path, train: list[str], test: str, label_bytes: int) -> Arrays:
    """The archive's binary version: a row is the label byte(s), then 3×32×32 pixels. No pickle in it."""
    parts: Arrays = {}
    with tarfile.open(path) as tar:
        result = {Path(member.name).name: member for member in tar.getmembers() if member.isfile()}
        for split, files in (("train", train), ("test", [test])):
            raw = []
            for file in files:
                stream = tar.extractfile(result[file]) if file in result else None
                if stream is None:
                    raise BadFile(f"{path} holds no {file}; it is not the official binary archive.")
                raw.append(np.frombuffer(stream.read(), np.uint8).reshape(-1, label_bytes + 3072))
            rows = np.concatenate(raw)
            parts[f"{split}_labels"] = rows[:, label_bytes - 1].astype(np.int64)
            pixels = rows[:, label_bytes:].reshape(-1, 3, 32, 32)
            parts[f"{split}_images"] = np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))
        if "fine_label_names.txt" in result:
            names = tar.extractfile(result["fine_label_names.txt"])
            parts["classes"] = np.array(names.read().decode().split() if names else [])
    return parts


def _cifar10(paths: list[Path]) -> Arrays:
    return _cifar(paths[0], [f"data_batch_{i}.bin" for i in range(1, 6)], "test_batch.bin", 1) | {
        "classes": np.array(CIFAR10)
    }


def _cifar100(paths: list[Path]) -> Arrays:
    return _cifar(paths[0], ["train.bin"], "test.bin", 2)


def _idx(path: Path) -> np.ndarray:
    raw = gzip.decompress(path.read_bytes())
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":
        raise BadFile(f"{path} is not an IDX file of bytes.")
    start = 4 + 4 * raw[3]
    return np.frombuffer(raw, np.uint8, offset=start).reshape(struct.unpack(f">{raw[3]}I", raw[4:start]))


def _mnist(classes: list[str]) -> Callable[[list[Path]], Arrays]:
    def convert(paths: list[Path]) -> Arrays:
        images, labels, test_images, test_labels = (_idx(path) for path in paths)
        return {
            "classes": np.array(classes),
            "train_images": images[..., None],
            "train_labels": labels.astype(np.int64),
            "test_images": test_images[..., None],
            "test_labels": test_labels.astype(np.int64),
        }

    return convert


def _idx_files(*md5: str) -> dict[str, str]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return {f"{name}-ubyte.gz": f"md5:{sum_}" for name, sum_ in zip(names, md5, strict=True)}


# The authors publish MD5 sums only; they guard against damage, not against an attacker.
OFFICIAL = {
    "cifar10": Official(
        "https://www.cs.toronto.edu/~kriz", {"cifar-10-binary.tar.gz": "md5:c32a1d4ab5d03f1284b67883e8d87530"}, _cifar10
    ),
    "cifar100": Official(
        "https://www.cs.toronto.edu/~kriz",
        {"cifar-100-binary.tar.gz": "md5:03b5dce01913d631647c71ecec9e9cb8"},
        _cifar100,
    ),
    "mnist": Official(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        _idx_files(
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
        _mnist([str(i) for i in range(10)]),
    ),
    "fashion_mnist": Official(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        _idx_files(
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
        _mnist(FASHION),
    ),
}
