"""Run a model over many images without leaving a trace on it."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from brickwork.data.pixels import as_input
from brickwork.data.streamed import Images, StreamedImages, ahead, tensor_of, unread
from brickwork.devices import DeviceLike, device_of, pick
from brickwork.errors import BadData, RequestError
from brickwork.forward_fault import explained
from brickwork.origin import check_module, origin_of
from brickwork.outputs import logits_of


def predict(
    model: nn.Module,
    images: Images,
    *,
    batch_size: int = 512,
    device: DeviceLike | None = None,
    output: str | int | None = None,
) -> Tensor:
    """Logits, float32 on the CPU. uint8 images (N, H, W, C) go through the model's own preprocessing.

    Images are given in the model's precision. It is run in eval mode where its parameters are (or on `device`), and put
    back as it was.
    """
    return torch.cat([logits.cpu() for logits in logit_batches(model, images, batch_size, device, output)])


def logit_batches(
    model: nn.Module, images: Images, batch_size: int, device: DeviceLike | None, output: str | int | None = None
) -> Iterator[Tensor]:
    """The logits batch by batch, float32 on the device, for what does not fit into memory at once."""
    if batch_size < 1:
        raise RequestError(f"batch_size is {batch_size}; it must be 1 or more.")
    check_module(model)
    target = pick(device, of=model)
    given = unread(images)
    with evaluating(model), moved(model, target):
        with explained():
            layout = proved_layout(model, given, target, output)
        for number, part in enumerate(_parts(given, batch_size)):
            with explained() if number == 0 else nullcontext():
                logits = logits_of(model(input_of(model, part, target, layout)), output).float()
            yield logits


def _parts(images: Tensor | StreamedImages, size: int) -> Iterator[Tensor]:
    """Images in batches; those that are read when wanted, one batch ahead."""
    parts = (images[start : start + size] for start in range(0, len(images), size))
    return ahead(map(tensor_of, parts)) if isinstance(images, StreamedImages) else parts


def input_of(
    model: nn.Module,
    images: Images,
    device: torch.device | None = None,
    layout: torch.memory_format = torch.contiguous_format,
) -> Tensor:
    """Images as a model reads them: prepared in its own way, in its precision, where it is (or on `device`)."""
    given = as_input(images, origin_of(model).preprocessing, device or device_of(model), layout)
    return given.to(precision_of(model) or given.dtype)


@dataclass(frozen=True)
class StreamedInput:
    """Network input of images that are read when wanted: what a tensor of it would give for slices and indices."""

    model: nn.Module
    images: StreamedImages

    @property
    def shape(self) -> torch.Size:
        return torch.Size([len(self.images), *self[0:1].shape[1:]])

    @property
    def device(self) -> torch.device:
        return device_of(self.model)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, which: slice | Tensor) -> Tensor:
        made = input_of(self.model, self.images[which.cpu().numpy() if isinstance(which, Tensor) else which])
        if not bool(torch.isfinite(made).all()):
            raise BadData("the images hold NaN or infinite values.")
        return made

    def split(self, size: int) -> Iterator[Tensor]:
        """Batches, each read while the one before is worked on."""
        return ahead(self[start : start + size] for start in range(0, len(self), size))


MANY = 64  # images from which on two extra batches of two are worth it


def proved_layout(
    model: nn.Module, images: Tensor | StreamedImages, device: torch.device, output: str | int | None = None
) -> torch.memory_format:
    """The layout in memory that a model is given many raw images in: channels last, where that is proved to work.

    They lie so already, and convolutions on a CPU take 1.1 to 1.8 times as long on the other layout (one core).
    """
    watched = any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    if watched or len(images) < MANY or images.is_floating_point() or images.ndim != 4:
        return torch.contiguous_format  # who watches is not to see images that are only tried
    works = works_channels_last(model, input_of(model, images[:2], device), output)
    return torch.channels_last if works else torch.contiguous_format


def works_channels_last(model: nn.Module, given: Tensor, output: str | int | None = None) -> bool:
    """Whether a model gives the same logits for an input laid channels last.

    A forward that reads its input with `view`, the commonest line of PyTorch, refuses channels last.

    >>> class Flat(nn.Module):
    ...     def forward(self, x):
    ...         return x.view(len(x), -1)
    >>> images = torch.rand(2, 3, 4, 4)
    >>> works_channels_last(nn.Flatten(), images), works_channels_last(Flat(), images)
    (True, False)
    """
    with eval_mode(model), torch.no_grad():  # no inference mode: what a forward keeps may be trained with later
        expected = logits_of(model(given), output).float()
        try:
            logits = logits_of(model(given.contiguous(memory_format=torch.channels_last)), output).float()
        except Exception:  # whatever the network's own code raises; what it raises both ways was raised above
            return False
    if not bool(torch.isfinite(expected).all()):
        return False  # logits that are no numbers prove nothing
    slack = 1e-3 * float(expected.abs().max())
    return logits.shape == expected.shape and torch.allclose(logits, expected, rtol=1e-3, atol=slack, equal_nan=True)


def precision_of(model: nn.Module) -> torch.dtype | None:
    """The type of a model's numbers; None where it has several, or none: it decides itself then."""
    kinds = {p.dtype for p in model.parameters() if p.is_floating_point()}
    return kinds.pop() if len(kinds) == 1 else None


@contextmanager
def moved(model: nn.Module, device: torch.device) -> Iterator[None]:
    """The model on a device inside, where it was afterwards."""
    before = device_of(model)
    model.to(device)
    try:
        yield
    finally:
        model.to(before)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode and no gradients inside; every module's own mode as before afterwards."""
    with eval_mode(model), torch.inference_mode():
        yield


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode inside, gradients as they are; every module's own mode as before afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
