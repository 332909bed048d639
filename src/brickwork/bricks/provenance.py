"""What a changed network says of itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from brickwork.origin import attach, origin_of


def record_step(model: nn.Module, what: str, facts: dict[str, Any]) -> nn.Module:
    """The model with a record of what was done to it; what was said of it before (its accuracy, say) moves aside."""
    origin = origin_of(model)
    before = {"before": origin.provenance} if origin.provenance else {}
    attach(model, replace(origin, provenance={**before, what: facts}))
    return model
