"""Growing a net on images: learn an adapter between two of its parts, or a task module on its categories' features."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.splitting import split
from brickwork.data import DataSpec, ImageData
from brickwork.data import load as load_images
from brickwork.devices import device_of
from brickwork.errors import BadData, BadModel, BrickworkError, RequestError
from brickwork.html_table import facts_table
from brickwork.options import Options, refuse, takes
from brickwork.origin import attach, origin_of
from brickwork.prediction import evaluating, input_of, precision_of
from brickwork.transplant.adapter import Adapter, balance
from brickwork.transplant.layout import Layout
from brickwork.transplant.learning import LearnedAdapter, learn_adapter
from brickwork.transplant.net import TransplantNet
from brickwork.transplant.options import NO_OWN, WAYS, AdapterOptions, LearnTaskOptions
from brickwork.transplant.route import RouteModel, Targets, judge, route_model, targets_for
from brickwork.transplant.task_learning import learn_task
from brickwork.transplant.token_adapter import AnyAdapter, TokenAdapter
from brickwork.transplant.views import blends_of, views_of
from brickwork.words import scores_text

BATCH = 128  # images in a pass
SCALED_ON = 256  # images from which the paper's β is taken


@dataclass(frozen=True)
class GrownNet:
    """A net that grew by one route or more, and what is known of them; text: the same for people."""

    net: TransplantNet
    note: dict[str, Any]
    options: Options
    text: str
    learned: LearnedAdapter | None = None

    def to_dict(self) -> dict[str, Any]:
        return {**self.note, "options": self.options.to_dict()}

    def __str__(self) -> str:
        return self.text

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        return self.net.save(folder, force=force)

    def _repr_html_(self) -> str:
        return facts_table([(name, str(value)) for name, value in self.note.items()])


@takes(AdapterOptions)
def connect(
    net: TransplantNet,
    category: str,
    task: str,
    *,
    data: ImageData | None = None,
    teacher: str | None = None,
    force: bool = False,
    progress: bool = True,
    options: AdapterOptions,
) -> GrownNet:
    """The net with an adapter from a category to a task more; no part of it changes.

    data: images of the category; its training split to learn on, its test split to judge by. teacher: the task that the
    category is known to do well; by default one that it came with.

    >>> from brickwork import zoo
    >>> from brickwork.transplant import add
    >>> net = add(None, zoo.build("lenet", seed=0), at="pool1", category="dog", task="classify").net
    >>> net = add(net, zoo.build("lenet", seed=1), at="pool1", category="cat", task="cats").net
    >>> list(connect(net, "cat", "classify", way="closed-form", progress=False).net.routes)
    [('dog', 'classify'), ('cat', 'cats'), ('cat', 'classify')]
    """
    tokens = any(side.tokens for side in _layouts(net, category, task))
    own = own_categories(net, category, task)
    how = options.resolved(images=data is not None, tokens=tokens, own=bool(own))
    refuse(how.needs(data=data is not None, tokens=tokens))
    if "own" in WAYS[how.way].needs and not own:
        raise RequestError(NO_OWN.format(task=task, way=how.way) + ".")
    known = teacher_of(net, category, task, teacher, needed="teacher" in WAYS[how.way].needs)
    start = _adapter(net, category, task, how, data)
    net.connect(category, task, start, force=force)  # refused now, not after the work
    where = device_of(net.category(category).module)
    start.to(where, precision_of(net.category(category).module))
    old = route_model(net, category, task, None if (category, task) in net.routes else start)
    targets = _targets(net, category, task, start, data, needed=how.labels > 0)
    features, labels = _labelled(net, category, data, how, targets)
    chosen = _unlabelled(data, how)
    unlabelled = None if chosen is None else features_of(net, category, chosen)
    wanted = features_of(net, own[0], chosen) if chosen is not None and "own" in WAYS[how.way].needs else None
    example = torch.zeros(1, *net.category(category).gives, device=where, dtype=next(start.parameters()).dtype)
    learned = learn_adapter(
        start,
        net.task(task).module,
        teacher=None if known is None else net.task(known).module,
        features=features,
        labels=labels,
        unlabelled=unlabelled,
        wanted=wanted,
        example=example,
        input_shape=(1, *net.input_shape),
        progress=progress,
        options=how,
    )
    note: dict[str, Any] = {
        "way": how.way,
        "teacher": known,
        **({} if wanted is None else {"matched_to": own[0]}),
        "labels": 0 if labels is None else len(labels) // how.views,
        "images": 0 if unlabelled is None else len(unlabelled) // (how.views + how.blends),
        "looks": sum(len(x) for x in (labels, unlabelled) if x is not None),
        "data": None if data is None else data.name,
        "seed": how.seed,
        "options": how.to_dict(),
        "loss": learned.history[-1] if learned.history else None,
    }
    if data is not None and targets is not None:
        taught = None if known is None else route_model(net, category, known)
        note["judged_by"] = targets.by
        note["teacher_test"] = None if taught is None else _of_teacher(taught, data)
        note["before"] = judge(old, data, targets)
        note["after"] = judge(route_model(net, category, task, learned.adapter), data, targets)
    grown = net.connect(category, task, learned.adapter, force=force, note=note)
    return GrownNet(grown, note, how, f"{category} → {task} by {how.way}{_learned_on(note)}", learned)


def _learned_on(note: dict[str, Any]) -> str:
    """What an adapter was learned on, and how often the route is right, for people."""
    text = f", taught by {note['teacher']}" if "teacher" in WAYS[note["way"]].needs else ""
    text += f": {note['labels']} labelled and {note['images']} unlabelled images"
    if note["looks"] > note["labels"] + note["images"]:
        text += f", {note['looks']} views and blends of them"
    if not note.get("after"):
        return f"{text}\nno test images that the task can be judged by"
    scores = {"before": note["before"], "after": note["after"], note["teacher"]: note["teacher_test"]}
    return f"{text}\ntest images right: " + ", ".join(f"{name} {scores_text(value)}" for name, value in scores.items())


@takes(LearnTaskOptions)
def add_learned_task(
    net: TransplantNet,
    model: nn.Module,
    task: str,
    *,
    at: str,
    on: Sequence[str],
    data: Sequence[ImageData],
    carry: Sequence[str] = (),
    progress: bool = True,
    options: LearnTaskOptions,
) -> GrownNet:
    """The net with a task module more, learned on features of its categories: the upper half of `model` is where it starts.

    on, data: categories, and labelled images of each. The categories stay as they are.
    """
    if len(on) != len(data) or not on:
        raise RequestError(f"{len(on)} categories and {len(data)} data sets; give one data set per category.")
    halves = split(model, at, carry=carry, image=net.input_shape)
    bare = net.add_task(task, halves.above, on)  # shapes are checked here
    kinds = {one.classes for one in data}
    if len(kinds) > 1:
        raise BadData(f"the data sets of task {task} have different classes; select the same ones, in one order.")
    seen, answers, targets = [], [], []
    for name, one in zip(on, data, strict=True):
        targets.append(targets_for(route_model(bare, name, task), one))
        seen.append(features_of(bare, name, one.train_images))
        answers.append(torch.as_tensor(targets[-1].of(one, "train")).long())
    above = learn_task(
        halves.above,
        torch.cat(seen),
        torch.cat(answers).to(seen[0].device),
        input_shape=(1, *net.input_shape),
        progress=progress,
        options=options,
    )
    attach(above, replace(origin_of(above), classes=targets[0].classes))
    grown = net.add_task(task, above, on)
    notes: dict[str, dict[str, Any]] = {}
    for name, one, wanted in zip(on, data, targets, strict=True):
        notes[name] = {
            "way": "learned",
            "data": one.name,
            "labels": len(one.train_images),
            "judged_by": wanted.by,
            "after": judge(route_model(grown, name, task), one, wanted),
        }
        grown.notes[name, task] = notes[name]
    right = [
        f"learned on {name}: {scores_text(note['after'])} of the test images right" for name, note in notes.items()
    ]
    return GrownNet(grown, notes, options, "\n".join([added(net, grown), *right]))


def added(net: TransplantNet, grown: TransplantNet) -> str:
    """What a net has more than before, for people."""
    parts = [f"category {name}" for name in grown.categories if name not in net.categories]
    parts += [f"task {name}" for name in grown.tasks if name not in net.tasks]
    count = f"categories: {len(grown.categories)}, tasks: {len(grown.tasks)}, routes: {len(grown.routes)}"
    return f"{' and '.join(parts)} added; {count}"


def images_for(net: TransplantNet, spec: str | DataSpec, seed: int) -> ImageData:
    """The images a spec names, in the size and channels that the net takes."""
    channels, height, width = net.input_shape
    return load_images(spec, seed=seed, size=(height, width), channels=channels)


def teacher_of(net: TransplantNet, category: str, task: str, teacher: str | None, *, needed: bool) -> str | None:
    """The task whose answers for this category are to be kept: the one asked for, else one that it came with."""
    net.category(category), net.task(task)
    reached = [t for c, t in net.routes if c == category and t != task]
    if teacher is not None:
        net.task(teacher)
        if teacher not in reached:
            raise RequestError(
                f"{category} does not reach {teacher}, so that cannot be its teacher; it reaches "
                f"{', '.join(reached) or 'nothing else'}."
            )
        if net.routes[category, teacher] is not None:
            raise RequestError(
                f"{category} reaches {teacher} through an adapter; a teacher reads the category's features as they are."
            )
        return teacher
    came_with = [t for t in reached if net.routes[category, t] is None]
    if not came_with and needed:
        raise RequestError(
            f"{category} came with no other task, so it has no teacher; use direct-learn with labels, or add the network "
            "that it was cut from whole."
        )
    return came_with[0] if came_with else None


def features_of(net: TransplantNet, category: str, images: np.ndarray) -> Tensor:
    """A category's features of raw images, computed once, by batches."""
    module = net.category(category).module
    result = []
    with evaluating(module):
        for start in range(0, len(images), BATCH):
            result.append(net.features(input_of(module, images[start : start + BATCH]), category)[0])
    if not result:
        raise BadData("there are no images to look at.")
    return torch.cat(result)  # outside inference mode, so that what is learned on them has gradients


def own_categories(net: TransplantNet, category: str, task: str) -> list[str]:
    """Other categories that a task came with: their features are what it is used to."""
    return [c for (c, t), adapter in net.routes.items() if t == task and adapter is None and c != category]


def _layouts(net: TransplantNet, category: str, task: str) -> tuple[Layout, Layout]:
    """How the features of both sides lie; refused where no adapter can be learned between them."""
    net.category(category), net.task(task)
    carried = net.category(category).module.carried
    if carried:
        raise BadModel(
            f"{category} carries {', '.join(carried)} past the cut; adapters are learned at cuts that nothing else crosses. "
            "Cut the network lower, below its skip connections."
        )
    return net.layouts(category, task)


def _adapter(net: TransplantNet, category: str, task: str, how: AdapterOptions, data: ImageData | None) -> AnyAdapter:
    """Where the learning starts: channels of both sides, the paper's reordering, its β where images tell it."""
    source, target = _layouts(net, category, task)
    order = None
    if how.reorder is not None:
        order = torch.randperm(source.channels, generator=torch.Generator().manual_seed(how.reorder))
    given: dict[str, Any] = {name: getattr(how, name) for name in ("layers", "kernel", "start", "seed")}
    usual = _usual_features(net, category, task, data)
    scale = 1.0 if usual is None else balance(*usual)
    if not (source.tokens or target.tokens):
        return Adapter(source.channels, target.channels, order=order, scale=scale, **given)
    if usual is None:
        positive = not target.tokens
    else:  # the mean of squares, not their sum: both sides may have as many places as they like
        scale *= (usual[1][0].numel() / usual[0][0].numel()) ** 0.5
        positive = bool((usual[0] >= 0).all())
    given |= {"resize": how.resize, "prefix": how.prefix, "positive": positive}
    return TokenAdapter(source, target, order=order, scale=scale, **given)


def _usual_features(
    net: TransplantNet, category: str, task: str, data: ImageData | None
) -> tuple[Tensor, Tensor] | None:
    """What a task is used to, told by a category that it came with, and what it is to get; None where nothing tells."""
    own = own_categories(net, category, task)
    if not own or data is None or len(data.train_images) == 0:
        return None
    some = data.train_images[:: max(1, len(data.train_images) // SCALED_ON)][:SCALED_ON]
    return features_of(net, own[0], some), features_of(net, category, some)


def _targets(
    net: TransplantNet, category: str, task: str, adapter: AnyAdapter, data: ImageData | None, *, needed: bool
) -> Targets | None:
    if data is None:
        return None
    try:
        return targets_for(route_model(net, category, task, adapter), data)
    except BadData:
        if needed:
            raise
        return None  # nothing to learn from and nothing to judge by, but images all the same


def _of_teacher(own: RouteModel, data: ImageData) -> dict[str, float] | None:
    try:
        return judge(own, data, targets_for(own, data))
    except BrickworkError:
        return None


def _labelled(
    net: TransplantNet, category: str, data: ImageData | None, how: AdapterOptions, targets: Targets | None
) -> tuple[Tensor | None, Tensor | None]:
    if not how.labels or data is None or targets is None:
        return None, None
    few = data.take(how.labels, seed=how.seed)
    images, answers = views_of(
        few.train_images, targets.of(few, "train"), count=how.views, augment=how.augment, seed=how.seed
    )
    features = features_of(net, category, images)
    return features, torch.as_tensor(answers).long().to(features.device)


def _unlabelled(data: ImageData | None, how: AdapterOptions) -> np.ndarray | None:
    """The images that are looked at without their labels: some of them, their views, and blends of them."""
    if data is None or "images" not in WAYS[how.way].needs or "labels" in WAYS[how.way].needs:
        return None
    drawn = np.random.default_rng([how.seed, 3]).permutation(len(data.train_images))[: how.images]
    chosen = data.train_images[np.sort(drawn)]
    look: dict[str, Any] = {"augment": how.augment, "seed": how.seed}
    images, _ = views_of(chosen, count=how.views, **look)
    return np.concatenate([images, blends_of(chosen, count=how.blends, **look)])
