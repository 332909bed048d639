"""Tensors to and from files: safetensors, and `.pth` without running what is in it."""

from __future__ import annotations

import errno
import json
import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

from brickwork.errors import BadFile, BadModel
from brickwork.store.config import hash_tensors
from brickwork.tensor_file import TORCH_NAMES, Header, read_arrays, read_header, seal, unsealed

State = dict[str, torch.Tensor]


def state_of(model: nn.Module) -> State:
    """The model's own tensors, detached; BadModel for what cannot be written as a tensor."""
    state: State = {}
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise BadModel(f"{name} is a {type(value).__name__}; a model folder holds tensors only.")
        if nn.parameter.is_lazy(value):
            raise BadModel(f"{name} has no shape yet (a lazy module); run the model once before saving.")
        if value.is_meta:
            raise BadModel(f"{name} is on the meta device and has no values.")
        if value.layout != torch.strided or value.is_quantized:
            raise BadModel(f"{name} is sparse or quantized; a model folder holds dense tensors only.")
        state[name] = value.detach()
    return state


def put_state(model: nn.Module, state: Mapping[str, torch.Tensor], *, assign: bool = False) -> None:
    """Give a model all of its tensors. They count as of the version of its layers: some refuse those of no version.

    assign: the tensors themselves, not copies of them.
    """
    versions = model.state_dict()
    versions.clear()
    versions.update(state)
    model.load_state_dict(versions, strict=True, assign=assign)


def tied_names(state: State) -> dict[str, str]:
    """Every name whose tensor is the very same memory as an earlier one's, with that earlier name."""
    seen: dict[tuple[Any, ...], str] = {}
    tied = {}
    for name, value in state.items():
        if value.numel() == 0:
            continue
        key = (value.device, value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
        if key in seen:
            tied[name] = seen[key]
        else:
            seen[key] = name
    return tied


def check_finite(state: Mapping[str, torch.Tensor], where: str) -> None:
    """Refuse NaN and infinity, by tensor name and number."""
    for name, value in state.items():
        # A sum is NaN or infinite whenever an entry is; look closer only then (a sum can also overflow).
        if value.is_floating_point() and not torch.isfinite(value.float().sum()):
            bad = int((~torch.isfinite(value.float() if value.itemsize == 1 else value)).sum())
            if bad:
                raise BadModel(
                    f"{where}: {name} has {bad} of {value.numel()} values that are NaN or infinite; "
                    "pass allow_nonfinite=True if that is wanted."
                )


def state_hash(model: nn.Module | Mapping[str, torch.Tensor]) -> str:
    """sha256 over names, dtypes, shapes and bytes of a model's tensors, in the order of the names.

    >>> a, b = {"w": torch.zeros(2), "b": torch.ones(1)}, {"b": torch.ones(1), "w": torch.zeros(2)}
    >>> state_hash(a) == state_hash(b)
    True
    """
    state = model.state_dict() if isinstance(model, nn.Module) else model

    def content(value: torch.Tensor) -> Any:
        flat = value.detach().cpu().contiguous().reshape(-1)
        return flat.view(torch.uint8).numpy() if flat.numel() else b""

    return hash_tensors((n, _dtype(state[n]), state[n].shape, content(state[n])) for n in sorted(state))


def write_safetensors(state: State, path: Path, metadata: dict[str, str], *, sealed: bool = False) -> None:
    """Write the tensors, the same bytes for the same values; a full disk is an OSError whoever reports it.

    sealed: with the file's own sha256 in its header, for a file that has no config.json beside it to record it.
    """
    try:
        metadata = unsealed(metadata) if sealed else metadata
        save_file({k: v.cpu().contiguous() for k, v in state.items()}, path, metadata)
        _sort_metadata(path)
        if sealed:
            seal(path)
    except SafetensorError as error:
        result = re.search(r"os error (\d+)", str(error))
        if result is None:
            raise
        raise OSError(int(result.group(1)) or errno.EIO, str(error)) from error


def _sort_metadata(path: Path) -> None:
    """The library writes metadata in an order of its own in every run; sorted, the header has the same length."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        if len(header.get("__metadata__", {})) < 2:
            return
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= length:
            file.seek(8)
            file.write(text.ljust(length))


def read_safetensors(path: Path, sha256: str | None = None) -> State:
    """All tensors of a file; one BadFile for one that is cut short, damaged, or not the one of this hash."""
    return tensors_of(read_header(path), sha256)


def tensors_of(header: Header, sha256: str | None = None) -> State:
    """All tensors behind a header that was read, each where torch would have put it (see `devices.aligned`)."""
    result = {}
    for entry, content in read_arrays(header, sha256, lambda size: torch.empty(size, dtype=torch.uint8).numpy()):
        kind = getattr(torch, TORCH_NAMES[entry.kind])
        values = (
            torch.from_numpy(content).view(kind) if len(content) else torch.empty(0, dtype=kind)
        )  # numpy's has no steps
        result[entry.name] = values.reshape(entry.shape)
    return {name: result[name] for name in sorted(result)}


#: endings of what torch.save wrote; of `model_best.pth.tar`, too, as the examples of PyTorch call it
SAVED = (".pth", ".pt", ".bin", ".ckpt", ".th", ".tar")
HOLDERS = ("state_dict", "model_state_dict", "model")  # entries under which training scripts write the weights


def load_weights(path: str | Path, *, key: str | None = None) -> State:
    """The tensors of a `.safetensors` file, or of one of torch.save (`.pth`, `.pt`, …), on the CPU; no code in it is run.

    A `.pth` may hold the tensors directly or under "state_dict", "model_state_dict" or "model", as training scripts write
    them, or under another `key`.
    """
    path = Path(path)
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    if path.suffix not in SAVED:
        raise BadFile(
            f"{path}: weights come as .safetensors, {', '.join(SAVED[:-1])} or {SAVED[-1]}, not {path.suffix!r}."
        )
    if not path.is_file():
        raise BadFile(f"{path} does not exist.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a broken file makes torch warn of is said once, below
            data = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        wanted = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = f"it asks for {wanted.group(1)}" if wanted else "it is not a plain pickle of tensors"
        raise BadFile(
            f"{path} was not loaded: {what}. Brickwork reads tensors and runs no code from a file; "
            "save the weights alone with torch.save(model.state_dict(), ...)."
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError, TypeError, IndexError) as error:
        why = (str(error) or "it ends too early").splitlines()[0]
        raise BadFile(f"{path} is damaged or cut short: {why}.") from error
    if key is not None:
        if not isinstance(data, Mapping) or not isinstance(data.get(key), Mapping):
            held = [str(k) for k, v in data.items() if isinstance(v, Mapping)] if isinstance(data, Mapping) else []
            raise BadFile(f"{path} has no table of tensors called {key!r}; it has {', '.join(held) or 'none'}.")
        data = data[key]
    return _tensors_in(data, path)


def _tensors_in(data: Any, path: Path) -> State:
    for key in HOLDERS:
        if isinstance(data, Mapping) and isinstance(data.get(key), Mapping):
            data = data[key]
    if not isinstance(data, Mapping):
        raise BadFile(f"{path} holds a {type(data).__name__}, not a dictionary of tensors.")
    for name, value in data.items():
        if not (isinstance(name, str) and isinstance(value, torch.Tensor)):
            tables = [str(k) for k, v in data.items() if isinstance(v, Mapping)]
            hint = f" If the weights are in {' or '.join(tables[:5])}, give that as `key`." if tables else ""
            raise BadFile(f"{path}: {name!r} is a {type(value).__name__}, not a tensor.{hint}")
    return dict(data)


def describe(state: Mapping[str, torch.Tensor]) -> dict[str, dict[str, Any]]:
    """dtype and shape of every tensor, as config.json lists them."""
    return {name: {"dtype": _dtype(value), "shape": list(value.shape)} for name, value in state.items()}


def _dtype(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
