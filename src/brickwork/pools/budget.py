"""A task in so many bytes: the file is written now and then, and its size says how many indices may change."""

from collections.abc import Callable
from dataclasses import replace

from brickwork.errors import JobFailed, RequestError
from brickwork.pools.pool import KernelPool
from brickwork.pools.search import Search
from brickwork.pools.task import PoolTask
from brickwork.pools.taskfile import write_task

LOOKS = 10  # at the size of the file, over a run
_NAME = "k7-vq2.wz_x9+mt4-pb0.ry6"  # as long as a task's name may well be: which one it will have is not known here
FIRST = 12.0  # bits of a change, before anything is known


class Budget:
    """Keeps a search within `size` bytes, header, norms and head included; `make_task` gives the task as it is now."""

    def __init__(self, size: int, search: Search, pool: KernelPool, make_task: Callable[[], PoolTask]) -> None:
        self.size, self.search, self.pool, self.make_task = size, search, pool, make_task
        self.total = sum(layer.count for layer in pool.shapes.values())
        self.cost = FIRST  # bits that a change takes
        self.fixed = 0  # bytes of all that is no change of an index

    def step(self, step: int, steps: int) -> None:
        """Before a training step."""
        every = max(1, steps // LOOKS)
        if step == 0 or step % every == 0:
            task = self.make_task()
            if step == 0 or step == every:  # by then norms and head have moved, and take what they will take
                self.fixed = self._bytes(replace(task, codes=_reference(task).codes))
            # before anything is trained; what is trained may be coded a little shorter, but not by so much
            if step == 0 and 0.8 * self.fixed > self.size:
                raise RequestError(
                    f"`budget` is {self.size} bytes, and norms, head and header alone take about {self.fixed}; "
                    "give more, or fewer `bits`."
                )
            self._learn_cost(task)
            self.search.changes = min(self.total, max(0, int((self.size - self.fixed) * 8 / self.cost)))
        self.search.step(step, steps)

    def settle(self) -> None:
        """After training: give up the changes that gain least until the file is small enough."""
        task = self.make_task()
        self.fixed = self._bytes(replace(task, codes=_reference(task).codes))
        if self.fixed > self.size:
            raise JobFailed(
                f"`budget` is {self.size} bytes, and norms, head and header alone take {self.fixed}; give more, or fewer "
                "`bits`."
            )
        used, made = self._learn_cost(task)
        while used > self.size:
            spare = int((used - self.size) * 8 / self.cost) + 1
            self.search.changes = max(0, made - max(spare, made // 200))
            self.search.choose()
            used, made = self._learn_cost(self.make_task())

    def _learn_cost(self, task: PoolTask) -> tuple[int, int]:
        """Bytes of the file, and how many indices differ; what one costs is learned on the way."""
        other = _reference(task)
        used = self._bytes(task)
        made = sum(int((codes != other.codes[name]).sum()) for name, codes in task.codes.items())
        if made > 100:
            self.cost = max(1.0, 8 * (used - self.fixed) / made)
        return used, made

    def _bytes(self, task: PoolTask) -> int:
        other = _reference(task)
        return len(write_task(task, self.pool, ("base" if other is self.pool.base else _NAME, other)))


def _reference(task: PoolTask) -> PoolTask:
    assert task.reference is not None  # the search has seen to it
    return task.reference
