"""`learn` a task: train temporary kernels, use the pool's nearest, keep the indices (paper 4)."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from brickwork import zoo
from brickwork.data.pixels import Images
from brickwork.devices import pick
from brickwork.errors import BadModel, RequestError
from brickwork.moments import reestimate_batch_norm
from brickwork.origin import attach, origin_of
from brickwork.pools.budget import Budget
from brickwork.pools.growing import Room
from brickwork.pools.growing_search import FREE, GrowingSearch
from brickwork.pools.layers import outputs_of, replace_head
from brickwork.pools.pool import KernelPool
from brickwork.pools.search import Search
from brickwork.pools.task import PRECISIONS, Task, class_names
from brickwork.prediction import input_of
from brickwork.training import train

Start = Task | nn.Module | str | None


def learn(
    pool: KernelPool,
    images: Images,
    labels: Any,
    *,
    classes: Sequence[str] | int | None = None,
    start: Start = None,
    beta: float = 0.5,
    epochs: int = 30,
    lr: float = 0.02,
    refresh: int = 4,
    stay: float = 0.0,
    free: float | None = None,
    anneal: bool = False,
    scale: bool = False,
    residual: Collection[str] = (),
    budget: int | None = None,
    precision: int = 16,
    norms: str = "running",
    fold: bool = False,
    grow: int | None = None,
    grow_bytes: int | None = None,
    seed: int = 0,
    device: str | torch.device | None = "auto",
    progress: bool = True,
    **training: Any,
) -> Task:
    """A task for these images, in kernels of the pool; the pool and the start are left unchanged.

    start: the pool's base (None), a task, a network of the pool's architecture, or "random".
    beta: of the commitment β Σ mean((kernel − weight)²). refresh: choose kernels every so many steps (the paper: in
    every one; 4 was as accurate at half the cost). stay: keep an index of the start until another kernel is closer by this
    many times the usual squared distance of neighbours; what stays costs almost no bytes. free: for this share of the run
    (0; 0.6 where the pool grows) the network uses the temporary kernels as they are. anneal: from soft to hard over the
    run. scale: a factor a layer. residual: layers that use two kernels in each place. budget: bytes that the task's file
    may take; only the changes of an index that gain most are made. precision: bits of the head's and the norms' values.
    norms: "running" statistics, or "measured" anew on the images afterwards; fold: told with the start's statistics, in
    half as many numbers. grow: the task may bring so many new kernels a layer (`Task.brings`), in a file of `grow_bytes` at
    most, which join where training leaves the pool's. Further options go to `brickwork.training.train`.
    """
    names = class_names(classes, labels)
    if precision not in PRECISIONS:
        raise RequestError(f"precision is {precision}; it must be {', '.join(map(str, PRECISIONS))}.")
    if norms not in ("running", "measured"):
        raise RequestError(f"norms is {norms!r}; it must be 'running' or 'measured'.")
    if budget is not None and norms == "measured":
        raise RequestError(
            "a budget is kept to the byte, which statistics measured afterwards would undo; leave one out."
        )
    room = Room.of(grow, grow_bytes)
    free = (0.0 if room is None else FREE) if free is None else free
    reference = start if isinstance(start, Task) else pool.base
    if reference is not None:
        pool.check_reference(reference)
    model = starting_model(pool, start, names, seed)
    search = Search(
        model,
        pool,
        reference,
        beta=beta,
        refresh=refresh,
        stay=stay,
        anneal=anneal,
        scale=scale,
        residual=residual,
        changes=None if budget is None else 0,
        free=free,
    )

    measure = norms == "measured"

    def told(facts: dict[str, Any]) -> Task:
        extra = {name: index.cpu().int() for name, index in search.extra.items()}
        # what is measured anew goes with the weights of norms as they were trained, not with folded ones
        brings = None if growing is None else growing.growth
        home = pool if brings is None else pool.grown_by(brings)
        return home.task_of(
            model,
            codes=search.codes,
            extra=extra,
            scales=search.scales,
            precision=precision,
            reference=reference,
            fold=fold and not measure,
            facts=facts,
            brings=brings,
        )

    facts = {
        "how": "learn",
        "epochs": epochs,
        "lr": lr,
        "beta": beta,
        "refresh": refresh,
        "stay": stay,
        "seed": seed,
        "images": len(images),
        **({"free": free} if free else {}),
    }
    limit = None if budget is None else Budget(budget, search, pool, lambda: told(facts))
    before = search.step if limit is None else limit.step
    growing = None if room is None else GrowingSearch(search, pool, room, before, seed=seed)
    result = train(
        model,
        images,
        labels,
        epochs=epochs,
        lr=lr,
        seed=seed,
        device=device,
        progress=progress,
        before_step=before if growing is None else growing.step,
        classes=names,
        **training,
    )
    if growing is None:
        search.choose()
    else:
        growing.finish()
    facts = {**facts, "training_accuracy": round(result.history[-1]["accuracy"], 6)}
    if limit is not None:
        facts["budget"] = budget
        limit.settle(lambda: told(facts))
    task = told(facts)
    search.finish()
    return measured_norms(pool, task, images, device=device, fold=fold) if measure else task


def starting_model(pool: KernelPool, start: Start, names: Sequence[str], seed: int) -> nn.Module:
    """A network of our own to train, with a head for these classes."""
    if start is None:
        if pool.base is None:
            raise RequestError(
                "the pool has no base network to start from; give start=, a task, a network or 'random'."
            )
        model, known = pool.rebuild(pool.base), pool.base.classes
    elif isinstance(start, Task):
        model, known = pool.rebuild(start), start.classes
    elif isinstance(start, nn.Module):
        pool.check(start)
        model, known = copy.deepcopy(start), origin_of(start).classes or ()
    elif start == "random":
        model, known = _random(pool, seed), ()
    else:
        raise RequestError(f"start is {start!r}; it must be None, a task, a network or 'random'.")
    if tuple(known) != tuple(names) or outputs_of(model, pool.head) != len(names):
        replace_head(model, pool.head, len(names), seed=seed)
    attach(model, replace(origin_of(model), classes=tuple(names)))
    return model.requires_grad_(True)


def measured_norms(
    pool: KernelPool,
    task: Task,
    images: Images,
    *,
    device: str | torch.device | None = "auto",
    batch_size: int = 250,
    fold: bool = False,
) -> Task:
    """The task with batch-norm statistics measured on these (unlabelled) images through the network as it is stored."""
    where = pick(device)
    model = pool.rebuild(task, device=where)
    inputs = torch.as_tensor(images)
    parts = inputs.tensor_split(max(1, -(-len(inputs) // batch_size)))
    prepared = (input_of(model, part, where) for part in parts)
    model = reestimate_batch_norm(model, prepared).cpu()
    return pool.for_task(task).task_of(
        model,
        codes=task.codes,
        extra=task.extra,
        scales=task.scales,
        precision=task.precision,
        reference=task.reference,
        fold=fold,
        facts=task.facts,
        brings=task.brings,
    )


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
