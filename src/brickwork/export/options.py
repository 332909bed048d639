"""The options of handing a network out: `export`."""

from collections.abc import Iterator
from typing import Literal

from brickwork.options import Options, option

ENDINGS = {"onnx": ".onnx", "pt2": ".pt2", "torch": ""}  # of what is written; "": a folder


class ExportOptions(Options):
    """What a network is written as."""

    to: Literal["onnx", "pt2", "torch"] = option(
        help="What is written: onnx, pt2 (a torch.export program) or torch (a folder: a Python file and its weights)."
    )
    dynamic_batch: bool = option(default=False, help="Any number of images at a time, not one; torch always takes any.")
    with_preprocessing: bool = option(
        default=False,
        help="Take raw images, uint8 (N, H, W, C) of the network's size, and scale and normalise them inside.",
    )

    def rules(self) -> Iterator[str]:
        if self.to == "torch":
            yield from self.idle(["dynamic_batch"], "by `to` torch, which takes any number of images anyway")
