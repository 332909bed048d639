"""Networks to work on: the papers' own small ones, and other people's by prefix.

>>> from brickwork import zoo
>>> model = zoo.build("lenet", num_classes=5, seed=0)
>>> model(zoo.example_input(model)).shape
torch.Size([2, 5])
"""

from brickwork.zoo.build import PREFIXES, build, example_input, input_shape, names, needs_import
from brickwork.zoo.registry import REGISTRY, Architecture, architecture

__all__ = [
    "PREFIXES",
    "REGISTRY",
    "Architecture",
    "architecture",
    "build",
    "example_input",
    "input_shape",
    "names",
    "needs_import",
]
