"""Model folders: `model.safetensors`, `config.json`, `README.md`; written atomically, loaded strictly.

>>> import tempfile, brickwork
>>> from brickwork import zoo
>>> folder = tempfile.mkdtemp() + "/lenet"
>>> brickwork.save(zoo.build("lenet", seed=0), folder).name
'lenet'
>>> brickwork.load(folder).brickwork_origin.arch
'lenet'
"""

from brickwork.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
