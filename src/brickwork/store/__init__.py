"""Model folders: `model.safetensors`, `config.json`, `README.md`; written atomically, loaded strictly.

>>> import tempfile, brickwork
>>> from brickwork import zoo
>>> folder = tempfile.mkdtemp() + "/lenet"
>>> brickwork.save(zoo.build("lenet", seed=0), folder).name
'lenet'
>>> brickwork.load(folder).brickwork_origin.arch
'lenet'
"""

from __future__ import annotations

from brickwork.store.config import Config, read_config
from brickwork.store.folder import load, save
from brickwork.store.hub import from_pretrained, push_to_hub
from brickwork.store.weights import load_weights, state_hash

__all__ = ["Config", "from_pretrained", "load", "load_weights", "push_to_hub", "read_config", "save", "state_hash"]
