"""The logits in whatever a model returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

from brickwork.errors import BadModel

NAMES = ("logits", "out")  # what classifiers and torchvision's segmenters call them


def logits_of(output: Any) -> Tensor:
    """A tensor itself; the first one of a tuple; of a dict or dataclass `logits` or `out`, or the only tensor.

    >>> import torch
    >>> logits_of((torch.ones(2, 3), "more")).shape
    torch.Size([2, 3])
    >>> logits_of({"aux": torch.zeros(1), "logits": torch.ones(2, 3)}).shape
    torch.Size([2, 3])
    """
    if isinstance(output, Tensor):
        return output
    for name in NAMES:
        named = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if isinstance(named, Tensor):
            return named
    if isinstance(output, tuple | list):
        for part in output:
            if isinstance(part, Tensor):
                return part
    parts: dict[str, Any] = {}
    if isinstance(output, Mapping):
        parts = dict(output)
    elif is_dataclass(output):
        parts = {field.name: getattr(output, field.name) for field in fields(output)}
    tensors = {name: part for name, part in parts.items() if isinstance(part, Tensor)}
    if len(tensors) > 1:
        raise BadModel(
            f"the model returns several tensors ({', '.join(map(repr, tensors))}) and none is called 'logits'; let its "
            "forward return the logits alone, or under that name."
        )
    for part in tensors.values():
        return part
    raise BadModel(f"the model returned {type(output).__name__}, which holds no tensor to read logits from.")
