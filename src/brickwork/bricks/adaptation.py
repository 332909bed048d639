"""`adapt`: to images of another kind without labels and without training, by response matching on pairs of images."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.bricks.options import AdaptOptions
from brickwork.bricks.subject import one_dtype
from brickwork.copying import copy_module
from brickwork.data.datasets import images_of
from brickwork.data.images import ImageData
from brickwork.data.pixels import as_input
from brickwork.data.streamed import Images, unread
from brickwork.devices import device_of, number_of
from brickwork.errors import BadData
from brickwork.moments import Source, match_responses
from brickwork.options import takes
from brickwork.origin import origin_of, record_step


@takes(AdaptOptions)
def adapt(
    model: nn.Module,
    known: Images | ImageData,
    new: Images | ImageData,
    *,
    progress: bool = True,
    options: AdaptOptions,
) -> nn.Module:
    """A copy that answers on the new images as the model answers on the known ones; the model is left unchanged.

    known[i] and new[i] show the same thing: a colour photograph and its grey version, say. No labels are needed; two
    ImageData give their training images, and are refused where labels say that a pair is of two classes.

    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    >>> x = torch.randn(200, 1, 6, 6)
    >>> found = adapt(net, x, 3 * x, ridge=0.0, progress=False)
    >>> bool((found(3 * x) - net(x)).abs().max() < 1e-3)
    True
    """
    one_dtype(model)
    prepared, where = origin_of(model).preprocessing, device_of(model)
    if isinstance(known, ImageData) and isinstance(new, ImageData):
        _check_labels(known, new)
    given = [images_of(one.train_images if isinstance(one, ImageData) else one) for one in (known, new)]
    counts = [len(images) for images in given]
    if counts[0] != counts[1]:
        raise BadData(f"{counts[0]} known images and {counts[1]} new ones; they must come in pairs.")
    drawn = np.sort(np.random.default_rng([options.seed, 3]).permutation(counts[0])[: options.images])
    pair = [as_input(unread(images)[drawn], prepared, where) for images in given]
    if pair[0].shape != pair[1].shape:
        raise BadData(
            f"known images are {tuple(pair[0].shape)} and new ones {tuple(pair[1].shape)}; they must come in pairs."
        )
    channels = pair[0].shape[1]
    # Both networks read one tensor, in which a pair lies side by side; each takes its own half.
    both = torch.cat(pair, 1).to(number_of(model).dtype)
    teacher = _Half(copy_module(model).eval(), 0, channels)
    student = _Half(copy_module(model).eval(), channels, channels)
    result = match_responses(
        student, [Source(teacher, both)], ridge=options.ridge, shrink_to="weights", seed=options.seed, progress=progress
    ).model
    assert isinstance(result, _Half)
    return record_step(result.net.eval(), "adapt", options.to_dict() | {"images": len(both)})


def _check_labels(known: ImageData, new: ImageData) -> None:
    """Of the same class wherever both name one."""
    names = [[images.classes[k] for k in images.train_labels] for images in (known, new)]
    apart = [k for k, (a, b) in enumerate(zip(*names, strict=False)) if a != b]
    if apart and set(known.classes) == set(new.classes):
        a, b = (one[apart[0]] for one in names)
        raise BadData(
            f"training image {apart[0]} is {a!r} in {known.name} and {b!r} in {new.name}; they must come in pairs, in the same "
            "order."
        )


class _Half(nn.Module):
    """A network that reads some of the channels of its input."""

    def __init__(self, net: nn.Module, first: int, channels: int) -> None:
        super().__init__()
        self.net, self.first, self.channels = net, first, channels

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.narrow(1, self.first, self.channels))
