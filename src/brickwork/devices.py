"""Which device a computation runs on."""

from __future__ import annotations

import torch

from brickwork.errors import RequestError


def pick(device: str | torch.device | None = "auto") -> torch.device:
    """'auto' (a GPU if there is one), 'cpu', 'cuda', 'cuda:1' or 'mps', checked to be usable.

    >>> pick("cpu")
    device(type='cpu')
    """
    if device in (None, "auto"):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(str(device))
        if found.type not in ("cpu", "cuda", "mps"):  # meta computes nothing; others nobody has tried
            raise RuntimeError
    except RuntimeError:
        raise RequestError(f"`device` is {str(device)!r}; it must be auto, cpu, cuda, cuda:N or mps.") from None
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise RequestError(f"device {found} is not there ({torch.cuda.device_count()} CUDA devices); use `device` cpu.")
    if found.type == "mps" and not torch.backends.mps.is_available():
        raise RequestError("device mps is not there; use `device` cpu.")
    return found


def describe(device: str | torch.device | None = "auto") -> dict[str, str]:
    """The machine a measurement was made on, for the row it is written into."""
    where = pick(device)
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else where.type
    return {"hardware": name, "torch": torch.__version__}
