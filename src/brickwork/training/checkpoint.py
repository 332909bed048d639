"""A training run on disk after each epoch: one safetensors file, replaced in one step, never a pickle.

Random numbers need no place in it: those of an epoch depend on the seed and the epoch's number alone.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brickwork.atomic import write_file
from brickwork.data.streamed import BATCH, StreamedImages, tensor_of
from brickwork.errors import BadFile, RequestError
from brickwork.store.weights import put_state, tensors_of, write_safetensors
from brickwork.tensor_file import SEAL, Header, read_header, warn_unverified
from brickwork.training.options import CHECKPOINT as FILE


def save(
    folder: str | os.PathLike[str], model: nn.Module, optimizer: torch.optim.Optimizer, facts: dict[str, Any]
) -> None:
    """Write weights, optimizer state and facts (JSON values) so that the run can go on exactly."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    state = optimizer.state_dict()
    plain: dict[str, dict[str, Any]] = {}
    for index, entries in state["state"].items():
        for key, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{key}"] = value
            else:
                plain.setdefault(str(index), {})[key] = value
    # cloned: tied weights share memory, which safetensors refuses to write twice
    owned = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with write_file(Path(folder) / FILE) as draft:
        notes = {"facts": json.dumps(facts), "optimizer": json.dumps(plain)}
        write_safetensors(owned, draft, notes, sealed=True)


def read_facts(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What the checkpoint of a folder says of its run; None where there is none."""
    path = Path(folder) / FILE
    if not path.exists():
        return None
    metadata = _open(path).metadata
    if "facts" not in metadata:
        raise BadFile(f"{path} is not a checkpoint of a training run; choose another folder.")
    return _read(path, metadata["facts"])


def restore(folder: str | os.PathLike[str], model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Put weights and optimizer state back, in place."""
    path = Path(folder) / FILE
    header = _open(path)
    tensors = tensors_of(header)
    if SEAL not in header.metadata:
        warn_unverified(path)
    plain = _read(path, header.metadata.get("optimizer", ""))
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    try:
        put_state(model, weights)
    except RuntimeError as error:
        raise BadFile(f"{path} belongs to another model: {error}") from error
    entries: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in plain.items()}
    for name, tensor in tensors.items():
        kind, index, key = (*name.split(".", 2), "")[:3]
        if kind == "optimizer":
            entries.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})
    for parameter, values in optimizer.state.items():
        for key, value in values.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                # same memory order as the weights, or fused updates fall back to slow ones
                values[key] = torch.empty_like(parameter).copy_(value)


def refuse_other_run(folder: str | os.PathLike[str], found: dict[str, Any], asked: dict[str, Any]) -> None:
    """A checkpoint is gone on with only by the same settings on the same data."""
    different = [
        f"{key} {found['settings'].get(key)!r} there, {value!r} asked"
        for key, value in asked["settings"].items()
        if found["settings"].get(key) != value
    ]
    if found["data"] != asked["data"]:
        different.append("other training images")
    if different:
        raise RequestError(
            f"{folder} holds the checkpoint of another run ({'; '.join(different)}); choose another "
            "checkpoint folder, or start over without `resume`."
        )


def fingerprint(*arrays: Tensor | StreamedImages | None) -> str:
    """A hash of the training data."""
    digest = hashlib.sha256()
    for array in arrays:
        if array is not None:
            digest.update(f"{tuple(array.shape)} torch.{str(array.dtype).removeprefix('torch.')}".encode())
            for start in range(0, len(array), BATCH):
                digest.update(tensor_of(array[start : start + BATCH]).detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def _open(path: Path) -> Header:
    try:
        return read_header(path)
    except BadFile as error:
        raise BadFile(
            f"{path} cannot be read as a checkpoint: {str(error).rstrip('.')}; delete it to start over."
        ) from error


def _read(path: Path, text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise BadFile(f"{path} is damaged ({error}); delete it to start over.") from error
