from collections.abc import Sequence
from os import PathLike

from brickwork.engine.jobs import Job as Job
from brickwork.engine.jobs import JobResult as JobResult
from brickwork.engine.jobs import ResultStore as ResultStore
from brickwork.engine.options import EngineOptions as EngineOptions

__all__ = ["EngineOptions", "Job", "JobResult", "ResultStore", "run"]

# from brickwork.engine.running import run
def run(
    jobs: Sequence[Job], *, engine: str = "inline", gpu_share: float = 0.0, store: str | PathLike[str] | None = None,
    progress: bool = True, options: EngineOptions | None = None,
) -> list[JobResult]: ...
