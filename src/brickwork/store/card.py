"""The README.md card of a model folder: what a reader of the hub or of the disk wants to know first."""

from __future__ import annotations

import json
from typing import Any

from brickwork.origin import Origin
from brickwork.words import counted, sides

SEGMENTERS = ("fcn8s",)  # the registry knows them, but needs torch; a test compares the two


def card(origin: Origin, weights: dict[str, Any]) -> str:
    """Markdown with the front matter that the Hugging Face hub reads."""
    tensors = weights["tensors"].values()
    numbers = sum(_product(t["shape"]) for t in tensors)
    rows = [
        ("architecture", f"`{origin.arch}`" if origin.arch else "not built by Brickwork; give `arch=` to load"),
        ("arguments", _code(origin.args) if origin.args else ""),
        ("values stored", f"{numbers:,} in {counted(len(weights['tensors']), 'tensor')}"),
        ("input", sides(origin.input_shape or (), "")),
        ("classes", _classes(origin.classes)),
        ("surgery", f"{counted(len(origin.steps), 'step')}, in config.json" if origin.steps else ""),
        ("joined from", counted(len(origin.parts), "part") if origin.parts else ""),
        *((key, _code(value)) for key, value in origin.provenance.items()),
        ("state hash", f"`{weights['state_hash'][:16]}`"),
    ]
    kind = "image-segmentation" if origin.arch in SEGMENTERS else "image-classification"
    task = f"\npipeline_tag: {kind}" if origin.classes else ""
    table = "\n".join(f"| {name} | {value} |" for name, value in rows if value)
    return f"""---
library_name: brickwork{task}
tags:
- brickwork
- pytorch
---

# A Brickwork model

| | |
|---|---|
{table}

```python
import brickwork
model = brickwork.load("this folder")
```
"""


def _code(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    return f"`{text[:300]}{'…' if len(text) > 300 else ''}`"


def _classes(classes: tuple[str, ...] | None) -> str:
    if not classes:
        return ""
    shown = ", ".join(classes[:12]) + (", …" if len(classes) > 12 else "")
    return f"{len(classes)}: {shown}".replace("|", "\\|")


def _product(shape: list[int]) -> int:
    result = 1
    for side in shape:
        result *= side
    return result
