"""Joint fine-tuning (paper 3, appendix): parts of a net trained together on labelled images of several routes.

Everything else in this package leaves every earlier answer bit for bit as it was. This does not: a part that is trained
answers differently on every route that uses it. Which routes those are is told, and all others stay as they were.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from brickwork.copying import copy_module
from brickwork.data import ImageData
from brickwork.errors import BadData, RequestError
from brickwork.options import takes
from brickwork.prediction import eval_mode, input_of
from brickwork.progress import bar
from brickwork.transplant.growth import GrownNet
from brickwork.transplant.learning import take_step
from brickwork.transplant.net import TransplantNet
from brickwork.transplant.options import TuneOptions
from brickwork.transplant.route import judge, route_model, targets_for
from brickwork.transplant.terms import task_loss
from brickwork.words import scores_text, table


@takes(TuneOptions)
def tune(
    net: TransplantNet, routes: Sequence[tuple[str, str, ImageData]], *, progress: bool = True, options: TuneOptions
) -> GrownNet:
    """A net whose parts on these routes were trained together by Adam; the one given is left as it is.

    routes: (category, task, labelled images). parts: which kinds of parts may change. Norms keep their statistics and
    dropout is off. note["changed"] names the routes that answer differently now.

    >>> from brickwork import data, zoo
    >>> from brickwork.transplant import add
    >>> net = add(None, zoo.build("lenet", seed=0), at="pool1", category="dog", task="classify").net
    >>> tune(net, [("dog", "classify", data.load("digits@2", size=32))], steps=1, progress=False).note["changed"]
    [['dog', 'classify']]
    """
    parts, seed = options.parts, options.seed
    _check(net, routes)
    made, trained = _copied(net, routes, parts)
    wanted = [targets_for(route_model(net, c, t), images) for c, t, images in routes]
    before = [judge(route_model(net, c, t), i, w) for (c, t, i), w in zip(routes, wanted, strict=True)]
    _train(made, trained, routes, wanted, options, progress)
    changed = [route for route in net.routes if _parts_of(made, *route) & {id(module) for module in trained}]
    notes: list[dict[str, Any]] = []
    for (c, t, images), targets, was in zip(routes, wanted, before, strict=True):
        now = judge(route_model(made, c, t), images, targets)
        notes.append({"category": c, "task": t, "data": images.name, "before": was, "after": now})
        made.notes[c, t] = {**made.notes.get((c, t), {}), "tuned": {"data": images.name, "after": now, "seed": seed}}
    rows = [(n["category"], n["task"], scores_text(n["before"]), scores_text(n["after"])) for n in notes]
    text = table(["category", "task", "before", "after"], rows)
    text += "\nother answers than before: " + ", ".join(f"{c} → {t}" for c, t in changed)
    note = {"parts": list(parts), "routes": notes, "changed": [list(route) for route in changed]}
    return GrownNet(made, note, options, text)


def _check(net: TransplantNet, routes: Sequence[tuple[str, str, ImageData]]) -> None:
    if not routes:
        raise RequestError("nothing to tune: name a category, a task and labelled images.")
    for category, task, images in routes:
        net.category(category), net.task(task)
        if (category, task) not in net.routes:
            raise RequestError(f"{category} does not reach {task}; connect them first.")
        if len(images.train_images) == 0:
            raise BadData(f"{images.name} has no training images to tune on.")


def _copied(
    net: TransplantNet, routes: Sequence[tuple[str, str, ImageData]], parts: Sequence[str]
) -> tuple[TransplantNet, list[nn.Module]]:
    """The net with its own copies of what is trained; every other part is the old one's."""
    made = net._grown()
    trained: list[nn.Module] = []
    for category, task in dict.fromkeys((c, t) for c, t, _ in routes):
        if "categories" in parts and made.categories[category] is net.categories[category]:
            old = net.categories[category]
            made.categories[category] = replace(old, module=copy_module(old.module))
            trained.append(made.categories[category].module)
        if "tasks" in parts and made.tasks[task] is net.tasks[task]:
            old_task = net.tasks[task]
            made.tasks[task] = replace(old_task, module=copy_module(old_task.module))
            trained.append(made.tasks[task].module)
        adapter = made.routes[category, task]
        if "adapters" in parts and adapter is not None:
            made.routes[category, task] = copy_module(adapter)
            trained.append(made.routes[category, task])  # type: ignore[arg-type]
    if not trained:
        raise RequestError(f"there is nothing of the kind {', '.join(parts)} on these routes.")
    return made._settled(), trained


def _train(
    net: TransplantNet,
    trained: Sequence[nn.Module],
    routes: Sequence[tuple[str, str, ImageData]],
    wanted: Sequence[Any],
    options: TuneOptions,
    progress: bool,
) -> None:
    steps = options.steps
    numbers = [p for module in trained for p in module.parameters()]
    before = [(p, p.requires_grad) for p in net.parameters()]
    for p, _ in before:
        p.requires_grad_(False)  # parts that are not trained are the given net's own
    optimizer = torch.optim.Adam([p.requires_grad_(True) for p in numbers], options.lr)
    draw = torch.Generator().manual_seed(options.seed)
    turns = itertools.cycle(zip(routes, wanted, strict=True))
    try:
        with eval_mode(net), bar("tuning together", steps, show=progress) as advance:
            for step in range(steps):
                (category, task, images), targets = next(turns)
                model = route_model(net, category, task)
                some = torch.randint(
                    0, len(images.train_images), (min(options.batch_size, len(images.train_images)),), generator=draw
                )
                x = input_of(model, images.train_images[some.numpy()])
                answers = torch.as_tensor(targets.of(images, "train")[some.numpy()]).long().to(x.device)
                loss = task_loss(model(x), answers)
                take_step(optimizer, loss, step)
                advance(1)
    finally:
        for p in numbers:
            p.grad = None
        for p, wanted_grad in before:
            p.requires_grad_(wanted_grad)


def _parts_of(net: TransplantNet, category: str, task: str) -> set[int]:
    adapter = net.routes[category, task]
    return {id(net.category(category).module), id(net.task(task).module), id(adapter)}
