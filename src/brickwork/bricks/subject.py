"""A network on the bench: a copy of it, its blueprint, its class names, and the images it is studied on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.attention import explicit_attention
from brickwork.blueprint.computed_weights import plain_weights
from brickwork.blueprint.parts import Branches
from brickwork.blueprint.plan import CLASSES, Blueprint, trace
from brickwork.blueprint.record import refuse_scripted
from brickwork.blueprint.walk import rule_name
from brickwork.bricks.attribution import get
from brickwork.bricks.judge import logits_on
from brickwork.bricks.samples import (
    Data,
    DataOrImages,
    Samples,
    find_classes,
    has_masks,
    load_maps,
    load_samples,
    pair_of,
)
from brickwork.bricks.scores import Scores, score_channels
from brickwork.copying import copy_module
from brickwork.data.datasets import class_names_of, images_of, pair_of_dataset
from brickwork.data.images import ImageData
from brickwork.data.streamed import StreamedImages, unread
from brickwork.devices import DeviceLike, pick
from brickwork.errors import BadData, BadModel
from brickwork.origin import origin_of
from brickwork.words import counted, some_of

TURNS = ("permute", "transpose", "movedim", "swapaxes", "t", "numpy_T", "mT", "select", "squeeze")
MIXES = ("_softmax", "_log_softmax", "softmax", "log_softmax")
ANSWERED = 5000  # images whose logits are held at once, to be labelled
Classes = Sequence[str | int] | str | int | None  # None: all


@dataclass(frozen=True)
class Subject:
    whole: nn.Module  # a copy, in evaluation mode, on the device
    bp: Blueprint
    known: tuple[str, ...]  # names of all classes of the network
    wanted: list[int]  # the classes asked for
    samples: Samples
    judged: Samples  # of the test split, or the same as `samples`, whose held-out images judge
    heads: dict[str, Tensor] = field(
        default_factory=dict
    )  # of each open attention, what the dimensions of its heads say
    # where heads were opened: of each layer, that of the network given, in the order of that network
    given_layers: dict[str, str] = field(default_factory=dict)
    numbers: bool = False  # whether the answers are numbers, no classes' logits
    _logits: dict[int, Tensor] = field(default_factory=dict, repr=False)  # the whole's, by image

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes asked for."""
        return tuple(self.known[k] for k in self.wanted)

    def score(self, attribution: str, scored: int, seed: int, progress: bool) -> Scores:
        """Scores of every channel for the classes asked for, on at most `scored` of their images."""
        index = self.samples.of_classes(self.wanted, scored, seed)
        labels = torch.from_numpy(self.samples.labels[index]).to(self.samples.device)
        inputs = self.samples.inputs(index)
        words: list[Tensor] = []
        scores = score_channels(
            self.whole,
            self.bp,
            inputs,
            labels,
            attribution=attribution,
            progress=progress,
            answered=None if self.bp.answers_maps else lambda output: words.append(output.double().cpu()),
            numbers=self.numbers,
        )
        if words:
            self._logits.update(zip(index.tolist(), torch.cat(words), strict=True))
        silent = [self.known[k] for k in self.wanted if scores.counts[k] == 0]
        if silent and get(attribution).confident:  # of the others all images count, and a class may have none
            raise BadData(
                f"{attribution} scores only images the model is sure of, and there are none of {', '.join(silent)}; "
                "train the model further, or choose another attribution, such as taylor."
            )
        return scores

    def logits(self, index: np.ndarray) -> Tensor:
        """What the whole answers on these images, float64 on the CPU, a row per image, or per place of a map; images that
        were scored are not run again."""
        if self.bp.answers_maps:
            return logits_on(self.whole, self.samples, index, self.bp.output)
        new = np.array([k for k in index.tolist() if k not in self._logits], index.dtype)
        if len(new):
            result = logits_on(self.whole, self.samples, new, self.bp.output)
            self._logits.update(zip(new.tolist(), result, strict=True))
        return torch.stack([self._logits[k] for k in index.tolist()])


def prepare(
    model: nn.Module,
    classes: Classes,
    data: DataOrImages,
    *,
    device: DeviceLike | None,
    output: str | int | None,
    seed: int,
    labels: Literal["data", "network", "either"] = "data",
    all_stay: bool = False,
) -> Subject:
    """Check a request against network and data; the network given is left as it is.

    labels: of the data; the network's own answers; "either": these where the data is images alone.
    all_stay: every output stays, so that they need not be channels, and may be maps; one output is compared with itself,
    without labels, and so are maps without masks, as numbers where the network names no classes.
    """
    refuse_scripted(model)
    one_dtype(model)
    origin = origin_of(model)
    where = pick(device, of=model)
    whole = explicit_attention(copy_module(model)).eval().to(where)
    dtype = next((p.dtype for p in whole.parameters() if p.is_floating_point()), torch.float32)
    given: dict[str, Any] = {"preprocessing": origin.preprocessing, "device": where, "dtype": dtype}
    alone = isinstance(data, Tensor | np.ndarray | StreamedImages)
    answers = labels == "network" or (alone and labels == "either")
    way_on = " Images without labels of its classes are taken with `labels` network." if labels == "either" else ""
    labelled: Any = data if answers else pair_of_dataset(data, origin.classes)
    masked = not answers and has_masks(labelled)  # only a network that answers with maps is judged by them
    if answers or masked:
        images = unread(images_of(labelled))
    else:
        images = _labelled_images(labelled, way_on)
    if not len(images):
        raise BadData("there are no images in the data.")
    none = np.zeros(0, np.int64)
    probe = Samples(images, none, none, none, **given)
    whole = plain_weights(whole, probe.inputs(np.arange(min(2, len(images)))), output)
    bp = _traced(whole, probe, output, all_stay)
    if masked and not bp.answers_maps:
        _labelled_images(labelled, way_on)  # says what is wrong with such labels
    answers |= bp.outputs == 1
    known = origin.classes
    if known is None:
        named = None if answers or bp.answers_maps else class_names_of(data)
        if isinstance(data, ImageData) and not answers:
            named = data.mask_classes if bp.answers_maps else data.classes
        known = named if named is not None and len(named) == bp.outputs else tuple(map(str, range(bp.outputs)))
    wanted = list(range(len(known))) if classes is None else find_classes(classes, known)
    if len(known) != bp.outputs:
        raise BadModel(f"the model has {counted(bp.outputs, 'output')} and {counted(len(known), 'class name')}.")
    shape = bp.graph.output.shape[1:]
    if len(shape) > 1:
        given |= {"masked": labels != "network", "seed": seed}
        samples, judged = load_maps(labelled, shape, origin.classes, **given)
        numbers = bp.outputs == 1 or (origin.classes is None and samples.masks is None)
        return Subject(whole, bp, known, wanted, samples, judged, numbers=numbers)
    if answers:
        labelled = _answered(whole, labelled, probe, known, output)
    try:
        samples, judged = load_samples(labelled, known, origin.classes is not None, seed=seed, answers=answers, **given)
    except BadData as error:
        raise BadData(f"{error}{way_on}") from None
    missing = [repr(known[k]) for k in wanted if not (samples.labels[samples.use] == k).any()]
    if missing and answers and classes is not None:
        raise BadData(f"the network answers {some_of(missing, 10)} to none of the images; give some of every class.")
    if missing and not answers:
        way_on = "" if classes is not None else way_on
        raise BadData(f"there are no images of {some_of(missing, 10)} in the data; give some of every class.{way_on}")
    return Subject(whole, bp, known, wanted, samples, judged, numbers=bp.outputs == 1)


def _labelled_images(labelled: Data, way_on: str) -> Any:
    """The images of a pair, whose labels are checked."""
    try:
        return pair_of(labelled)[0]
    except BadData as error:
        raise BadData(f"{error}{way_on}") from None


def _answered(
    whole: nn.Module, data: DataOrImages, like: Samples, known: tuple[str, ...], output: str | int | None
) -> Data:
    """The images with what the network answers to them as labels."""

    def told(images: Any) -> np.ndarray:
        if not len(images):
            return np.zeros(0, np.int64)
        samples = replace(like, images=unread(images))
        parts = np.split(np.arange(len(images)), range(ANSWERED, len(images), ANSWERED))
        return np.concatenate([logits_on(whole, samples, part, output).argmax(1).numpy() for part in parts])

    if isinstance(data, ImageData):
        train, test = told(data.train_images), told(data.test_images)
        return replace(data, classes=known, train_labels=train, test_labels=test)
    images = images_of(data)
    return images, told(images)


def one_dtype(model: nn.Module) -> None:
    """Refuse a network of several precisions: what one of its layers answers could not be compared with another's."""
    kinds: dict[torch.dtype, str] = {}
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, Tensor):
            kind = type(tensor).__name__
            raise BadModel(
                f"{name} is a {kind}, and a part holds tensors only; leave out get_extra_state of that module."
            )
        if tensor.is_floating_point():
            kinds.setdefault(tensor.dtype, name)
    if len(kinds) > 1:
        (one, first), (two, second) = list(kinds.items())[:2]
        raise BadModel(f"{first} is {one} and {second} {two}; bring the model to one dtype first, as in model.float().")


def _traced(whole: nn.Module, samples: Samples, output: str | int | None, all_stay: bool) -> Blueprint:
    bp = trace(whole, samples.inputs(np.arange(min(2, len(samples.images)))), output=output)
    shape = bp.graph.output.shape
    classes_first = bp.output_dim == 1 or (bp.output_dim is None and _channels_first(bp))
    if bp.answers_maps and not (all_stay and classes_first):  # one label cannot be compared with a map
        way_on = "brickwork.compress takes such a model, and " if classes_first else ""
        raise BadModel(
            f"the model answers an image with a map of {' × '.join(map(str, shape[1:]))}, and parts of some classes are chosen "
            f"and judged by one row of logits an image; {way_on}brickwork.trace and select cut it by the channels that you name."
        )
    if all_stay and (CLASSES not in bp.spaces or bp.answers_maps) and not isinstance(whole, Branches):
        return bp
    if not bp.by_class:
        if isinstance(whole, Branches):
            raise BadModel(
                "the model is networks side by side (branches), and an output of one is no channel to choose by, as that of "
                "a single class is not; cut the bricks or models that it was joined from instead."
            )
        raise BadModel(_no_classes(bp))
    return bp


def _channels_first(bp: Blueprint) -> bool:
    """Whether the outputs still lie along the axis that a convolution makes them on, where no layout says so."""
    layers = {id(site.raw.op): site for site in bp.sites if site.kind in ("conv", "linear")}
    for op in reversed(bp.graph.live()):
        if id(op) in layers:
            return layers[id(op)].kind == "conv"
        if rule_name(op) in TURNS:
            return False
    return False


def _no_classes(bp: Blueprint) -> str:
    """Why the outputs are no classes to choose by, and the way on."""
    shape = bp.graph.output.shape
    if len(shape) == 1 or shape[1:] == (1,):
        return (
            "the model has one output, and parts are chosen and judged by classes; brickwork.compress makes it smaller as "
            "it is, and for all else give its last layer two rows, one of zeros and its own: their softmax is the sigmoid of "
            "the one."
        )
    layers = {id(site.raw.op) for site in bp.sites}
    behind = itertools.takewhile(lambda op: id(op) not in layers, reversed(bp.graph.live()))
    mixes = next((op for op in behind if rule_name(op) in MIXES), None)
    if mixes is not None:
        return (
            f"the model's outputs are mixed behind its last layer ({mixes.place}); take that away (nn.Identity() in its place), "
            "cut, and put it behind the part again, as in nn.Sequential(part, nn.Softmax(1)); brickwork.compress, which "
            "keeps every class, takes the model as it is."
        )
    return (
        "the model's outputs are not one channel per class, made by a linear or convolution layer; cut the network below "
        "what changes them, or name the right output with `output`."
    )
