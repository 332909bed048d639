"""Merging three files, against mergekit (in a virtual environment of its own) and against `cp` of two of them.

The files are made here: the shapes of a small language model, float32, in folders that mergekit accepts. Imports count:
both are commands that a user types. Ours runs as `brickwork merge`, the peer as `mergekit-yaml`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from brickwork.algebra.files import SINGLE, Tensors, Writer
from brickwork.errors import JobFailed, RequestError
from brickwork.progress import bar
from brickwork_lab.benchmarks.measure import Row, medians, memory
from brickwork_lab.benchmarks.registry import Contest, Outcome, benchmark

OURS, PEER, COPY = "brickwork", "mergekit", "cp"
Run = tuple[str, str]  # method, who
METHODS = {"linear": {}, "ties": {"density": 0.2}}


@benchmark("merge", help="Merge three files, against mergekit and against cp.", common=("repeat",))
def merge(contest: Contest, *, layers: int = 12, width: int = 768, words: int = 50257, peer: str = "") -> Outcome:
    """peer: the bin folder of a virtual environment with mergekit; without, ours and cp alone."""
    repeat = contest.repeat
    command = Path(peer) / "mergekit-yaml"
    if peer and not command.exists():
        raise RequestError(f"there is no {command}; pip install mergekit into a virtual environment of its own")
    with tempfile.TemporaryDirectory(prefix="brickwork-merge-") as scratch:
        folder = Path(scratch)
        for number, name in enumerate(("zero", "a", "b")):
            _write(folder / name, layers, width, words, number)
        size = (folder / "a" / SINGLE).stat().st_size / 2**20
        merged: dict[Run, dict[str, np.ndarray]] = {}
        runs = [(m, who) for m in METHODS for who in ((OURS, PEER) if peer else (OURS,))] + [("copy", COPY)]
        with bar("merge", repeat * len(runs)) as advance:
            costs: dict[Run, list[dict[str, float]]] = {run: [] for run in runs}
            for _ in range(repeat):
                for run in runs:
                    costs[run].append(_cost(_command(run, folder, command), folder / "out", merged, run))
                    advance(1, " ".join(run))
    rows = [
        {"who": who, "method": method, **medians(some, 3), "file_mb": round(size, 1), "runs": repeat}
        for (method, who), some in costs.items()
    ]
    return Outcome(rows, _ratios(rows), {"agreement": _agreement(merged)})


def _command(run: Run, folder: Path, peer: Path) -> list[str]:
    method, who = run
    out, names = str(folder / "out"), ("zero", "a", "b") if method == "linear" else ("a", "b")
    if who == COPY:
        return ["cp", "-r", str(folder / "a"), str(folder / "b"), out]
    if who == OURS:
        base = ["--base", str(folder / "zero")] if method != "linear" else []
        options = [f"--arg={k}={v}" for k, v in METHODS[method].items()]
        options += ["--arg=trim=tensor"] if method == "ties" else []  # what mergekit does
        models = [str(folder / n) for n in names]
        return [sys.executable, "-m", "brickwork", "merge", *models, "--method", method, *base, *options, "--out", out]
    parts = [{"model": str(folder / n), "parameters": {"weight": 1.0, **METHODS[method]}} for n in names]
    config: dict[str, Any] = {"merge_method": method, "models": parts, "dtype": "float32"}
    if method != "linear":
        config["base_model"] = str(folder / "zero")
    (folder / "peer.yaml").write_text(json.dumps(config))
    return [str(peer), str(folder / "peer.yaml"), out, "--no-copy-tokenizer", "--no-write-model-card", "--quiet"]


def _cost(command: list[str], out: Path, merged: dict[Run, dict[str, np.ndarray]], run: Run) -> dict[str, float]:
    shutil.rmtree(out, ignore_errors=True)
    if run[1] != OURS:
        out.mkdir()
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    began = time.perf_counter()
    peak = 0.0
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=errors)
        # The system's own maximum starts at what this process held when it forked, so the new image is asked itself.
        while True:
            peak = max(peak, memory("VmHWM", process.pid))
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            time.sleep(0.005)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        last = (errors.read().decode(errors="replace").strip().splitlines() or ["no message"])[-1]
    if process.returncode:
        raise JobFailed(f"{command[0]} failed: {last}")
    wall = time.perf_counter() - began
    if run[1] != COPY and run not in merged:
        tensors = Tensors(out)
        merged[run] = {name: tensors[name].ravel()[:1000].copy() for name in tensors}  # some of each, to compare
    return {"cpu_s": usage.ru_utime + usage.ru_stime, "wall_s": wall, "peak_mb": peak}


def _agreement(merged: dict[Run, dict[str, np.ndarray]]) -> list[Row]:
    rows = []
    for method in METHODS:
        if (method, OURS) in merged and (method, PEER) in merged:
            ours, theirs = merged[method, OURS], merged[method, PEER]
            both = [(ours[n], theirs[n]) for n in ours if n in theirs]
            off = sum(int((np.abs(a - b) > 1e-5).sum()) for a, b in both)
            share = off / sum(a.size for a, _ in both)
            rows.append({"method": method, "tensors": len(both), "share_that_differs": share})
    return rows


def _ratios(rows: list[Row]) -> dict[str, float]:
    by = {(r["method"], r["who"]): r for r in rows}
    ratios = {}
    for method in METHODS:
        mine = by[method, OURS]
        if (method, PEER) in by:
            for column in ("cpu_s", "peak_mb"):
                ratios[f"{method}: {PEER} / {OURS}: {column}"] = round(by[method, PEER][column] / mine[column], 3)
        ratios[f"{method}: {OURS} / {COPY}: cpu_s"] = round(mine["cpu_s"] / max(by["copy", COPY]["cpu_s"], 1e-3), 3)
    return ratios


def _write(folder: Path, layers: int, width: int, words: int, seed: int) -> None:
    """A GPT-2-like set of tensors, with the config that mergekit wants."""
    folder.mkdir()
    config: dict[str, Any] = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_positions": 1024}
    config |= {"n_layer": layers, "n_embd": width, "n_head": max(1, width // 64), "vocab_size": words}
    (folder / "config.json").write_text(json.dumps(config))
    layer: dict[str, tuple[int, ...]] = {"attn.c_attn": (width, 3 * width), "attn.c_proj": (width, width)}
    layer |= {"mlp.c_fc": (width, 4 * width), "mlp.c_proj": (4 * width, width), "ln_1": (width,), "ln_2": (width,)}
    parts = {f"h.{k}.{part}": shape for k in range(layers) for part, shape in layer.items()} | {"ln_f": (width,)}
    shapes: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (words, width),
        "transformer.wpe.weight": (1024, width),
    }
    for part, shape in parts.items():
        shapes |= {f"transformer.{part}.weight": shape, f"transformer.{part}.bias": shape[-1:]}
    rng = np.random.default_rng(seed)
    with open(folder / SINGLE, "wb") as file:
        writer = Writer(file, [(n, "F32", s) for n, s in shapes.items()], {"format": "pt"})
        for name, shape in shapes.items():
            writer.put(name, rng.standard_normal(shape, np.float32))
