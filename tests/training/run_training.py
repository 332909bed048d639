"""Trains lenet on a few digits and writes the weights: run by the tests in a process of its own.

python run_training.py WEIGHTS OPTIONS        (options of train, and dropout, as JSON)
"""

from __future__ import annotations

import json
import os
import sys

import torch
from safetensors.torch import save_file

from brickwork import data, zoo
from brickwork.training import train

if __name__ == "__main__":
    weights, options = sys.argv[1], json.loads(sys.argv[2])
    torch.set_num_threads(1)
    digits = data.load("digits:A@40", size=8, channels=1)
    lenet = zoo.build("lenet", num_classes=5, in_channels=1, seed=0)
    model = torch.nn.Sequential(lenet, torch.nn.Dropout(options.pop("dropout")))
    common = {"batch_size": 20, "augment": "crop+flip", "seed": 7, "device": "cpu"}
    result = train(model, digits.train_images, digits.train_labels, **common, **options)
    save_file(dict(model.state_dict()), f"{weights}.{os.environ.get('RANK', '0')}")
    print(f"resumed at {result.resumed_at}")
