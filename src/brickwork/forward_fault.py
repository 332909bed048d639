"""What a network's own forward raises, in one sentence with the module and the line."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Iterator

import torch
from torch import nn

from brickwork.errors import BadModel


def forward_fault(error: BaseException) -> str | None:
    """What was raised within a network's forward; None: raised elsewhere.

    It is the network's own code that fails there, or the images do not fit it; neither is a fault of Brickwork.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return None
    frames = list(traceback.walk_tb(error.__traceback__))
    modules = [
        frame.f_locals["self"]
        for frame, _ in frames
        if frame.f_code.co_name == "forward" and isinstance(frame.f_locals.get("self"), nn.Module)
    ]
    if not modules or _ours(type(modules[-1]).__module__):
        return None
    path = next((name for name, module in modules[0].named_modules() if module is modules[-1]), "")
    places = [
        f"{os.path.basename(frame.f_code.co_filename)}:{line}"
        for frame, line in frames
        if frame.f_code.co_name == "forward" and not _library(frame.f_globals.get("__name__", ""))
    ]
    at = f"{path or type(modules[0]).__name__}{f' ({places[-1]})' if places else ''}"
    what = " ".join((str(error).strip() or "no message").splitlines()[0].split())
    return (
        f"the network's forward fails at {at}: {type(error).__name__}: {what.removesuffix('.')}. Mend it there, or give images "
        "of the size and channels that it takes."
    )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """A fault of a network's forward as BadModel; whatever else is raised as it is."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        fault = forward_fault(error)
        if fault is None:
            raise
        raise BadModel(fault) from error


def _ours(module: str) -> bool:
    """Whether a module was defined by Brickwork's own surgery; the architectures of the zoo are networks as others."""
    return module.startswith("brickwork.") and not module.startswith("brickwork.zoo.")


def _library(module: str) -> bool:
    return module.split(".")[0] == "torch" or _ours(module)
