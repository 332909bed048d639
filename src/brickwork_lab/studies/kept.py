"""Networks that studies train once and find again, in a folder that a user may name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brickwork import store


def kept(
    networks: str | None, name: str, where: torch.device, make: Callable[[], nn.Module], **provenance: Any
) -> nn.Module:
    """The network of this name from the folder of networks; else made, and put there (None: nothing is kept)."""
    if networks is None:
        return make()
    folder = Path(networks) / name
    if not (folder / "config.json").exists():
        made = make()
        store.save(made, folder, force=True, provenance=provenance)
        return made
    return store.load(folder, device=where)
