"""Layers, parameters and FLOPs of a model, counted by one forward pass without values."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from brickwork.copying import copy_module
from brickwork.zoo.build import example_input


@dataclass(frozen=True)
class LayerSummary:
    """One pass of a module with parameters of its own; `flops` for one example, two for each multiply-add.

    Of a module with such modules inside, they are counted there.
    """

    name: str
    kind: str
    output: tuple[int, ...]
    parameters: int
    flops: int


@dataclass(frozen=True)
class Summary:
    """What `brickwork info` prints."""

    layers: tuple[LayerSummary, ...]
    parameters: int  # tied ones counted once
    buffers: int
    flops: int  # of the whole pass, attention and other operations between the layers included
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def parameters_of(model: nn.Module) -> int:
    """What a network learns, tied values once; statistics of batch norms, scales of inputs and other buffers are none."""
    return sum(p.numel() for p in model.parameters())


def summarize(model: nn.Module, example: torch.Tensor | None = None) -> Summary:
    """Count a model; `example` is one input batch, by default what the model's Origin says.

    >>> from brickwork import zoo
    >>> summary = summarize(zoo.build("lenet"))
    >>> summary.parameters, [layer.name for layer in summary.layers]
    (44726, ['conv1', 'conv2', 'fc1', 'fc2', 'fc3'])
    """
    example = example_input(model, batch=1) if example is None else example[:1]
    parameters = parameters_of(model)
    buffers = sum(b.numel() for b in model.buffers())
    try:
        light = copy_module(model).to("meta").eval()
        layers, flops, output = _run(light, example.to("meta"))
    except (NotImplementedError, RuntimeError):  # an operation that needs values: count with them
        layers, flops, output = _run(copy_module(model).eval(), example)
    return Summary(tuple(layers), parameters, buffers, flops, tuple(example.shape[1:]), output)


def _run(model: nn.Module, example: torch.Tensor) -> tuple[list[LayerSummary], int, tuple[int, ...]]:
    counter = FlopCounterMode(display=False)
    sizes = _own_parameters(model)
    started: list[tuple[int, int]] = []  # FLOPs, and rows, when a module that is still running was entered
    layers: list[LayerSummary] = []
    called: set[str] = set()

    def before(module: nn.Module, inputs: Any) -> None:
        started.append((counter.get_total_flops(), len(layers)))

    def after(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            flops, rows = started.pop()
            shape = _shape(output[0] if isinstance(output, tuple) else output)
            inside = len(layers) > rows  # layers within it, to which its FLOPs belong
            size = 0 if name in called else sizes[name]  # run again: its parameters are counted already
            called.add(name)
            kind = type(module).__name__.removeprefix("Parametrized")
            layers.append(LayerSummary(name, kind, shape, size, 0 if inside else counter.get_total_flops() - flops))

        return hook

    for name, module in model.named_modules():
        if name in sizes:
            module.register_forward_pre_hook(before)
            module.register_forward_hook(after(name))
    with torch.no_grad(), counter:
        output = model(example)
    return layers, counter.get_total_flops(), _shape(output)


def _shape(output: Any) -> tuple[int, ...]:
    return tuple(output.shape[1:]) if isinstance(output, torch.Tensor) else ()


def _own_parameters(model: nn.Module) -> dict[str, int]:
    """How many parameters each module holds itself: those that its weights are made of, and, of attention, those of the
    projection that is read and never called, count as its own."""
    sizes: dict[str, int] = {}
    for name, module in model.named_modules():
        size = sum(p.numel() for p in module.parameters(recurse=False))
        if not size:
            continue
        holder = name.split(".parametrizations.")[0]
        above = holder.rpartition(".")[0]
        if isinstance(model.get_submodule(above), nn.MultiheadAttention):
            holder = above
        sizes[holder] = sizes.get(holder, 0) + size
    return sizes
