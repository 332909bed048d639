"""Full and closed disks, other locales, very long names: one sentence, the documented exit code, nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import brickwork
from brickwork import zoo
from brickwork.dependencies.map import DependencyMap
from brickwork.origin import Preprocessing, attach, origin_of
from brickwork.pools import KernelPool, PoolFolder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dür☃")
    for seed, name in enumerate("ab"):
        model = zoo.build("lenet", num_classes=5, in_channels=1, seed=seed)
        origin = replace(
            origin_of(model), classes=tuple("01234"), preprocessing=Preprocessing((32, 32), 1, (0.5,), (0.5,))
        )
        attach(model, origin)
        brickwork.save(model, folder / name)
    PoolFolder.create(folder / "pool", KernelPool.cluster([brickwork.load(folder / "a")], size=8))
    logits = np.random.default_rng(0).normal(size=(400, 60))
    np.save(folder / "logits.npy", logits)
    DependencyMap.fit(logits)  # compiled and cached now, where there is room for it
    return folder


def started(place, *words, limit=None, **surroundings):
    """A process of its own; limit: no file may become larger than so many bytes, as on a disk that is nearly full."""

    def little():
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    known = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "brickwork", *map(str, words)]
    done = subprocess.run(command, cwd=place, env=known | surroundings, capture_output=True, preexec_fn=little)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("merge", "a", "b", "--out", "m"),
        ("delta", "a", "b", "--out", "g.safetensors"),
        ("depend", "fit", "logits.npy", "--out", "map"),
        ("train", "lenet", "digits:A@10", "--size", "32", "--epochs", "1", "--checkpoint", "ck", "--out", "t"),
    ],
    ids=lambda words: words[0],
)
def test_a_full_disk(place, words):
    before = sorted(place.rglob("*"))
    code, _, told = started(place, *words, limit=10_000)
    line = told.decode().strip().splitlines()[-1]
    assert code == 1 and line.startswith("brickwork: cannot write") and "what was there before is unchanged" in line
    (place / "ck").rmdir() if (place / "ck").is_dir() else None
    assert sorted(place.rglob("*")) == before


def test_a_disk_that_is_closed_to_us(place, run, monkeypatch):
    def closed(self, *given, **named):
        raise OSError(errno.EROFS, "Read-only file system", str(self))

    monkeypatch.setattr(Path, "mkdir", closed)
    for words in (
        ("pool", "learn", place / "pool", "--data", "digits:A@10", "--name", "x"),
        ("merge", place / "a", place / "b", "--out", place / "n"),
    ):
        code, _, told = run(*words)
        assert code == 1 and "Read-only file system" in told and "fault of Brickwork" not in told


def test_a_name_of_300_letters(place, run):
    name = "x" * 300
    for words, wanted in (
        (("pool", "learn", place / "pool", "--data", "digits:A@10", "--name", name), "at most 200"),
        (("merge", place / "a", place / "b", "--out", place / name), "File name too long"),
        (("delta", place / "a", place / "b", "--out", place / f"{name}.safetensors"), "File name too long"),
    ):
        code, _, told = run(*words)
        assert code == 2 and wanted in told and len(told.strip().splitlines()) == 1


C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_a_locale_that_knows_no_letters(place):
    """Paths are UTF-8 whatever the locale says, and what is recorded of them is right."""
    code, told, _ = started(place.parent, "merge", place / "a", place / "b", "--out", place / "c", "--json", **C)
    assert code == 0 and json.loads(told)["folder"] == str(place / "c")
    assert (
        str(place / "a")
        in json.loads((place / "c" / "config.json").read_text(encoding="utf-8"))["provenance"]["inputs"]
    )


def test_a_terminal_that_knows_other_letters(place):
    code, told, _ = started(place, "assign", "--help", PYTHONIOENCODING="latin-1")
    assert code == 0 and rb"\u03b8" in told
    code, told, _ = started(place, "info", place / "a", "--json", PYTHONIOENCODING="latin-1")
    assert code == 0 and json.loads(told.decode("latin-1"))


def test_a_name_that_is_no_text(place):
    odd = os.fsdecode(os.fsencode(place) + b"/\xff")
    os.symlink(place / "a", odd)
    try:
        code, _, told = started(place, "merge", odd, "b", "--out", "d")
        assert code == 2 and b"no UTF-8" in told and not (place / "d").exists()
    finally:
        os.unlink(odd)
