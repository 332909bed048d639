"""`learn` a task: train temporary kernels, use the pool's nearest, keep the indices (paper 4)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from brickwork import zoo
from brickwork.copying import copy_module
from brickwork.data.datasets import unpacked
from brickwork.data.images import ImageData
from brickwork.data.streamed import Images, unread
from brickwork.devices import DeviceLike, pick
from brickwork.errors import BadModel, RequestError
from brickwork.moments import reestimate_batch_norm
from brickwork.options import fields_of, takes
from brickwork.origin import attach, origin_of
from brickwork.pools.budget import Budget
from brickwork.pools.growing import GrowthBudget
from brickwork.pools.growing_search import GrowingSearch
from brickwork.pools.layers import outputs_of, replace_head
from brickwork.pools.options import LearnOptions
from brickwork.pools.pool import KernelPool
from brickwork.pools.search import Search
from brickwork.pools.task import PoolTask, labelled
from brickwork.prediction import input_of
from brickwork.training import TrainOptions, train

Start = PoolTask | nn.Module | str | None
RECORDED = ("epochs", "lr", "commitment", "refresh", "stay", "seed")


@takes(LearnOptions)
def learn(
    pool: KernelPool,
    data: ImageData | Images,
    labels: Any = None,
    *,
    classes: Sequence[str] | int | None = None,
    start: Start = None,
    device: DeviceLike | None = None,
    progress: bool = True,
    options: LearnOptions,
) -> PoolTask:
    """A task for these images, in kernels of the pool; the pool and the start are left unchanged.

    data: an ImageData, whose training split is used, or images with `labels`. start: the pool's base (None), a task, a
    network of the pool's architecture, or "random". commitment: β of β Σ mean((kernel − weight)²). refresh: choose kernels
    every so many steps (the paper: in every one; 4 was as accurate at half the cost). stay: keep an index of the start
    until another kernel is closer by this many times the usual squared distance of neighbours; what stays costs almost no
    bytes. free: for this share of the run (0; 0.6 where the pool grows) the network uses the temporary kernels as they
    are. budget: bytes that the task's file may take; only the changes of an index that gain most are made. bits: of the
    head's and the norms' values. norms: "running" statistics, or "measured" anew on the images afterwards; fold: stored
    with the start's statistics, in half as many numbers. grow: the task may bring so many new kernels per layer
    (`PoolTask.brings`), in a file of `grow_bytes` at most, which join where training leaves the pool's.

    >>> from brickwork import data, zoo
    >>> from brickwork.pools import KernelPool
    >>> digits = data.load("digits:0-2@20", size=8, channels=1)
    >>> pool = KernelPool.cluster([zoo.build("lenet", in_channels=1, seed=0)], size=16)
    >>> learn(pool, digits, epochs=1, device="cpu", progress=False).classes
    ('0', '1', '2')
    """
    data, labels, classes = unpacked(data, labels, classes)  # type: ignore[arg-type]
    images, names = labelled(data, labels, classes)
    reference = start if isinstance(start, PoolTask) else pool.base
    if reference is not None:
        pool.check_reference(reference)
    model = starting_model(pool, start, names, options.seed)
    search = Search(
        model,
        pool,
        reference,
        commitment=options.commitment,
        refresh=options.refresh,
        stay=options.stay,
        changes=None if options.budget is None else 0,
        free=options.free_share,
    )
    facts = {"how": "learn", **_recorded(options), "images": len(images)}
    # what is measured anew goes with the weights of norms as they were trained, not with folded ones
    fold = options.fold and options.norms == "running"

    def make_task() -> PoolTask:
        brings = None if growing is None else growing.growth
        home = pool if brings is None else pool.grown_by(brings)
        parts: dict[str, Any] = {"codes": search.codes, "facts": facts, "brings": brings}
        return home.task_of(model, bits=options.bits, reference=reference, fold=fold, **parts)

    budget = None if options.budget is None else Budget(options.budget, search, pool, make_task)
    before_step = search.step if budget is None else budget.step
    growth = GrowthBudget.of(options)
    growing = None if growth is None else GrowingSearch(search, pool, growth, before_step, seed=options.seed)
    result = train(
        model,
        data,
        labels,
        classes=names,
        device=device,
        progress=progress,
        before_step=before_step if growing is None else growing.step,
        **options.training(),
    )
    if growing is None:
        search.choose()
    else:
        growing.finish()
    facts["training_accuracy"] = round(result.history[-1]["accuracy"], 6)
    if budget is not None:
        budget.settle()
    task = make_task()
    search.finish()
    if options.norms == "measured":
        return measured_norms(pool, task, images, device=device, fold=options.fold)
    return task


def _recorded(options: LearnOptions) -> dict[str, Any]:
    """The options that a task's file keeps: those of the search, and three of training; every byte of it counts."""
    left_out = {*fields_of(TrainOptions), "record", "bits", "free"}
    changed = {name: value for name, value in options.changed().items() if name not in left_out}
    free = {"free": options.free_share} if options.free_share else {}
    return {name: getattr(options, name) for name in RECORDED} | changed | free


def starting_model(pool: KernelPool, start: Start, names: Sequence[str], seed: int) -> nn.Module:
    """A network of our own to train, with a head for these classes."""
    if start is None:
        if pool.base is None:
            raise RequestError(
                "the pool has no base network to start from; give `start`, a task, a network or 'random'."
            )
        model, known = pool.rebuild(pool.base), pool.base.classes
    elif isinstance(start, PoolTask):
        model, known = pool.rebuild(start), start.classes
    elif isinstance(start, nn.Module):
        pool.check(start)
        model, known = copy_module(start), origin_of(start).classes or ()
    elif start == "random":
        model, known = _random(pool, seed), ()
    else:
        raise RequestError(f"`start` is {start!r}; it must be None, a task, a network or 'random'.")
    if tuple(known) != tuple(names) or outputs_of(model, pool.head) != len(names):
        replace_head(model, pool.head, len(names), seed=seed)
    attach(model, replace(origin_of(model), classes=tuple(names)))
    return model.requires_grad_(True)


def measured_norms(
    pool: KernelPool,
    task: PoolTask,
    images: Images,
    *,
    device: DeviceLike | None = None,
    batch_size: int = 250,
    fold: bool = False,
) -> PoolTask:
    """The task with batch-norm statistics measured on these (unlabelled) images through the network as it is stored."""
    where = pick(device)
    model = pool.rebuild(task, device=where)
    inputs = unread(images)
    pieces = max(1, -(-len(inputs) // batch_size))
    parts_of = (inputs[torch.from_numpy(part)] for part in np.array_split(np.arange(len(inputs)), pieces))
    model = reestimate_batch_norm(model, (input_of(model, part, where) for part in parts_of)).cpu()
    parts: dict[str, Any] = {"codes": task.codes, "facts": task.facts, "brings": task.brings}
    return pool.for_task(task).task_of(model, bits=task.precision, reference=task.reference, fold=fold, **parts)


def _random(pool: KernelPool, seed: int) -> nn.Module:
    if pool.base is None:
        raise BadModel("the pool has no base network, whose preprocessing a random start takes over; give a network.")
    model, origin = pool.rebuild(pool.base), pool.base.origin
    if origin.arch is not None and not zoo.needs_import(origin.arch) and not (origin.steps or origin.parts):
        model = zoo.build(origin.arch, seed=seed, **origin.args)
    else:
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(seed)
            for module in model.modules():
                reset = getattr(module, "reset_parameters", None)
                if callable(reset):
                    reset()
    attach(model, origin)
    return model
