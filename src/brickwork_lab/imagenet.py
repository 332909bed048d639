"""Logits of two ImageNet networks, where a user has them: one file per network below the folder of data sets."""

from brickwork.data.named import data_folder
from brickwork.dependencies.sources import LogitFile, read_logits
from brickwork.errors import BadFile

NETWORKS = ("efficientnet_lite0", "efficientnet_lite2")
FOLDER = "imagenet_logits"


def logits_of(name: str) -> LogitFile:
    """Logits, labels and class names of one of the two networks on the same images."""
    path = data_folder() / FOLDER / f"{name}.npz"
    if not path.is_file():
        raise BadFile(
            f"the logits of {name} are not at {path}; put {FOLDER}/{name}.npz (logits, labels, classes) into the folder "
            "that $BRICKWORK_DATA names."
        )
    return read_logits(path)
