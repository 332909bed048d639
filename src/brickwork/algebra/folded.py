"""Networks of a plane with their batch norms folded into the layers before them: fewer passes over the activations.

The same answers up to rounding. A network that cannot be recorded is taken as it is, and batch norms that use the batch at
hand stay where they are.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from brickwork.algebra.plane import Cell, Plane
from brickwork.blueprint.record import Graph, record
from brickwork.copying import copy_module
from brickwork.errors import BrickworkError
from brickwork.moments.batch_norm import norm_behind, only_normalises, without_statistics


class Folded:
    """`model`: the structure without the folded norms; `state(cells)`: its tensors in these cells, (cells, …) each.

    macs, largest: multiply-adds, and numbers in the largest activation, for one image; None if it cannot be recorded.
    """

    def __init__(self, plane: Plane, example: Tensor, *, batch: bool = False) -> None:
        self.plane = plane
        whole = without_statistics(plane.model) if batch else plane.model
        self.model = copy_module(whole)
        self.norms: dict[str, str] = {}
        self.graph: Graph | None = None
        self.macs: int | None = None
        self.largest: int | None = None
        try:
            self.norms = {} if batch else _foldable(record(whole, example), whole)
            self._fold()
            self.graph = record(self.model, example)
        except BrickworkError:  # its forward depends on values, say: nothing is known but how to call it
            self.model, self.norms = copy_module(whole), {}
            return
        self.macs, self.largest = _costs(self.graph)

    def _fold(self) -> None:
        for layer, norm in self.norms.items():
            module = self.model.get_submodule(layer)
            assert isinstance(module, nn.Linear | _ConvNd)
            if module.bias is None:
                module.bias = nn.Parameter(module.weight.new_zeros(module.weight.shape[0]))
            self.model.set_submodule(norm, nn.Identity())

    def state(self, cells: Sequence[Cell]) -> dict[str, Tensor]:
        """Every floating parameter and buffer of `model`, (cells, …), in float32 or wider."""
        result = {
            name: self.plane.at(name, cells)
            for name, value in self.model.state_dict().items()
            if value.is_floating_point() and name in self.plane.kept
        }
        for layer, norm in self.norms.items():
            scale, shift = self._affine(norm, cells)
            weight, bias = result[f"{layer}.weight"], result.get(f"{layer}.bias")
            result[f"{layer}.weight"] = weight * scale.reshape(*scale.shape, *[1] * (weight.dim() - 2))
            result[f"{layer}.bias"] = shift if bias is None else bias * scale + shift
        return result

    def _affine(self, norm: str, cells: Sequence[Cell]) -> tuple[Tensor, Tensor]:
        """What a batch norm does to its channels in these cells: y = scale · x + shift, (cells, channels) each."""
        module = self.plane.model.get_submodule(norm)
        assert isinstance(module, _BatchNorm)
        scale = (self.plane.at(f"{norm}.running_var", cells) + module.eps).rsqrt()
        if module.affine:
            scale = scale * self.plane.at(f"{norm}.weight", cells)
        shift = -self.plane.at(f"{norm}.running_mean", cells) * scale
        return scale, shift + self.plane.at(f"{norm}.bias", cells) if module.affine else shift


def _foldable(graph: Graph, model: nn.Module) -> dict[str, str]:
    return {
        layer: op.module
        for layer, op in norm_behind(graph, model).items()
        if only_normalises(graph, op) and not getattr(model.get_submodule(layer), "transposed", False)
    }


def _costs(graph: Graph) -> tuple[int, int]:
    batch = max(1, graph.inputs[0].shape[0])
    macs, largest = 0, 1
    for op in graph.live():
        sizes = [torch.Size(out.shape).numel() for out in op.outputs if out is not None]
        largest = max(largest, *sizes, 1)
        weight = next((v for v in op.inputs() if v.name is not None and len(v.shape) > 1), None)
        if weight is not None and sizes:
            macs += sizes[0] * torch.Size(weight.shape[1:]).numel()
    return macs // batch, largest // batch
