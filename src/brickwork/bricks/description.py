"""A network that was put together from bricks, in data and in words."""

from __future__ import annotations

from typing import Any

from torch import nn

from brickwork.origin import origin_of
from brickwork.zoo.summary import parameters_of


def description(model: nn.Module) -> dict[str, Any]:
    """What a report says of a network that was put together."""
    origin = origin_of(model)
    facts = origin.provenance["assemble"]
    return {
        "classes": list(origin.classes or ()),
        "parts": len(facts["bricks"]),
        "how": origin.steps[0]["how"] if len(facts["bricks"]) > 1 else "alone",
        "united": facts["united"],
        "calibrate": facts["calibrate"],
        "parameters": parameters_of(model),
    }


def summary_of(report: dict[str, Any]) -> str:
    """The same for people."""
    ways = {"alone": "as one part", "blocks": "joined as blocks", "branches": "joined as branches"}
    united = f" ({report['united'] + 1} of one network united)" if report["united"] else ""
    return (
        f"{ways[report['how']]}{united}, calibrated by {report['calibrate']}: {report['parameters']:,} parameters, "
        f"classes {', '.join(report['classes'])}"
    ).replace(", calibrated by none", "")
