"""A folder or file is there whole, or what was there before is."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from brickwork import atomic
from brickwork.atomic import check_file, check_output, write_file, write_folder
from brickwork.errors import JobFailed, OutputExists, RequestError

OLD = '{"format": "brickwork.model/1", "weights": {}}'


def listing(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture
def old(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "config.json").write_text(OLD)
    return folder


def test_a_new_folder_with_its_parents(tmp_path):
    with write_folder(tmp_path / "a" / "b") as folder:
        (folder / "x").write_text("1")
        assert not (tmp_path / "a" / "b").exists()
    assert (tmp_path / "a" / "b" / "x").read_text() == "1"
    assert listing(tmp_path / "a") == ["b"]


def test_an_existing_folder_is_refused_before_the_work(tmp_path, old):
    with pytest.raises(OutputExists, match="give force"), write_folder(old):
        raise AssertionError("the block must not run")
    assert (old / "config.json").read_text() == OLD


def test_force_replaces(tmp_path, old):
    with write_folder(old, force=True) as folder:
        (folder / "new").write_text("1")
        assert (old / "config.json").read_text() == OLD
    assert listing(old) == ["new"]
    assert listing(tmp_path) == ["out"]


def test_force_does_not_delete_what_is_not_ours(tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "me.jpg").write_text("")
    with pytest.raises(RequestError, match="not written by Brickwork"), write_folder(photos, force=True):
        raise AssertionError("the block must not run")
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="not a folder"), write_folder(tmp_path / "file", force=True):
        raise AssertionError("the block must not run")
    with write_folder(photos, force=True, owns=("me.jpg",)):
        pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_block(tmp_path, old, error):
    with pytest.raises(error), write_folder(old, force=True) as folder:
        (folder / "half").write_text("")
        raise error
    assert (old / "config.json").read_text() == OLD
    assert listing(tmp_path) == ["out"]


def test_a_full_disk(tmp_path, old):
    said = pytest.raises(JobFailed, match="No space left on device; what was there")
    with said, write_folder(old, force=True) as folder:
        (folder / "half").write_text("")
        raise OSError(errno.ENOSPC, "full")
    assert (old / "config.json").read_text() == OLD
    assert listing(tmp_path) == ["out"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
@pytest.mark.parametrize("call", [1, 2])
def test_a_failure_in_either_rename(tmp_path, old, monkeypatch, error, call):
    calls = []

    def rename(a, b, real=os.rename):
        calls.append(a)
        if len(calls) == call:
            raise error
        real(a, b)

    monkeypatch.setattr(atomic.os, "rename", rename)
    monkeypatch.setattr(atomic, "_exchange", lambda one, two: False)
    with pytest.raises((KeyboardInterrupt, JobFailed)), write_folder(old, force=True) as folder:
        (folder / "new").write_text("")
    assert (old / "config.json").read_text() == OLD
    assert listing(tmp_path) == ["out"]


def test_somebody_was_faster(tmp_path):
    with pytest.raises(OutputExists), write_folder(tmp_path / "out"):
        (tmp_path / "out").mkdir()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="cannot write"), write_folder(tmp_path / "file" / "out"):
        raise AssertionError("the block must not run")


def test_a_killed_process_leaves_nothing_under_the_name(tmp_path, old):
    code = (
        "import os, sys, signal\nfrom brickwork.atomic import write_folder\n"
        "with write_folder(sys.argv[1], force=True) as folder:\n"
        "    (folder / 'half').write_text('')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(old)])
    assert done.returncode == -signal.SIGKILL
    assert listing(old) == ["config.json"]
    assert len(listing(tmp_path)) == 2
    with write_folder(old, force=True) as folder:  # what the killed run left goes with the next one
        (folder / "config.json").write_text(OLD)
    assert listing(tmp_path) == ["out"]


KILLED = """
import os, sys, signal
from brickwork import atomic
calls, wanted, kind = [0], int(sys.argv[2]), sys.argv[3]
def counted(function):
    def call(*given, **named):
        calls[0] += 1
        if calls[0] == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
        done = function(*given, **named)
        calls[0] += 1
        if calls[0] == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    return call
atomic.os.rename, atomic.shutil.rmtree = counted(os.rename), counted(atomic.shutil.rmtree)
atomic.os.unlink, atomic._exchange = counted(os.unlink), counted(atomic._exchange) if kind == "exchange" else lambda a, b: False
with atomic.write_folder(sys.argv[1], force=True) as folder:
    (folder / "config.json").write_text('{"format": "brickwork.model/1", "new": 1}')
"""


@pytest.mark.parametrize("kind", ["exchange", "two renames"])
def test_killed_at_every_rename(tmp_path, old, kind):
    """There is a whole folder at any instant, or the next open brings it back; the next write leaves nothing behind."""
    if kind == "exchange" and not atomic._exchange(old, old):
        pytest.skip("this file system cannot exchange names")
    for wanted in range(1, 20):
        (old / "config.json").write_text(OLD)
        done = subprocess.run([sys.executable, "-c", KILLED, str(old), str(wanted), kind])
        if kind == "exchange":
            assert (old / "config.json").is_file()
        text = (atomic.recovered(old) / "config.json").read_text()
        assert text == OLD or "new" in text
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
    else:
        raise AssertionError("the run never ended by itself")
    assert wanted > 3 and listing(tmp_path) == ["out"]


def make(folder, **files):
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def test_force_leaves_other_peoples_folders_alone(tmp_path):
    """A transformers folder, notes beside a model, a model within a model: each is named, and stays."""
    transformers = make(tmp_path / "hf", config_json='{"model_type": "vit"}', model_safetensors="x")
    notes = make(tmp_path / "notes", config_json=OLD, README_md="", todo_txt="my notes")
    nested = make(tmp_path / "nested", config_json=OLD)
    make(nested / "other", config_json=OLD)
    broken = make(tmp_path / "broken", config_json="{")
    for folder, why in ((transformers, "config.json does not say"), (notes, "todo.txt"), (nested, "other/config.json")):
        for owns in (("config.json",), ("config.json", "model.safetensors", "model.safetensors.index.json")):
            before = sorted(folder.rglob("*"))
            with pytest.raises(RequestError, match=why), write_folder(folder, force=True, owns=owns):
                raise AssertionError("the block must not run")
            assert sorted(folder.rglob("*")) == before
    with pytest.raises(RequestError, match="remove it yourself"):
        check_output(broken, force=True)


def test_force_replaces_shards_that_were_merged(tmp_path):
    index = '{"weight_map": {"a": "m-1.safetensors"}}'
    card = "---\nlibrary_name: brickwork\n"
    owns = ("config.json", "model.safetensors", "model.safetensors.index.json")
    folder = make(
        tmp_path / "m", config_json='{"model_type": "vit"}', README_md=card, model_safetensors_index_json=index
    )
    (folder / "m-1.safetensors").write_text("")
    check_output(folder, force=True, owns=owns)
    (folder / "g.safetensors").write_text("")
    with pytest.raises(RequestError, match=r"it holds g\.safetensors"):
        check_output(folder, force=True, owns=owns)


def test_a_file(tmp_path):
    target = tmp_path / "deep" / "file.json"
    with write_file(target) as path:
        path.write_text("1")
    assert target.read_text() == "1"
    with pytest.raises(OutputExists), write_file(target, force=False):
        raise AssertionError("the block must not run")
    with pytest.raises(JobFailed), write_file(target) as path:
        path.write_text("2")
        raise OSError(errno.ENOSPC, "full")
    assert target.read_text() == "1"
    assert listing(target.parent) == ["file.json"]
    with pytest.raises(RequestError, match="is a folder"), write_file(tmp_path):
        raise AssertionError("the block must not run")


def test_files_have_the_usual_rights_whoever_wrote_them(tmp_path):
    usual = tmp_path / "usual"
    usual.write_text("x")
    with write_folder(tmp_path / "new") as folder:
        (folder / "file").touch(mode=0o600)
    with write_file(tmp_path / "one") as file:
        file.touch(mode=0o600)
    rights = {path.stat().st_mode for path in (usual, tmp_path / "new" / "file", tmp_path / "one")}
    assert len(rights) == 1


@pytest.mark.parametrize("check", [check_output, check_file])
def test_a_place_where_nothing_can_be_written_is_refused_before_the_work(tmp_path, check):
    with pytest.raises(RequestError, match="File name too long; choose another out"):
        check(tmp_path / ("x" * 300))
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="file is not a folder; choose another out"):
        check(tmp_path / "file" / "x")
    if os.path.isdir("/proc"):
        with pytest.raises(RequestError, match="nothing can be made in /proc; choose another out"):
            check("/proc/no/such/place")
    check(tmp_path / "new" / "place")
    assert listing(tmp_path) == ["file"]
