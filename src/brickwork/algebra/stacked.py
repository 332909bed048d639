"""Many networks of one architecture in one pass: their channels side by side, each network a group of them.

Convolutions become grouped ones, linear layers batched products; whatever works on channels one by one (activations,
pooling, sums) runs as it is. That this holds for a network is proven on a few images before it is relied on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from brickwork.blueprint.record import Graph
from brickwork.blueprint.walk import rule_name
from brickwork.copying import copy_module
from brickwork.devices import without_tf32
from brickwork.moments.batch_norm import batch_sums, pooled_statistics
from brickwork.moments.layers import find_layers
from brickwork.outputs import logits_of

State = Mapping[str, Tensor]


class Stack:
    """`load` the tensors of some networks, (networks, …) each, then call it: logits (images, networks, classes)."""

    def __init__(self, model: nn.Module, layers: dict[str, _Side]) -> None:
        self.model, self.layers, self.count = model, layers, 0

    def load(self, state: State) -> None:
        for path, layer in self.layers.items():
            own = {name: state[key] for name in layer.names if (key := f"{path}.{name}") in state}
            if own:  # a batch norm of the batch at hand may have no numbers
                layer.load(own)
                self.count = layer.count

    def measure(self, batches: Iterable[Tensor]) -> dict[str, Tensor]:
        """Mean and variance at every batch norm of these batches, all taken together, (networks, channels) each."""
        norms = {path: layer for path, layer in self.layers.items() if isinstance(layer, _Norm)}
        for norm in norms.values():
            norm.sums = [0, 0, 0]
        for images in batches:
            self(images)
        result = {}
        for path, norm in norms.items():
            sums, norm.sums = norm.sums, None
            if sums is not None and sums[0]:
                mean, var = pooled_statistics(*sums)
                result[f"{path}.running_mean"] = mean.reshape(self.count, -1)
                result[f"{path}.running_var"] = var.reshape(self.count, -1)
        return result

    def __call__(self, images: Tensor) -> Tensor:
        logits = logits_of(self.model(images))
        return logits.reshape(len(logits), self.count, -1)

    def fused(self, wanted: bool) -> None:
        """Whether convolutions do the ReLU behind them as well, which only cuDNN can."""
        for layer in self.layers.values():
            if isinstance(layer, _Convolution):
                layer.fused = wanted


def stack(model: nn.Module, graph: Graph, example: Tensor) -> Stack | None:
    """A network that runs several of its kind at once; None where their channels cannot be kept apart."""
    result = _build(model, graph)
    if result is None or not _proven(result, model, example):
        return None
    if next(model.parameters()).is_cuda and _fuses(result, model, example):
        result.fused(True)
    return result


class _Side(nn.Module):
    """A layer of several networks."""

    names: tuple[str, ...] = ("weight", "bias")

    def load(self, state: State) -> None:
        self.count = len(next(iter(state.values())))
        self.tensors = {name: value.flatten(0, 1) for name, value in state.items()}


class _Convolution(_Side):
    def __init__(self, arguments: tuple[Any, ...], relu: bool) -> None:
        super().__init__()
        self.stride, self.padding, self.dilation, self.groups = (arguments[k] for k in (3, 4, 5, 8))
        self.relu, self.fused = relu, False

    def load(self, state: State) -> None:
        super().load(state)
        weight = self.tensors["weight"]
        if weight.dim() == 4:
            self.tensors["weight"] = weight.contiguous(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.tensors["weight"], self.tensors.get("bias")
        own = weight.shape[1] * self.groups  # channels that one network reads
        groups = self.groups * self.count
        if x.shape[1] == own:  # the images themselves, which all networks read
            if self.groups == 1:
                groups = 1
            elif self.count > 1:
                x = x.repeat(1, self.count, *[1] * (x.dim() - 2))
        if self.fused and bias is not None:
            return torch.cudnn_convolution_relu(x, weight, bias, self.stride, self.padding, self.dilation, groups)
        where = (self.stride, self.padding, self.dilation, False, [0] * len(self.stride), groups)
        result = torch.convolution(x, weight, bias, *where)
        return torch.relu_(result) if self.relu else result


class _Linear(_Side):
    def load(self, state: State) -> None:
        super().load(state)
        self.width = state["weight"].shape[2]

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.tensors["weight"], self.tensors.get("bias")
        if x.dim() != 2:
            raise ValueError("only linear layers on vectors can be stacked")
        if self.count == 1 or x.shape[1] == self.width:
            return F.linear(x, weight, bias)
        apart = x.reshape(len(x), self.count, self.width).transpose(0, 1)
        result = apart @ weight.reshape(self.count, -1, self.width).mT
        result = result.transpose(0, 1).reshape(len(x), -1)
        return result if bias is None else result + bias


class _Norm(_Side):
    """With the statistics that it has, or, without any, those of the batch."""

    names = ("weight", "bias", "running_mean", "running_var")

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.tensors: dict[str, Tensor] = {}
        self.sums: list[Any] | None = None  # of the channels' numbers and squares, while statistics are measured

    def forward(self, x: Tensor) -> Tensor:
        t = self.tensors
        mean, var = t.get("running_mean"), t.get("running_var")
        if self.sums is None:
            return F.batch_norm(x, mean, var, t.get("weight"), t.get("bias"), mean is None, 0.0, self.eps)
        mean, var = x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])
        result = F.batch_norm(x, mean, var, t.get("weight"), t.get("bias"), True, 1.0, self.eps)
        self.sums = [a + b for a, b in zip(self.sums, batch_sums(x, mean, var), strict=True)]
        return result


class _Largest(nn.Module):
    """Max-pooling over all places: the same numbers, on an H200 in a thirtieth of the time."""

    def forward(self, x: Tensor) -> Tensor:
        return x.amax((-2, -1), keepdim=True)


def _build(model: nn.Module, graph: Graph) -> Stack | None:
    copied = copy_module(model)
    layers: dict[str, _Side] = {}
    for layer in find_layers(graph, model):
        module = model.get_submodule(layer.path)
        if isinstance(module, _ConvNd) and layer.op is not None:
            if module.padding_mode != "zeros" or isinstance(module.padding, str):
                return None
            relu = _relu_behind(graph, model, layer.output.index)
            layers[layer.path] = _Convolution(layer.op.args, relu is not None)
            if relu is not None:
                copied.set_submodule(relu, nn.Identity())
        else:
            layers[layer.path] = _Linear()
    for path, module in model.named_modules():
        if isinstance(module, _BatchNorm) and graph.calls.get(path) == 1:
            layers[path] = _Norm(module.eps)
    for path, module in model.named_modules():
        if isinstance(module, nn.AdaptiveMaxPool2d) and module.output_size in (1, (1, 1)):
            copied.set_submodule(path, _Largest())
    for path, side in layers.items():
        copied.set_submodule(path, side)
    left = [*copied.parameters(), *(b for b in copied.buffers() if b.is_floating_point())]
    return None if left or not layers else Stack(copied.eval(), layers)


def _relu_behind(graph: Graph, model: nn.Module, index: int) -> str | None:
    """The ReLU module that alone reads a value."""
    readers = [op for op in graph.live() if any(v.index == index for v in op.inputs())]
    if len(readers) != 1 or rule_name(readers[0]) != "relu" or not readers[0].module:
        return None
    path = readers[0].module
    return path if type(model.get_submodule(path)) is nn.ReLU and graph.calls.get(path) == 1 else None


def _noisy(model: nn.Module, count: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Tensors of networks like this one, every number changed by about a half."""
    generator = torch.Generator().manual_seed(0)
    result = {}
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            noise = torch.randn(count, *value.shape, generator=generator, dtype=torch.float32).to(value.device)
            result[name] = (value * (1 + 0.5 * noise)).to(dtype)
            if name.endswith("running_var"):
                result[name].abs_()
    return result


def _proven(found: Stack, model: nn.Module, example: Tensor) -> bool:
    """Two networks at once answer as each does alone, but for rounding."""
    dtype = torch.promote_types(example.dtype, torch.float32)
    images, alone = example.to(dtype), copy_module(model).to(dtype)
    state = _noisy(model, 2, dtype)
    found.load(state)
    with torch.no_grad(), without_tf32():  # whose rounding would hide a difference
        try:
            together = found(images)
        except Exception:  # shapes that do not fit, or a forward that asks its layers for what they had
            return False
        for k in range(2):
            one = {name: value[k] for name, value in state.items()}
            right = logits_of(torch.func.functional_call(alone, one, (images,)))
            if together[:, k].shape != right.shape:
                return False
            scale = float((right - right.mean(0)).abs().max()) or float(right.abs().max())
            if not float((together[:, k] - right).abs().max()) <= 1e-3 * scale:
                return False
    return True


def _fuses(found: Stack, model: nn.Module, example: Tensor) -> bool:
    """Whether cuDNN has the fused convolution in this precision, and it gives the same."""
    found.load(_noisy(model, 2, example.dtype))
    try:
        with torch.no_grad():
            apart = found(example).float()
            found.fused(True)
            together = found(example).float()
    except RuntimeError:
        return False
    finally:
        found.fused(False)
    return bool((apart - together).abs().max() <= 0.05 * apart.abs().max())
