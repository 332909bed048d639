"""The logits in whatever a model returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

from brickwork.errors import BadModel


def logits_of(output: Any) -> Tensor:
    """A tensor itself; `.logits` or `["logits"]`; else the first tensor of a tuple, dict or dataclass.

    >>> import torch
    >>> logits_of((torch.ones(2, 3), "more")).shape
    torch.Size([2, 3])
    >>> logits_of({"aux": torch.zeros(1), "logits": torch.ones(2, 3)}).shape
    torch.Size([2, 3])
    """
    if isinstance(output, Tensor):
        return output
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(named, Tensor):
        return named
    parts: Any = ()
    if isinstance(output, Mapping):
        parts = output.values()
    elif isinstance(output, tuple | list):
        parts = output
    elif is_dataclass(output):
        parts = (getattr(output, field.name) for field in fields(output))
    for part in parts:
        if isinstance(part, Tensor):
            return part
    raise BadModel(f"the model returned {type(output).__name__}, which holds no tensor to read logits from.")
