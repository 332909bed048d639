"""The options of handing a network out: `export`."""

from collections.abc import Iterator
from typing import Literal

from brickwork.options import Options, option

ENDINGS = {
    "onnx": ".onnx",
    "pt2": ".pt2",
    "torch": "",
    "transformers": "",
    "timm": "",
}  # of what is written; "": a folder


class ExportOptions(Options):
    """What a network is written as."""

    to: Literal["onnx", "pt2", "torch", "transformers", "timm"] = option(
        help="What is written: onnx, pt2 (a torch.export program), torch (a folder: a Python file and its weights), or the "
        "folder that transformers or timm loads, for their own networks."
    )
    dynamic_batch: bool = option(default=False, help="Any number of images at a time, not one; torch always takes any.")
    with_preprocessing: bool = option(
        default=False,
        help="Take raw images, uint8 (N, H, W, C) of the network's size, and scale and normalise them inside.",
    )

    int8: bool = option(
        default=False, help="Weights and activations in 8 bits, by onnxruntime's quantiser on --data; to onnx only."
    )

    def rules(self) -> Iterator[str]:
        if self.to != "onnx":
            yield from self.idle(["int8"], f"by `to` {self.to}; onnx has it")
        if self.to in ("transformers", "timm"):
            yield from self.idle(
                ["with_preprocessing", "dynamic_batch"], f"by `to` {self.to}, which does as it always does"
            )
        if self.to == "torch":
            yield from self.idle(["dynamic_batch"], "by `to` torch, which takes any number of images anyway")
