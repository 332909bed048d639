"""Trains lenet on a few digits and writes the weights: run by the tests in a process of its own.

python run_training.py WEIGHTS CHECKPOINT [EPOCHS] [METRICS]
"""

from __future__ import annotations

import os
import sys

import torch
from safetensors.torch import save_file

from brickwork import data, zoo
from brickwork.training import train

if __name__ == "__main__":
    weights, checkpoint = sys.argv[1:3]
    torch.set_num_threads(1)
    digits = data.load("digits:A@40", size=8, channels=1)
    model = torch.nn.Sequential(
        zoo.build("lenet", num_classes=5, in_channels=1, seed=0), torch.nn.Dropout(0.1)
    )
    result = train(
        model,
        digits.train_images,
        digits.train_labels,
        epochs=int(sys.argv[3]) if len(sys.argv) > 3 else 12,
        batch_size=20,
        optimizer="adamw",
        lr=1e-3,
        augment="crop+flip",
        seed=7,
        device="cpu",
        checkpoint=None if checkpoint == "-" else checkpoint,
        metrics=sys.argv[4] if len(sys.argv) > 4 else None,
    )
    rank = os.environ.get("RANK", "0")
    save_file(dict(model.state_dict()), f"{weights}.{rank}")
    print(f"resumed at {result.resumed_at}", [row["loss"] for row in result.history])
