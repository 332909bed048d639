"""`build("lenet")`, `build("timm:resnet18")`, …: from a name and JSON arguments to a module."""

import contextlib
import importlib
import json
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from brickwork.errors import BadModel, RequestError, UnknownName
from brickwork.origin import Origin, attach, origin_of
from brickwork.zoo import external
from brickwork.zoo.registry import REGISTRY

# Importing a file is what fills the registry; the order here is the order of `names()`.
for _file in ("lenet", "resnet8", "simplenet", "vgg", "resnet", "mobilenet", "inception", "shuffle", "fcn", "vit"):
    importlib.import_module(f"brickwork.zoo.{_file}")

#: prefix -> the function that builds `prefix:NAME`
PREFIXES = {"timm": external.timm, "torchvision": external.torchvision, "hf": external.huggingface}


def names() -> list[str]:
    """The architectures of Brickwork's own zoo.

    >>> names()[:3]
    ['lenet', 'resnet8', 'simplenetv1']
    """
    return list(REGISTRY)


def needs_import(arch: str) -> bool:
    """Whether building `arch` imports code of the user's choice, as `package.module:factory` does."""
    return ":" in arch and arch.split(":", 1)[0] not in PREFIXES


def build(arch: str, *, seed: int | None = None, **args: Any) -> nn.Module:
    """A new module in evaluation mode, carrying its Origin; `seed` leaves the global generator alone.

    >>> build("vgg16", num_classes=3, batch_norm=False).brickwork_origin.args
    {'num_classes': 3, 'batch_norm': False}
    >>> build("lenett")
    Traceback (most recent call last):
    ...
    brickwork.errors.UnknownName: unknown architecture 'lenett'; did you mean 'lenet'? Known: ...
    """
    _check_json(arch, args)
    with _seeded(seed):
        prefix, _, name = arch.partition(":")
        if not name:
            model, origin = _own(arch, args)
        elif prefix in PREFIXES:
            model, origin = PREFIXES[prefix](name, args)
        else:
            model, origin = external.imported(arch, args)
    attach(model, origin)
    return model.eval()


def input_shape(arch: str, **args: Any) -> tuple[int, ...]:
    """Channels, height and width of one example image for an architecture of the zoo.

    >>> input_shape("resnet50", stem="imagenet")
    (3, 224, 224)
    """
    if arch not in REGISTRY:
        raise UnknownName("architecture", arch, names())
    return REGISTRY[arch].input_shape(args)


def example_input(model: nn.Module | str, *, batch: int = 2, seed: int = 0) -> torch.Tensor:
    """A batch of random images that the model, or the architecture of that name, takes.

    >>> example_input("lenet", batch=1).shape
    torch.Size([1, 3, 32, 32])
    """
    if isinstance(model, str):
        with torch.device("meta"):  # only the shape is wanted
            shape = origin_of(build(model)).input_shape
        where: dict[str, Any] = {}
    else:
        shape = origin_of(model).input_shape
        first = next((p for p in model.parameters() if p.is_floating_point()), None)
        where = {} if first is None else {"dtype": first.dtype, "device": first.device}
    if shape is None:
        raise BadModel("the model does not say which input it takes; give an example batch yourself.")
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, *shape, generator=generator).to(**where)


def _own(arch: str, args: dict[str, Any]) -> tuple[nn.Module, Origin]:
    if arch not in REGISTRY:
        hint = "Other people's: " + ", ".join(f"{p}:NAME" for p in PREFIXES) + ", package.module:factory."
        raise UnknownName("architecture", arch, names(), hint)
    entry = REGISTRY[arch]
    for name in args:
        if name not in entry.defaults:
            raise UnknownName(f"argument of {arch}", name, entry.defaults)
    with external.refusing(arch):
        model = entry.factory(**args)
    return model, Origin(arch=arch, args=args, input_shape=entry.input_shape(args))


def _check_json(arch: str, args: dict[str, Any]) -> None:
    """Arguments go into config.json and must come back equal."""
    for name, value in args.items():
        try:
            same = json.loads(json.dumps(value)) == value
        except (TypeError, ValueError):
            same = False
        if not same:
            raise RequestError(
                f"argument {name} of {arch} is {value!r}; it must be a JSON value (number, text, true/false, "
                "list, object), so that the model folder can record it."
            )


@contextlib.contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Seed the CPU generator for a while. Not torch.manual_seed: that would reseed every GPU as well."""
    if seed is None:
        yield
        return
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)
