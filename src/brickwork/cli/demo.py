"""`brickwork demo`: the shortest true story, from data to model folders and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from brickwork.cli.common import (
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    SeedOption,
    emit,
    log,
    table,
)

RESULT = "demo.json"  # its presence tells --force that the folder is a demo's


def command(
    out: Annotated[Path, typer.Option("--out", help="Folder for the two model folders.")] = Path("demo"),
    epochs: Annotated[int | None, typer.Option("--epochs", min=1, help="Default: the recipe's.")] = None,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Train two small networks on the halves of the embedded digits, evaluate, save, reload: a table."""
    import json

    from brickwork.atomic import check_output, write_folder
    from brickwork.devices import pick

    where = pick(str(device))
    check_output(out, force=force, owns=(RESULT,))
    with write_folder(out, force=force, owns=(RESULT,)) as folder:
        rows = []
        for half in ("A", "B"):
            log(f"training lenet on digits:{half} …")
            rows.append(_half(half, folder / half.lower(), out / half.lower(), epochs, seed, where))
        result = {"name": "demo", "seed": seed, "device": str(where), "rows": rows}
        (folder / RESULT).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    headers = ["folder", "classes", "parameters", "epochs", "seconds", "test accuracy", "after reload"]
    lines = [
        (
            row["folder"],
            ",".join(row["classes"]),
            row["parameters"],
            row["epochs"],
            f"{row['seconds']:.1f}",
            f"{row['accuracy']:.1%}",
            "the same logits" if row["reloaded_equal"] else "DIFFERENT logits",
        )
        for row in rows
    ]
    first = rows[0]["folder"]
    emit(
        result,
        f"{table(headers, lines)}\nNext: brickwork info {first}; brickwork eval {first} digits:A",
        as_json=as_json,
    )


def _half(half: str, folder: Path, final: Path, epochs: int | None, seed: int, device: Any) -> dict[str, Any]:
    """Train, evaluate, save and reload one network; one row of the table."""
    import torch

    from brickwork import data, store, zoo
    from brickwork.evaluation import evaluate, predict
    from brickwork.training import train

    spec = f"digits:{half}"
    digits = data.load(spec)
    model = zoo.build("lenet", num_classes=len(digits.classes), seed=seed)
    result = train(
        model,
        digits.train_images,
        digits.train_labels,
        epochs=epochs,
        seed=seed,
        classes=digits.classes,
        device=device,
    )
    found = evaluate(model, digits.test_images, digits.test_labels)
    store.save(
        model,
        folder,
        provenance={"command": "demo", "data": spec, "seed": seed, "test_accuracy": found.accuracy},
    )
    again = store.load(folder, device=device)
    equal = torch.equal(predict(model, digits.test_images), predict(again, digits.test_images))
    return {
        "folder": str(final),
        "arch": "lenet",
        "data": spec,
        "classes": list(digits.classes),
        "parameters": sum(p.numel() for p in model.parameters()),
        "epochs": len(result.history),
        "seconds": round(result.seconds, 2),
        "accuracy": found.accuracy,
        "test_images": found.images,
        "reloaded_equal": equal,
    }
