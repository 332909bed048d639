"""Whatever a network's norms hold, a task file gives it back to the last bit."""

from __future__ import annotations

import pytest
import torch

from brickwork import zoo
from brickwork.origin import Preprocessing, attach, origin_of
from brickwork.pools import KernelPool
from brickwork.pools.taskfile import read_task, write_task


@pytest.mark.parametrize("precision", [32, 16, 12])
@pytest.mark.parametrize(
    "values",
    [(1e9, 3.0), (1e-9, 1.0), (1.0 + 2**-20, -2.0), (65504.0, 1e-7), (-0.0, 5.0), (1e-3, 1.23456789)],
    ids=["beyond half", "tiny beside one", "fine", "widest", "negative zero", "ordinary"],
)
def test_values_that_halves_cannot_tell_are_told_in_full(precision, values):
    model = zoo.build("resnet8", num_classes=2, in_channels=1, width=4, seed=0)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer[:2] = torch.tensor(values)
    prepared = Preprocessing((8, 8), 1, (0.0,), (1.0,))
    attach(model, type(origin_of(model))(arch="resnet8", args=origin_of(model).args, preprocessing=prepared))
    pool = KernelPool.cluster([model], size=8)
    task = pool.task_of(model, bits=precision)
    back = read_task(write_task(task, pool, None), pool, "the file")
    assert back.hash == task.hash
    for name, value in task.own.items():
        assert torch.equal(value, back.own[name]), name
