"""The options of an engine: where jobs run."""

import re
from collections.abc import Iterator

from brickwork.options import Options, option


class EngineOptions(Options, panel="Many jobs"):
    """Where the jobs of a command run."""

    engine: str = option(
        default="inline",
        metavar="WHERE",
        help="Where jobs run: inline (one after the other, here), processes[:N] or ray[:ADDRESS].",
    )
    gpu_share: float = option(
        default=0.0, at_least=0, at_most=1, help="Share of a GPU per job on Ray, where jobs without one see none."
    )

    def rules(self) -> Iterator[str]:
        if not re.fullmatch(r"inline|processes(:0*[1-9][0-9]*)?|ray(:.+)?", self.engine):
            yield f"`engine` is {self.engine!r}; it must be inline, processes[:N] or ray[:ADDRESS]"
        elif self.gpu_share and not self.engine.startswith("ray"):
            yield f"`gpu_share` is for `engine` ray; jobs of {self.engine} share a GPU as it is, so leave it out"

    @property
    def elsewhere(self) -> bool:
        """Whether jobs leave this process."""
        return self.engine != "inline"
