"""Change a folder as a careful stranger would, and see it refused."""

import hashlib
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import brickwork
from brickwork.errors import BadFile


def same(a, b):
    left, right = a.state_dict(), b.state_dict()
    return list(left) == list(right) and all(torch.equal(left[k], right[k]) for k in left)


def edit_config(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def edit_tensors(folder, change):
    """Change the tensors and make the recorded hash agree, as a careful stranger would."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    edit_config(folder, lambda c: c["weights"].update(sha256=digest))


def refused(folder, message, **options):
    with pytest.raises(BadFile, match=message) as caught:
        brickwork.load(folder, **options)
    assert "\n" not in str(caught.value)
