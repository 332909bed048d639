"""The terms of the loss that an adapter is learned by: what each looks at in a step, and what it makes of that."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from brickwork.blueprint.splitting import Above
from brickwork.data.images import IGNORE
from brickwork.errors import RequestError
from brickwork.transplant.adapter import Adapter
from brickwork.transplant.chain import Chain, Dummy
from brickwork.transplant.closed_form import as_teachers
from brickwork.transplant.options import AdapterOptions
from brickwork.transplant.token_adapter import AnyAdapter


def task_loss(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over classes or masks; of a single output, against 0 and 1."""
    if output.shape[1] == 1 and output.dim() == 2:
        return F.binary_cross_entropy_with_logits(output[:, 0], target.to(output.dtype))
    if target.dim() == 1:  # a class may have the number that marks a pixel without one
        return F.cross_entropy(output, target.long())
    summed = F.cross_entropy(output, target.long(), ignore_index=IGNORE, reduction="sum")
    return summed / (target != IGNORE).sum().clamp(min=1)  # a batch in which no pixel counts teaches nothing


def answer_loss(output: Tensor, answer: Tensor, temperature: float = 1.0) -> Tensor:
    """Cross-entropy against the teacher's answers, both softened by a temperature; its square keeps gradients as large.

    >>> far, near = torch.tensor([[9.0, 0.0]]), torch.tensor([[6.0, 0.0]])  # as good as the same answer, at temperature 1
    >>> [round(float(answer_loss(near, far, t) - answer_loss(far, far, t)), 2) for t in (1.0, 10.0)]
    [0.0, 0.96]
    """
    words, wanted = output / temperature, answer / temperature
    if output.shape[1] == 1:
        return temperature**2 * F.binary_cross_entropy_with_logits(words, wanted.sigmoid())
    return temperature**2 * F.cross_entropy(words, wanted.softmax(1))


def _rows(features: Tensor, some: Tensor) -> Tensor:
    """Some images' features, on a GPU in the memory order that its convolutions are fast in."""
    x = features[some.to(features.device)]
    return x.contiguous(memory_format=torch.channels_last) if x.is_cuda and x.dim() == 4 else x


KEPT_ANSWERS = 2**26  # numbers


@dataclass
class Terms:
    """The terms of one adapter's loss, each on a batch of its own.

    A step's draws (`drawn`) are apart from what is computed on them (`losses`), so that the latter can be recorded.
    """

    names: Sequence[str]
    adapter: AnyAdapter
    task: Above
    teacher: Above | None
    features: Tensor | None
    labels: Tensor | None
    pool: Tensor | None  # features of all images, labelled or not
    example: Tensor
    input_shape: Sequence[int] | None
    dummy: Dummy
    options: AdapterOptions
    order: list[int] | None = None  # for each output of the task the teacher's of the same class

    def __post_init__(self) -> None:
        self.draw = torch.Generator().manual_seed(self.options.seed)
        self.alpha = self.options.alpha
        # on the device once: a recorded step cannot wait for it
        self._order = None if self.order is None else torch.tensor(self.order, device=self.example.device)

    def drawn(self, step: int) -> list[tuple[Tensor, ...]]:
        """What each term looks at in a step."""
        draws = {
            "task": self._task_drawn,
            "answers": self._answers_drawn,
            "jacobian": self._jacobian_drawn,
            "pseudo": self._pseudo_drawn,
        }
        return [draws[name](step) for name in self.names]

    def losses(self, given: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """Each term's loss on what was drawn for it."""
        terms: dict[str, Callable[..., Tensor]] = {
            "task": self._task,
            "answers": self._answers,
            "jacobian": self._jacobian,
            "pseudo": self._pseudo,
        }
        return [terms[name](*drawn) for name, drawn in zip(self.names, given, strict=True)]

    def _some(self, count: int) -> Tensor:
        return torch.randint(0, count, (min(self.options.batch_size, count),), generator=self.draw)

    def _shape(self, x: Tensor) -> Sequence[int] | None:
        return None if self.input_shape is None else (len(x), *self.input_shape[1:])

    def _task_drawn(self, step: int) -> tuple[Tensor, ...]:
        assert self.features is not None and self.labels is not None
        some = self._some(len(self.features))
        labels = self.labels[some.to(self.labels.device)]
        return _rows(self.features, some), labels.to(self.features.device)

    def _task(self, x: Tensor, labels: Tensor) -> Tensor:
        return task_loss(self.task(self.adapter(x), image=self._shape(x)), labels)

    def _answers_drawn(self, step: int) -> tuple[Tensor, ...]:
        assert self.pool is not None
        some = self._some(len(self.pool))
        x = _rows(self.pool, some)
        return (x,) if self._all_answers is None else (x, self._all_answers[some.to(x.device)])

    def _answers(self, x: Tensor, *known: Tensor) -> Tensor:
        answer = known[0] if known else self._answer(x)
        output = self.task(self.adapter(x), image=self._shape(x))
        if output.shape != answer.shape:
            raise RequestError(
                f"the task answers with {tuple(output.shape[1:])} and its teacher with {tuple(answer.shape[1:])}, no "
                "example for it; use direct-learn with labels."
            )
        return answer_loss(output, answer, self.options.temperature)

    @cached_property
    def _all_answers(self) -> Tensor | None:
        """The teacher's answers to every image, where all steps together look at more images than there are, and they fit."""
        assert self.pool is not None
        numbers = len(self.pool) * math.prod(self._answer_shape)
        if len(self.pool) > self.options.steps * self.options.batch_size or numbers > KEPT_ANSWERS:
            return None
        return torch.cat([self._answer(part) for part in self.pool.split(self.options.batch_size)])

    def _answer(self, x: Tensor) -> Tensor:
        assert self.teacher is not None
        with torch.no_grad():
            return self._paired(self.teacher(x, image=self._shape(x)))

    def _paired(self, answer: Tensor) -> Tensor:
        """The teacher's answer as the task's outputs stand."""
        return answer if self._order is None else answer.index_select(1, self._order)

    def _jacobian_drawn(self, step: int) -> tuple[Tensor, ...]:
        assert self.pool is not None
        x = _rows(self.pool, self._some(len(self.pool)))
        draw = torch.Generator(x.device).manual_seed(self.options.seed * 7919 + step)
        shape = (len(x), *self._answer_shape)
        return x, 2 * torch.rand(shape, generator=draw, device=x.device, dtype=x.dtype) - 1

    @cached_property
    def _answer_shape(self) -> tuple[int, ...]:
        return tuple(self._answer(self.example).shape[1:])

    def _jacobian(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Eq. 3 with true gradients: the student's by double backward."""
        assert self.teacher is not None
        x = x.detach().requires_grad_()
        answer = self._paired(self.teacher(x, image=self._shape(x)))
        (wanted,) = torch.autograd.grad(answer, x, gradient)
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels of attention have no second derivative
            inside = self.adapter(x)
            output = self.task(inside, image=self._shape(x))
            result, arrived = torch.autograd.grad(output, (x, inside), gradient, create_graph=True)
        return self.difference(result, wanted.detach(), arrived.detach())

    @cached_property
    def chains(self) -> tuple[Chain, Chain]:
        """The student's and the teacher's."""
        assert self.teacher is not None
        with torch.no_grad():
            inside = self.adapter(self.example)
        chains = (self.task, inside), (self.teacher, self.example)
        student, teacher = (Chain(above, features, image=self.input_shape) for above, features in chains)
        return student, teacher

    def _pseudo_drawn(self, step: int) -> tuple[Tensor, ...]:
        options = self.options
        self.dummy = self.dummy.reseeded(options.seed * 100003 + step)
        like = next(self.adapter.parameters())
        seed = options.seed * 7919 + step
        return (self.chains[0].random(options.batch_size, size=options.size, seed=seed, like=like),)

    def _pseudo(self, gradient: Tensor) -> Tensor:
        student, teacher = self.chains
        with torch.no_grad():
            arrived, wanted = student(gradient, self.dummy), teacher(as_teachers(gradient, self._order), self.dummy)
        assert isinstance(self.adapter, Adapter)
        result = self.adapter.back(arrived)
        if result.shape != wanted.shape:
            raise RequestError(
                f"student and teacher send back {tuple(result.shape[1:])} and {tuple(wanted.shape[1:])}; their task "
                "modules must shrink features alike, or use a way without pseudo-gradients."
            )
        return self.difference(result, wanted, arrived)

    def difference(self, found: Tensor, wanted: Tensor, arrived: Tensor) -> Tensor:
        """λ‖α·D_S − D_T‖² a sample, D_S = found what the adapter makes of the gradient that arrives at it.

        α is fixed: were it taken from what the adapter makes, every step would shrink the adapter (its scale would be free,
        and a gradient never points towards a larger one).
        """
        norms = wanted.flatten(1).norm(dim=1)
        if self.alpha is None:
            self.alpha = float(norms.mean() / arrived.flatten(1).norm(dim=1).mean().clamp(min=1e-30))
        size = norms.mean() if self.options.per == "norm" else norms.square().mean()
        error = (self.alpha * found - wanted).flatten(1).square().sum(1).mean()
        return self.options.weight * error / size.clamp(min=1e-30)
