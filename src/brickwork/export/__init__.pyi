from pathlib import Path
from typing import Any, Literal

from torch.nn.modules.module import Module

from brickwork.export.exporting import Exported
from brickwork.export.options import ExportOptions as ExportOptions

__all__ = ["ExportOptions", "export_model"]

# from brickwork.export.exporting import export_model
def export_model(
    model: Module, out: str | Path, *, to: Literal["onnx", "pt2", "torch", "transformers", "timm"],
    dynamic_batch: bool = False, with_preprocessing: bool = False, int8: bool = False, data: Any = None,
    force: bool = False, output: str | int | None = None, options: ExportOptions | None = None,
) -> Exported: ...
