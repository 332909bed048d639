"""Which device a computation runs on, and where tensors lie in its memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from brickwork.errors import RequestError

DeviceLike = str | torch.device  # what a caller may name one by
ALIGNMENT = 64  # bytes: of every tensor that torch allocates on a CPU


def device_of(model: nn.Module) -> torch.device:
    """Where the model's first parameter or buffer is; the CPU for one that has neither."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


def number_of(model: nn.Module) -> Tensor:
    """A parameter where and in the precision that a model computes: its first one of real numbers, else its first one.

    >>> net = nn.Sequential(nn.Linear(2, 3))
    >>> net[0].phase = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    >>> number_of(net).dtype
    torch.float32
    """
    every = list(model.parameters())
    return next((values for values in every if values.is_floating_point()), every[0])


def pick(device: DeviceLike | None = None, of: nn.Module | None = None) -> torch.device:
    """'auto' (a GPU if there is one), 'cpu', 'cuda', 'cuda:1' or 'mps', checked to be usable.

    The default of every Python function, None, is where the model is (`of`); where there is no model, it is 'auto', as on
    the command line.

    >>> pick("cpu")
    device(type='cpu')
    """
    if device is None and of is not None:
        return device_of(of)
    if device in (None, "auto"):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        result = torch.device(str(device))
        if result.type not in ("cpu", "cuda", "mps"):  # meta computes nothing; others nobody has tried
            raise RuntimeError
    except RuntimeError:
        raise RequestError(f"`device` is {str(device)!r}; it must be auto, cpu, cuda, cuda:N or mps.") from None
    if result.type == "cuda" and (result.index or 0) >= torch.cuda.device_count():
        raise RequestError(f"device {result} is not there ({torch.cuda.device_count()} CUDA devices); use cpu.")
    if result.type == "mps" and not torch.backends.mps.is_available():
        raise RequestError("device mps is not there; use cpu.")
    return result


@contextmanager
def without_tf32() -> Iterator[None]:
    """Products and convolutions of float32 on a GPU in float32, whatever the caller has set."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def describe(device: DeviceLike | None = None) -> dict[str, str]:
    """The machine a measurement was made on, for the row it is written into."""
    where = pick(device)
    name = torch.cuda.get_device_name(where) if where.type == "cuda" else where.type
    return {"hardware": name, "torch": torch.__version__}


def aligned(value: torch.Tensor) -> torch.Tensor:
    """The same values where torch itself would have put them, at a multiple of 64 bytes.

    A file's tensors lie at any address, and the products of some CPUs' libraries differ in their last bits with it: a
    network that comes back from a file would not answer as the one that was saved.
    """
    return value.clone() if value.device.type == "cpu" and value.data_ptr() % ALIGNMENT else value
