"""The transpose of every layer a pseudo-gradient goes down through; any other layer is refused by name."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from brickwork.errors import BadModel
from brickwork.transplant.norm_scale import NormScale, scale_of_call

Shapes = Mapping[fx.Node, tuple[int, ...]]
Back = Callable[[Tensor, Any, bool], list[tuple[fx.Node, Tensor]]]  # (gradient, dummy, enlarged) -> to whom what


@dataclass(frozen=True)
class Transpose:
    back: Back
    is_relu: bool = False


_PASS_MODULES = (nn.Identity, nn.modules.dropout._DropoutNd)
_PASS = {F.dropout, F.dropout2d, torch.dropout, "contiguous", "clone"}
_RELU = {F.relu, F.relu6, torch.relu, "relu"}
_ADD = {operator.add, torch.add, "add"}
MAX_POOL = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
AVG_POOL = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
_FLAT = {torch.flatten, "flatten", "view", "reshape", torch.reshape}


def rule_for(
    node: fx.Node, modules: Mapping[str, nn.Module], shapes: Shapes, reached: set[fx.Node], relus: int
) -> Transpose:
    """How the gradient at this value goes on to the values it was made from."""
    layer = modules.get(str(node.target)) if node.op == "call_module" else None
    sources = [n for n in node.all_input_nodes if n in reached and n in shapes]
    if layer is not None and len(sources) == 1:
        step = _module_rule(layer, sources[0], shapes[sources[0]], relus)
        if step is not None:
            return step
    elif layer is None:
        step = _function_rule(node, sources, modules, shapes, relus)
        if step is not None:
            return step
    if layer is not None:
        what = f"layer {node.target!r} ({type(layer).__name__})"
    else:
        around = list((node.meta.get("nn_module_stack") or {}).values())
        where = f" in layer {around[-1][0]!r}" if around and around[-1][0] else ""
        what = f"the operation {_said(node)}{where}"
    raise BadModel(
        f"a pseudo-gradient cannot go through {what}; it goes through convolutions, transposed ones, linear layers, batch "
        "norm by running statistics, ReLU, dropout, pooling, flattening, crops, sums and concatenations. Cut above it, or "
        "use another method."
    )


def _said(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _one(source: fx.Node, send: Callable[[Tensor, bool], Tensor]) -> Transpose:
    return Transpose(lambda g, dummy, enlarged: [(source, send(g, enlarged))])


def _module_rule(layer: nn.Module, source: fx.Node, shape: tuple[int, ...], relus: int) -> Transpose | None:
    if isinstance(layer, nn.Conv2d) and layer.padding_mode == "zeros" and not isinstance(layer.padding, str):
        return _one(source, lambda g, _: conv_back(g, layer, shape[1:]))
    if isinstance(layer, nn.ConvTranspose2d):
        options = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation, "groups": layer.groups}
        return _one(source, lambda g, _: F.conv2d(g, layer.weight, None, **options))  # type: ignore[arg-type]
    if isinstance(layer, nn.Linear):
        return _one(source, lambda g, enlarged: _linear_back(g, layer.weight, enlarged))
    if isinstance(layer, _BatchNorm) and layer.running_var is not None:
        scale = NormScale(lambda: (layer.running_var, layer.weight, layer.eps))
        return _one(source, lambda g, _: g * scale(g))
    if isinstance(layer, nn.ReLU | nn.ReLU6):
        return Transpose(lambda g, dummy, _: [(source, dummy.passes(g, relus))], is_relu=True)
    if isinstance(layer, _PASS_MODULES):
        return _one(source, lambda g, _: g)
    if isinstance(layer, nn.MaxPool2d | nn.AvgPool2d):
        if not _plain_pool(vars(layer)):
            return None
        return _one(source, _pool(layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode, shape[1:]))
    if isinstance(layer, nn.AdaptiveAvgPool2d | nn.AdaptiveMaxPool2d):
        return _adaptive(source, shape, layer.output_size)
    if isinstance(layer, nn.Flatten) and layer.start_dim == 1 and layer.end_dim == -1:
        return _one(source, lambda g, enlarged: _unflatten(g, shape, enlarged))
    return None


def _function_rule(
    node: fx.Node, sources: list[fx.Node], modules: Mapping[str, nn.Module], shapes: Shapes, relus: int
) -> Transpose | None:
    target: Any = node.target
    args: Any = node.args
    kwargs: Any = node.kwargs
    if target in _ADD and not kwargs and len(args) == 2 and all(shapes[s] == shapes[node] for s in sources):
        number = len([a for a in args if a in sources])  # x + x sends twice
        if len(sources) == 1:
            return _one(sources[0], lambda g, _: number * g)
        return Transpose(lambda g, dummy, enlarged: [(s, g) for s in sources])
    if target in (torch.cat, torch.concat) and len(sources) == len(args[0]):
        axis = int(kwargs.get("dim", args[1] if len(args) > 1 else 0))
        axis += (len(shapes[node]) + 1) * (axis < 0)  # shapes are without the batch
        parts = [shapes[s][axis - 1] for s in sources]
        return Transpose(lambda g, dummy, enlarged: list(zip(sources, g.split(parts, axis), strict=True)))
    if len(sources) != 1:
        return None
    source, shape = sources[0], shapes[sources[0]]
    if target in _RELU:
        return Transpose(lambda g, dummy, _: [(source, dummy.passes(g, relus))], is_relu=True)
    if target in _PASS:
        return _one(source, lambda g, _: g)
    if target is F.batch_norm and (scale := scale_of_call(node, modules)) is not None:
        return _one(source, lambda g, _: g * scale(g))
    if target in _FLAT and shapes[node] == (math.prod(shape),):
        return _one(source, lambda g, enlarged: _unflatten(g, shape, enlarged))
    if target is operator.getitem and _is_crop(args[1]):
        return _one(source, lambda g, _: _uncrop(g, shape))
    if target in (F.adaptive_avg_pool2d, F.adaptive_max_pool2d):
        return _adaptive(source, shape, args[1])
    if target in (F.max_pool2d, F.avg_pool2d):
        names = MAX_POOL if target is F.max_pool2d else AVG_POOL
        given = dict(zip(names, args[1:], strict=False)) | dict(kwargs)
        if not _plain_pool(given):
            return None
        options = (given["kernel_size"], given.get("stride"), given.get("padding", 0), given.get("ceil_mode", False))
        return _one(source, _pool(*options, shape[1:]))
    if target in ("mean", torch.mean):
        axes = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if isinstance(axes, list | tuple) and sorted(int(a) % (len(shape) + 1) for a in axes) == [2, 3]:
            return _one(source, lambda g, enlarged: _unpool_all(g, shape, enlarged))
    return None


def conv_back(gradient: Tensor, layer: nn.Conv2d, size: tuple[int, ...]) -> Tensor:
    """The transposed convolution, back to maps of this size (or, for enlarged gradients, as much larger)."""
    kernel, stride, padding, dilation = layer.kernel_size, layer.stride, layer.padding, layer.dilation
    rest = tuple((size[k] + 2 * int(padding[k]) - dilation[k] * (kernel[k] - 1) - 1) % stride[k] for k in (0, 1))
    return F.conv_transpose2d(gradient, layer.weight, None, stride, padding, rest, layer.groups, dilation)  # type: ignore[arg-type]


def _linear_back(gradient: Tensor, weight: Tensor, enlarged: bool) -> Tensor:
    if enlarged and gradient.dim() == 4:  # a linear layer at every place of the map
        return F.conv_transpose2d(gradient, weight[:, :, None, None])
    return gradient @ weight


def _unflatten(gradient: Tensor, shape: tuple[int, ...], enlarged: bool) -> Tensor:
    if not (enlarged and gradient.dim() == 4):
        return gradient.reshape(-1, *shape)
    if len(shape) == 1:
        return gradient
    # every place of the enlarged map looked at a window of this shape, one step further each
    high, wide = gradient.shape[2] + shape[1] - 1, gradient.shape[3] + shape[2] - 1
    return F.fold(gradient.flatten(2), (high, wide), (shape[1], shape[2]))


def _unpool_all(gradient: Tensor, shape: tuple[int, ...], enlarged: bool) -> Tensor:
    """From a mean over all places back to the places."""
    if gradient.dim() == 2:
        gradient = gradient[:, :, None, None]
    window = shape[1:]
    if enlarged:
        ones = gradient.new_full((shape[0], 1, *window), 1 / (window[0] * window[1]))
        return F.conv_transpose2d(gradient, ones, groups=shape[0])
    return gradient.expand(-1, -1, *window) / (window[0] * window[1])


def _adaptive(source: fx.Node, shape: tuple[int, ...], size: Any) -> Transpose | None:
    wanted = [
        shape[k + 1] if s is None else int(s) for k, s in enumerate((size, size) if isinstance(size, int) else size)
    ]
    if wanted == [1, 1]:
        return _one(source, lambda g, enlarged: _unpool_all(g, shape, enlarged))
    if any(have % want for have, want in zip(shape[1:], wanted, strict=True)):
        return None
    window = tuple(have // want for have, want in zip(shape[1:], wanted, strict=True))
    return _one(source, _pool(window, window, 0, False, shape[1:]))


def _pool(
    kernel: Any, stride: Any, padding: Any, ceil: bool, size: tuple[int, ...]
) -> Callable[[Tensor, bool], Tensor]:
    """The transpose of average-pooling."""
    k, p = (_pair(v) for v in (kernel, padding))
    s = _pair(stride) if stride not in (None, []) else k
    odd = any((size[i] + 2 * p[i] - k[i]) % s[i] for i in (0, 1))

    def back(gradient: Tensor, enlarged: bool) -> Tensor:
        if not enlarged and ceil and odd:  # windows that reach over the edge count what they have
            example = gradient.new_zeros(*gradient.shape[:2], *size)
            pooled = torch.func.vjp(lambda x: F.avg_pool2d(x, k, s, p, ceil_mode=True), example)
            return pooled[1](gradient)[0]
        channels = gradient.shape[1]
        rest = tuple(0 if ceil else (size[i] + 2 * p[i] - k[i]) % s[i] for i in (0, 1))
        ones = gradient.new_full((channels, 1, *k), 1 / (k[0] * k[1]))
        return F.conv_transpose2d(gradient, ones, None, s, p, rest, channels)

    return back


def _plain_pool(options: Mapping[str, Any]) -> bool:
    """Whether every place of a window counts the same, padding among them."""
    padded = any(_pair(options.get("padding", 0)))
    return (
        _pair(options.get("dilation", 1)) == (1, 1)
        and not options.get("return_indices", False)
        and options.get("divisor_override") is None
        and (options.get("count_include_pad", True) or not padded)
    )


def _pair(value: Any) -> tuple[int, int]:
    return (int(value), int(value)) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _is_crop(index: Any) -> bool:
    """Whether an index keeps the beginning of each axis, and nothing is skipped or put in another order."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        part is Ellipsis or (isinstance(part, slice) and part.start in (None, 0) and part.step in (None, 1))
        for part in parts
    )


def _uncrop(gradient: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Zeros behind what a crop had kept of each axis."""
    missing = [have - got for have, got in zip(shape, gradient.shape[1:], strict=True)]
    return F.pad(gradient, [width for amount in reversed(missing) for width in (0, amount)])
