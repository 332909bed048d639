"""A training step as one CUDA graph: small batches no longer wait for Python to start their kernels."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class RecordedStep:
    """Gradients of one batch: a few calls go as they are (kernels are chosen, buffers allocated), the next is recorded.

    reset: drops the gradients of the call before. needed: a step that cannot be recorded is an error, not left as it is.
    """

    EAGER = 5

    def __init__(self, reset: Callable[[], None], *, record: bool, needed: bool = True) -> None:
        self.reset, self.record, self.needed = reset, record, needed
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.given: list[Tensor] = []
        self.returned: Sequence[Tensor] = ()

    def __call__(self, step: Callable[..., Sequence[Tensor]], *given: Tensor) -> Sequence[Tensor]:
        """What `step` returns, tensors without gradients, which the next call overwrites once it is recorded.

        It leaves the gradients, and is the same in every call: the same operations on tensors of the same shapes.
        """
        self.calls += 1
        if self.record and self.calls > self.EAGER and (self.graph is not None or self._recorded(step, given)):
            for held, value in zip(self.given, given, strict=True):
                held.copy_(value)
            assert self.graph is not None
            self.graph.replay()
            return self.returned
        self.reset()
        return step(*given)

    def _recorded(self, step: Callable[..., Sequence[Tensor]], given: Sequence[Tensor]) -> bool:
        """Whether there is a recording now; gradients made in it belong to it, and are overwritten by each replay."""
        self.reset()
        self.given = [value.clone() for value in given]
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream(given[0].device)
        torch.cuda.synchronize(given[0].device)
        try:
            with torch.cuda.graph(graph):
                self.returned = step(*self.given)
        except RuntimeError:
            if self.needed:
                raise
            torch.cuda.set_stream(stream)  # a recording that fails leaves its own behind
            self.record = False
            return False
        self.graph = graph
        return True
