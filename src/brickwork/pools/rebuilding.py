"""A task's network out of the pool's: the same module, its weights looked up, its other tensors the task's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from brickwork.copying import copy_module
from brickwork.errors import BadModel
from brickwork.origin import attach
from brickwork.pools.layers import outputs_of, replace_head
from brickwork.pools.task import PoolTask
from brickwork.store.folder import complete_in_state
from brickwork.store.weights import put_state

if TYPE_CHECKING:
    from brickwork.pools.pool import KernelPool


def rebuilt(pool: KernelPool, task: PoolTask) -> nn.Module:
    """An ordinary module in evaluation mode; a task of another pool or network is refused."""
    pool = pool.for_task(task)
    model = copy_module(pool.template)
    weight = pool.head_weight
    if weight not in task.own:
        raise BadModel(f"the task has no head {weight!r}; it is of another network.")
    if outputs_of(model, pool.head) != len(task.own[weight]):
        replace_head(model, pool.head, len(task.own[weight]))
    if task.classes and len(task.classes) != len(task.own[weight]):
        raise BadModel(
            f"the task names {len(task.classes)} classes and its head, {pool.head!r}, has {len(task.own[weight])}."
        )
    state = {name: value.clone() for name, value in task.own.items()}
    state |= {s.parameter: pool.weight(task, n) for n, s in pool.shapes.items()}
    expected = {k: v for k, v in model.state_dict().items() if k not in pool.tied}
    for name in [*(n for n in expected if n not in state), *(n for n in state if n not in expected)]:
        raise BadModel(f"the task is of another network: {name} is in only one of the two.")
    for name, value in expected.items():
        if state[name].shape != value.shape:
            raise BadModel(
                f"the task is of another network: {name} is {tuple(state[name].shape)}, not {tuple(value.shape)}."
            )
    full = {**state, **{alias: state[name] for alias, name in pool.tied.items()}}
    put_state(model, full, assign=True)
    for alias, name in pool.tied.items():
        parent, _, leaf = alias.rpartition(".")
        source, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, getattr(model.get_submodule(source), attribute))
    attach(model, task.origin)
    return model.eval()


def bare(model: nn.Module) -> nn.Module:
    """A copy without values where the state dict brings them all; else with them."""
    alike = copy_module(model).cpu()
    return alike.to("meta") if complete_in_state(model) else alike
