"""A run that was killed goes on to the very weights it would have had; so does one stopped by Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from brickwork import data, zoo
from brickwork.errors import BadFile, RequestError
from brickwork.training import train
from brickwork.training.checkpoint import FILE, read_facts

SCRIPT = Path(__file__).with_name("run_training.py")


EPOCHS = 30


def start(weights: Path, *launcher: str, **options: object) -> subprocess.Popen[str]:
    given = {"epochs": EPOCHS, "optimizer": "adamw", "lr": 1e-3, "dropout": 0.1, **options}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, *launcher, str(SCRIPT), str(weights), json.dumps(given)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )


def epochs_done(folder: Path) -> int:
    facts = read_facts(folder)
    return len(facts["history"]) if facts else 0


def stop_after_an_epoch(process: subprocess.Popen[str], folder: Path, how: signal.Signals) -> None:
    deadline = time.monotonic() + 120
    while epochs_done(folder) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode not in (0, None)


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    return out


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    weights = tmp_path_factory.mktemp("whole") / "weights"
    finish(start(weights))
    return load_file(f"{weights}.0")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "ctrl-c"])
def test_resuming_gives_the_same_bytes(uninterrupted, tmp_path, how):
    checkpoint, metrics = tmp_path / "checkpoint", tmp_path / "run.jsonl"
    files = {"checkpoint": str(checkpoint), "metrics": str(metrics)}
    process = start(tmp_path / "weights", **files)
    stop_after_an_epoch(process, checkpoint, how)
    assert not list(tmp_path.glob("weights*"))
    done = epochs_done(checkpoint)
    assert 2 <= done < EPOCHS
    with safe_open(checkpoint / FILE, framework="np") as file:
        assert len(list(file.keys())) > 20
    if how == signal.SIGINT:
        assert sorted(p.name for p in checkpoint.iterdir()) == [FILE]

    assert f"resumed at {done}" in finish(start(tmp_path / "weights", **files))
    weights = load_file(tmp_path / "weights.0")
    assert weights.keys() == uninterrupted.keys()
    for name, tensor in uninterrupted.items():
        assert torch.equal(weights[name], tensor), name
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [row["epoch"] for row in rows] == list(range(1, EPOCHS + 1))


@pytest.fixture
def digits():
    return data.load("digits:A@10", size=8, channels=1)


def go(digits, folder, **options):
    model = zoo.build("lenet", num_classes=5, in_channels=1, seed=0)
    given = {"epochs": 3, "batch_size": 25, "lr": 1e-3, "checkpoint": folder, "optimizer": "sgd"} | options
    return train(model, digits.train_images, digits.train_labels, **given)


def test_a_finished_run_is_not_run_again(digits, tmp_path):
    first, second = go(digits, tmp_path), go(digits, tmp_path)
    assert second.resumed_at == 3 and second.history == first.history
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert go(digits, tmp_path, resume=False).resumed_at == 0


def test_another_runs_checkpoint_is_refused(digits, tmp_path):
    go(digits, tmp_path)
    with pytest.raises(RequestError, match=r"another run \(lr 0\.001 there, 0\.1 asked\).*without resume"):
        go(digits, tmp_path, lr=0.1)
    with pytest.raises(RequestError, match="other training images"):
        go(data.load("digits:B@10", size=8, channels=1), tmp_path)


def test_another_models_or_a_broken_checkpoint_is_refused(digits, tmp_path):
    go(digits, tmp_path)
    other = zoo.build("lenet", num_classes=6, in_channels=1, seed=0)
    options = {"epochs": 3, "batch_size": 25, "lr": 1e-3, "optimizer": "sgd", "checkpoint": tmp_path}
    with pytest.raises(BadFile, match="belongs to another model"):
        train(other, digits.train_images, digits.train_labels, **options)
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadFile, match="cannot be read as a checkpoint"):
        go(digits, tmp_path)
    save_file({"x": torch.zeros(1)}, tmp_path / FILE)
    with pytest.raises(BadFile, match="is not a checkpoint"):
        go(digits, tmp_path)


def test_a_failed_write_leaves_the_last_checkpoint(digits, tmp_path, monkeypatch):
    go(digits, tmp_path)
    before = (tmp_path / FILE).read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("brickwork.store.weights.save_file", full)
    with pytest.raises(Exception, match="No space left on device"):
        go(digits, tmp_path, resume=False)
    assert (tmp_path / FILE).read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [FILE]


def test_two_processes_under_torchrun(tmp_path):
    pytest.importorskip("lightning_fabric", reason="needs the extra ddp")
    options = {"epochs": 2, "optimizer": "sgd", "lr": 0.02, "dropout": 0.0}
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    together = start(tmp_path / "two", *launcher, checkpoint=str(tmp_path / "checkpoint"), **options)
    finish(together)
    finish(start(tmp_path / "one", **options))
    first, second, alone = (load_file(tmp_path / name) for name in ("two.0", "two.1", "one.0"))
    facts = read_facts(tmp_path / "checkpoint")
    assert facts is not None and len(facts["history"]) == 2
    for name, tensor in alone.items():
        assert torch.equal(first[name], second[name])
        # the halves of each batch average to the whole batch's gradient, up to rounding
        torch.testing.assert_close(first[name], tensor, rtol=1e-3, atol=1e-5)
    start_weights = zoo.build("lenet", num_classes=5, in_channels=1, seed=0).state_dict()
    assert not torch.allclose(first["0.conv1.weight"], start_weights["conv1.weight"], atol=1e-3)


def test_a_batch_that_cannot_be_shared_out_is_refused(digits, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RequestError, match="batch_size is 25; with 2 processes it must be a multiple of 2"):
        go(digits, None)
