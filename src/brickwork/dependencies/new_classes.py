"""New classes for a network that stays as it is: of its logits (paper 5, Sec. 3.2), of its features, or from a branch."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.blueprint.parts import more_classes, widen_output
from brickwork.data.datasets import TorchData, class_names_of, pair_of_dataset
from brickwork.data.images import ImageData
from brickwork.dependencies.branches import train_branch
from brickwork.dependencies.depths import deeper_classes, pooled, several_depths, watched
from brickwork.dependencies.heads import class_numbers, fit_head, new_labels
from brickwork.dependencies.options import AddOptions
from brickwork.devices import device_of
from brickwork.errors import BadData, BadModel
from brickwork.options import refuse, takes
from brickwork.origin import origin_of, record_step
from brickwork.prediction import input_of, predict
from brickwork.training import default_augment

Labelled = ImageData | tuple[Any, Any] | TorchData  # (images, labels)
Source = str | list[str] | None  # what new logits are made of: a layer's input, the answers of several, the logits


@takes(AddOptions)
def add_classes(
    model: nn.Module,
    data: Labelled,
    *,
    base_data: Labelled | None = None,
    classes: Sequence[str] | None = None,
    progress: bool = False,
    options: AddOptions,
) -> nn.Module:
    """A network of the model's classes and `data`'s: [f, Θf + b]. Its first logits are the model's, bit for bit.

    data: training images of the new classes, an ImageData or (images, labels from 0) with their names in `classes`.
    base_data: images of the known classes, the more the better, seen in training or not; without, the new classes are
    told apart from each other, but not well from the known ones. how, strength, bias: see brickwork.dependencies.fit_head;
    bias=False without base_data is the paper's form.
    on: "logits" is the paper's; "features" makes the new logits of what the last layer reads, which knows more; "depths" of
    what layers at several depths answer, which knows more of classes that the model never learned; "branch" trains the last
    layers once more beside the model's own, with the options of training, and needs base_data.
    The result saves and loads as an ordinary model folder; the model is left unchanged.

    >>> from brickwork import data, zoo
    >>> digits = data.load("digits:0-2@10", size=16, channels=1)
    >>> model = zoo.build("lenet", num_classes=2, in_channels=1, seed=0)
    >>> grown = add_classes(model, (digits.train_images, digits.train_labels), classes=["a", "b", "c"])
    >>> origin_of(grown).classes
    ('0', '1', 'a', 'b', 'c')
    """
    on, seed = options.on, options.seed
    refuse([*options.needs(base_data=base_data is not None)])
    images, labels, names = _taken(data, classes)
    source = source_of(model, images, on) if len(images) else None
    # nothing is fitted to the answers of a network that is branched: one image tells how many classes it has
    read = images[:1] if on == "branch" else images
    logits, features = _answers(model, read, "new", source)
    count = logits.shape[1]
    known = origin_of(model).classes or tuple(str(i) for i in range(count))
    if len(known) != count:
        raise BadModel(f"the model has {count} outputs and {len(known)} class names.")
    fresh = names if names is not None else _numbered(labels, count)
    _check_names(fresh, known)
    if on == "branch":
        others, theirs = _base_images(base_data, known)
        marks = (class_numbers(theirs, len(others), count, "known"), new_labels(labels, len(images), len(fresh))[0])
        grown: nn.Module = train_branch(
            model,
            str(source),
            (others, images),
            marks,
            (*known, *fresh),
            seed=seed,
            progress=progress,
            settings=_branch_training(data, options),
        )
        return record_step(grown, "depend add", options.to_dict(), before=origin_of(model).provenance)
    base_logits, base_features, base_labels = _base(model, base_data, known, source)
    head = fit_head(
        logits,
        labels,
        base_logits,
        base_labels,
        features=None if features is None else (features, base_features),
        scaled=on == "depths",
        new=len(fresh),
        how=options.how,
        strength=options.strength,
        bias=options.bias,
        seed=seed,
        device=device_of(model),
    )
    names = (*known, *fresh)
    if source is None:
        grown = more_classes(model, count, len(fresh), names)
        more: Any = grown.more
    elif isinstance(source, str):
        grown = widen_output(model, source, len(fresh), names)
        more = grown.get_submodule(source).more
    else:
        grown = deeper_classes(model, source, head.theta.shape[1], len(fresh), names)
        more = grown.more
    with torch.no_grad():
        more.weight.copy_(head.theta)
        more.bias.copy_(head.bias)
    return record_step(grown, "depend add", options.to_dict() | {"strength": head.strength})


def _branch_training(data: Labelled, options: AddOptions) -> dict[str, Any]:
    """The options of a branch's training, with the augmentation that suits the data."""
    source = data.source if isinstance(data, ImageData) else None
    return {"augment": default_augment(source), **options.training()}


def source_of(model: nn.Module, images: Any, on: str) -> Source:
    """What new logits are made of in a model, for `on` as in add_classes."""
    if on in ("features", "branch"):
        return last_layer(model, images[:1])
    if on == "depths":
        return several_depths(model, input_of(model, images[:2]))
    return None


def last_layer(model: nn.Module, image: Any) -> str:
    """The linear layer whose output the logits are, found by looking at one image."""
    called: list[tuple[str, Tensor]] = []

    def watch(module: nn.Linear, read: Tensor, output: Tensor, name: str) -> None:
        if torch.equal(F.linear(read, module.weight, module.bias), output):  # others' layers may do more
            called.append((name, output.detach()))

    hooks = [
        module.register_forward_hook(
            lambda m, given, named, output, name=name: watch(m, _read(given, named), output, name), with_kwargs=True
        )
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        logits = predict(model, image)
    finally:
        for hook in hooks:
            hook.remove()
    for name, output in reversed(called):
        if name and output.shape == logits.shape and torch.equal(output.float().cpu(), logits.float().cpu()):
            return name
    raise BadModel("the model's logits are not the output of one linear layer; use on='logits'.")


def _read(given: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
    """What a layer was called with, by place or by name."""
    return (*given, *named.values())[0]


def _taken(
    data: Labelled, classes: Sequence[str] | None, which: str = "new"
) -> tuple[Any, Any, tuple[str, ...] | None]:
    names = None if classes is None else tuple(map(str, classes))
    if isinstance(data, ImageData):
        if names is not None and len(names) != len(data.classes):
            raise BadData(f"{len(names)} names for the {len(data.classes)} new classes of {data.name}.")
        images, labels, names = data.train_images, data.train_labels, names or data.classes
        absent = sorted(set(range(len(names))) - set(np.unique(labels).tolist()))
        if absent:
            raise BadData(f"{data.name} has no training image of {names[absent[0]]!r}.")
    else:
        (images, labels), named = pair_of_dataset(data), class_names_of(data)
        names = names or named
    if len(images) == 0:
        raise BadData(f"there are no images of {which} classes.")
    return images, labels, names


def _numbered(labels: Any, known: int) -> tuple[str, ...]:
    """Numbers that go on from the known classes', for new ones without names."""
    return tuple(str(known + i) for i in range(int(torch.as_tensor(labels).max()) + 1))


def _check_names(fresh: Sequence[str], known: Sequence[str]) -> None:
    twice = [name for name in fresh if name in known]
    if twice:
        raise BadData(
            f"the model knows {', '.join(map(repr, twice[:5]))} already; select new classes, as in digits:5-9."
        )
    if len(set(fresh)) < len(fresh):
        raise BadData(f"the new classes {', '.join(fresh[:10])} are not all different.")


def _base(
    model: nn.Module, data: Labelled | None, known: Sequence[str], source: Source
) -> tuple[Tensor | None, Tensor | None, Any]:
    """Logits, features and labels, as the model's outputs are numbered, of the known classes' images."""
    if data is None:
        return None, None, None
    images, labels = _base_images(data, known)
    return *_answers(model, images, "known", source), labels


def _base_images(data: Labelled | None, known: Sequence[str]) -> tuple[Any, Any]:
    """Images of the known classes, labelled as the model's outputs are numbered."""
    assert data is not None
    images, labels, names = _taken(data, None, "known")
    if names is not None:
        foreign = [name for name in names if name not in known]
        if foreign:
            raise BadData(
                f"base_data holds {', '.join(map(repr, foreign[:5]))}, which the model does not know; "
                f"its classes are {', '.join(known[:40])}."
            )
        labels = np.array([list(known).index(name) for name in names])[np.asarray(labels)]
    return images, labels


def _answers(model: nn.Module, images: Any, which: str, source: Source) -> tuple[Tensor, Tensor | None]:
    """Logits, and what the new ones are made of where those are not it."""
    logits, features = answers(model, images, source)
    if logits.ndim != 2:
        raise BadModel(
            f"the model gives {tuple(logits.shape)} for the {which} classes' images, not one row of logits an image."
        )
    return logits, features


def answers(model: nn.Module, images: Any, source: Source, *, batch_size: int = 512) -> tuple[Tensor, Tensor | None]:
    """Logits of raw images, and the inputs of a named linear layer, or the pooled answers of several layers."""
    if source is None:
        return predict(model, images, batch_size=batch_size), None
    read: list[Tensor] = []
    with ExitStack() as open_:
        if isinstance(source, str):
            layer = model.get_submodule(source)
            hook = layer.register_forward_pre_hook(
                lambda _m, given, named: read.append(_read(given, named).detach().cpu()), with_kwargs=True
            )
        else:
            seen = open_.enter_context(watched(model, source))
            hook = model.register_forward_hook(
                lambda *_: read.append(pooled([seen[name].detach() for name in source]).cpu())
            )
        open_.callback(hook.remove)
        logits = predict(model, images, batch_size=batch_size)
    return logits, torch.cat(read)
