"""Import torchvision on a CPU-only torch.

The registry's torchvision is built for CUDA; beside a CPU-only torch its compiled part does not load, and
the import stops at "operator torchvision::nms does not exist". The models are pure Python. Once the two
missing operator schemas are declared, models, transforms and timm work (ops.nms itself does not).
"""

import importlib
import sys
import warnings
from types import ModuleType

import torch

_LIBRARIES: list[torch.library.Library] = []  # a Library takes its schemas along when it is collected

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def import_torchvision() -> ModuleType:
    """torchvision, imported plainly where that works and with declared schemas where it does not."""
    with warnings.catch_warnings():
        # Its image extension, missing for the same reason, announces itself; nobody here decodes with it.
        warnings.filterwarnings("ignore", message="Failed to load image Python extension")
        try:
            return importlib.import_module("torchvision")
        except RuntimeError as error:
            if "torchvision::nms" not in str(error):
                raise
        _forget_half_import()
        if not _LIBRARIES:
            library = torch.library.Library("torchvision", "DEF")
            for schema in _SCHEMAS:
                library.define(schema)
            _LIBRARIES.append(library)
        return importlib.import_module("torchvision")


def _forget_half_import() -> None:
    for name in [n for n in sys.modules if n == "torchvision" or n.startswith("torchvision.")]:
        del sys.modules[name]
