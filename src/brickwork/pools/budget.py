"""A task in so many bytes: how many indices may change is found by writing the file now and then and looking."""

from __future__ import annotations

from collections.abc import Callable

from brickwork.errors import JobFailed, RequestError
from brickwork.pools.pool import KernelPool
from brickwork.pools.search import Search
from brickwork.pools.task import Task
from brickwork.pools.taskfile import write_task

LOOKS = 24  # at the size of the file, over a run
FIRST = 12.0  # bits of a change, before anything is known


class Budget:
    """Keeps a search within `size` bytes, header, norms and head included; `tell` says the task as it is now."""

    def __init__(self, size: int, search: Search, pool: KernelPool, tell: Callable[[], Task]) -> None:
        if size < 1:
            raise RequestError(f"budget is {size} bytes; it must be above 0.")
        self.size, self.search, self.pool, self.tell = size, search, pool, tell
        self.total = sum(layer.count for layer in pool.shapes.values())

    def step(self, step: int, steps: int) -> None:
        """Before a training step."""
        if step == 0 or step % max(1, steps // LOOKS) == 0:
            self.look()
        self.search.step(step, steps)

    def look(self) -> None:
        """Allow as many changes as the bytes that are left pay for, at what a change costs now."""
        used, made = self.measure(self.tell())
        fixed = used - made * self.cost / 8 if made else used
        self.search.changes = min(self.total, max(0, int((self.size - fixed) * 8 / self.cost)))

    cost = FIRST

    def measure(self, task: Task) -> tuple[int, int]:
        """Bytes of the file, and how many indices differ; what a change costs is learned on the way."""
        other = task.reference
        assert other is not None
        used = len(write_task(task, self.pool, ("base", other)))
        made = sum(int((codes != other.codes[name]).sum()) for name, codes in task.codes.items())
        if made > 100:
            same = Task(
                task.pool,
                task.origin,
                other.codes,
                task.own,
                task.extra,
                task.scales,
                task.precision,
                other,
                task.facts,
            )
            self.cost = max(1.0, 8 * (used - len(write_task(same, self.pool, ("base", other)))) / made)
        return used, made

    def settle(self, tell: Callable[[], Task]) -> None:
        """After training: give up the changes that gain least until the file is small enough."""
        for _ in range(40):
            used, made = self.measure(tell())
            if used <= self.size:
                return
            if made == 0:
                break
            spare = int((used - self.size) * 8 / self.cost) + 1
            self.search.changes = max(0, made - max(spare, made // 200))
            self.search.choose()
        raise JobFailed(
            f"the budget is {self.size} bytes, and norms, head and header alone take {used}; give more, or a lower "
            "precision."
        )
