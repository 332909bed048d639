"""How fast and how well Brickwork trains on one GPU: images per second, test accuracy, seconds in all.

    BRICKWORK_DATA=FOLDER python -m brickwork_lab.train_gpu                 vgg16 and resnet8 on cifar10
    python -m brickwork_lab.train_gpu vgg16 --epochs 10 --compile --lr 0.2  one network, other settings
    python -m brickwork_lab.train_gpu resnet8 --data digits --epochs 2      a trial run anywhere

The target on one H200: vgg16 at 60,000 images/s or more and 93 % within a minute; resnet8 92 %. "seconds"
counts everything from the loaded arrays to the trained model: copying, kernel tuning, compiling, training.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import torch

from brickwork import data, zoo
from brickwork.devices import pick
from brickwork.evaluation import evaluate_data
from brickwork.training import settings_for, train

#: settings of the training that may be given instead of the architecture's own
SETTINGS: dict[str, Any] = {"epochs": int, "batch_size": int, "lr": float, "weight_decay": float}
SETTINGS |= {"label_smoothing": float, "precision": str}


def measure(arch: str, images: data.ImageData, seed: int, options: dict[str, Any], compile: bool) -> dict[str, Any]:
    """Train once and return a row."""
    device = pick("auto")
    model = zoo.build(arch, num_classes=len(images.classes), seed=seed)
    settings = settings_for(arch, len(images.train_labels), data.parse(images.name).source, seed=seed, **options)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    began = time.perf_counter()
    given: dict[str, Any] = {"classes": images.classes, "device": device, "compile": compile, **settings.to_dict()}
    result = train(model, images.train_images, images.train_labels, **given)
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    on_gpu = device.type == "cuda"
    return {
        "arch": arch,
        "data": images.name,
        "accuracy": round(evaluate_data(model, images).accuracy, 4),
        "images_per_second": round(result.images_per_second),
        "first_epoch_s": round(result.history[0]["seconds"], 2),
        "seconds": round(seconds, 2),
        "epochs": settings.epochs,
        "batch_size": settings.batch_size,
        "lr": settings.lr,
        "compile": compile,
        "seed": seed,
        "peak_mb": round(torch.cuda.max_memory_allocated() / 2**20) if on_gpu else None,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archs", nargs="*", default=["vgg16", "resnet8"])
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from 0")
    parser.add_argument("--compile", action="store_true")
    for name, kind in SETTINGS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind)
    given = parser.parse_args()
    options = {name: getattr(given, name) for name in SETTINGS}
    rows = []
    for arch in given.archs:
        channels, height, width = zoo.input_shape(arch)
        images = data.load(given.data, size=(height, width), channels=channels)
        for seed in range(given.seeds):
            rows.append(measure(arch, images, seed, options, given.compile))
            print(rows[-1], file=sys.stderr, flush=True)
    print(json.dumps({"name": "train_gpu", "rows": rows}))


if __name__ == "__main__":
    main()
