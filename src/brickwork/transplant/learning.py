"""Learn the adapter and nothing else: by labels, by the teacher's answers, by its pseudo-gradients, or several of them.

Every way says what it needs. Category and task module are frozen: their tensors are not touched.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from brickwork.blueprint.splitting import Above
from brickwork.copying import copy_module
from brickwork.data.images import IGNORE
from brickwork.errors import BadData, JobFailed, RequestError
from brickwork.options import takes
from brickwork.origin import origin_of
from brickwork.prediction import evaluating
from brickwork.progress import bar
from brickwork.training.options import TrainOptions
from brickwork.training.schedules import learning_rate
from brickwork.transplant.adapter import Adapter
from brickwork.transplant.chain import Chain, Dummy
from brickwork.transplant.class_order import places_in
from brickwork.transplant.closed_form import as_teachers, solve_pseudo_gradients
from brickwork.transplant.matching import match_features
from brickwork.transplant.options import WAYS, AdapterOptions, Way
from brickwork.transplant.token_adapter import AnyAdapter, TokenAdapter


@dataclass(frozen=True)
class LearnedAdapter:
    """An adapter, the options it was learned with, and the losses on the way."""

    adapter: AnyAdapter
    options: AdapterOptions
    history: list[dict[str, float]] = field(default_factory=list)


@takes(AdapterOptions)
def learn_adapter(
    adapter: AnyAdapter,
    task: Above,
    *,
    teacher: Above | None = None,
    features: Tensor | None = None,
    labels: Tensor | None = None,
    unlabelled: Tensor | None = None,
    wanted: Tensor | None = None,
    input_shape: Sequence[int] | None = None,
    example: Tensor | None = None,
    progress: bool = True,
    options: AdapterOptions,
) -> LearnedAdapter:
    """A copy of the adapter, learned so that task(adapter(x)) does what teacher(x) does; the modules are left unchanged.

    features, labels: what the category module gives for labelled images, and their labels (0/1 for a one-output task,
    class numbers, or masks). unlabelled: features of further images. wanted: for as many of these, from the first on, the
    features that the task is used to. example: features to read shapes off, where there
    are no others. schedule: lr as it is, "cosine" down to nothing, or "onecycle" up to it first. temperature: both
    answers are divided by it before they are compared; above 1, how sure the teacher is counts too. weight, per: the
    paper's 10 in λ = 10 / E[D'_T], and whether it is divided by the mean norm or by that of its square. alpha: of Eq. 3;
    None takes, once, before anything is learned, how much larger the teacher's gradients are than those that arrive at
    the adapter: 1 where both have one task module. dummy, size: of the pseudo-gradients, see Dummy and Chain.random. Biases
    begin at 0 and stay there where no term can see them. Where task and teacher know the same classes, their outputs are
    paired by name, else by their order.
    """
    tokens = isinstance(adapter, TokenAdapter)
    images = features is not None or unlabelled is not None
    options = options.resolved(images=images, tokens=tokens, own=wanted is not None)
    way, chosen = options.way, WAYS[options.way]
    _check(way, chosen, teacher, features, labels, unlabelled, example)
    if tokens and chosen.pseudo:
        raise RequestError(next(options.lacks(data=images, tokens=True)) + ".")
    if "own" in chosen.needs and (wanted is None or unlabelled is None):
        raise RequestError(f"{way} needs `wanted`, the features of the `unlabelled` images that the task is used to.")
    looked_at = features if features is not None else unlabelled if unlabelled is not None else example
    assert looked_at is not None
    new = copy_module(adapter).to(looked_at)
    if teacher is not None and "teacher" in chosen.needs:
        _check_answers(task, new, teacher, looked_at[:1], input_shape)
    order = None if teacher is None else places_in(origin_of(task).classes, origin_of(teacher).classes)
    dummy = Dummy(options.dummy, options.share, options.seed)
    if "own" in chosen.needs:
        assert unlabelled is not None and wanted is not None
        new = match_features(new, unlabelled[: len(wanted)], wanted)
        if not chosen.terms:
            return LearnedAdapter(new.eval(), options)
    if way.startswith("closed-form"):
        assert teacher is not None and isinstance(new, Adapter)
        new = solve_pseudo_gradients(
            new,
            Chain(task, new(looked_at[:1]).detach(), image=input_shape),
            Chain(teacher, looked_at[:1], image=input_shape),
            size=options.size,
            dummy=dummy,
            seed=options.seed,
            order=order,
        )
        if not chosen.terms:
            return LearnedAdapter(new.eval(), options)
    pool = [t for t in (features, unlabelled) if t is not None]
    pooled = torch.cat(pool) if pool else None
    job = _Job(new, task, teacher, features, labels, pooled, looked_at[:1], input_shape, dummy, options, order)
    terms = [name.rstrip("?") for name in chosen.terms if not (name == "task?" and labels is None)]
    seen = {"task", "answers", "jacobian"} & set(terms)
    trained = [p for name, p in new.named_parameters() if seen or not name.endswith("bias")]
    optimizer = torch.optim.Adam(trained, options.lr)
    course = TrainOptions(epochs=1, lr=options.lr, schedule=options.schedule)
    steps = options.steps
    history = []
    frozen = _frozen([m for m in (task, teacher) if m is not None])
    try:
        with bar("learning the adapter", steps, show=progress) as advance:
            for step in range(steps):
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(course, step, steps)
                losses = {name: job.term(name, step) for name in terms}
                total = torch.stack(list(losses.values())).sum()
                optimizer.zero_grad(set_to_none=True)
                total.backward()
                optimizer.step()
                if step % 50 == 0 or step == steps - 1:
                    row = {"step": float(step), **{k: float(v.detach()) for k, v in losses.items()}}
                    if not all(torch.isfinite(torch.tensor(v)) for v in row.values()):
                        raise JobFailed(f"the loss became {row} at step {step}; a smaller lr often helps.")
                    history.append(row)
                advance(1)
    finally:
        frozen()
    return LearnedAdapter(new.eval(), options, history)


def _check(
    way: str,
    chosen: Way,
    teacher: Any,
    features: Tensor | None,
    labels: Tensor | None,
    unlabelled: Tensor | None,
    example: Tensor | None,
) -> None:
    if "teacher" in chosen.needs and teacher is None:
        raise RequestError(f"{way} needs a teacher: the task module that the category module was trained with.")
    if "labels" in chosen.needs and labels is None:
        raise RequestError(f"{way} needs labels; without any, use back-distill, distill or closed-form.")
    if "images" in chosen.needs and features is None and unlabelled is None:
        raise RequestError(f"{way} needs images; without any, use back-distill or closed-form.")
    if (features is None) != (labels is None):
        raise BadData("give features and labels together; features without labels are `unlabelled`.")
    if features is None and unlabelled is None and example is None:
        raise RequestError("give example=, features of one image, to read shapes off.")
    for name, values in (("features", features), ("unlabelled", unlabelled)):
        if values is not None and len(values) == 0:
            raise BadData(f"{name} holds no images.")
    if features is not None and labels is not None and len(features) != len(labels):
        raise BadData(f"{len(features)} images and {len(labels)} labels.")


def _check_answers(
    task: Above, adapter: AnyAdapter, teacher: Above, example: Tensor, input_shape: Sequence[int] | None
) -> None:
    """A teacher's answers, or its gradients, say nothing to a task with other outputs."""
    shape = None if input_shape is None else (len(example), *input_shape[1:])
    with torch.no_grad(), evaluating(task), evaluating(teacher), evaluating(adapter):
        answers = [task(adapter(example), image=shape), teacher(example, image=shape)]
    given, taught = (answer.shape[1] for answer in answers)
    if given != taught:
        raise RequestError(
            f"the task has {given} outputs and its teacher {taught}, so nothing can be learned from that teacher; name one "
            "with as many outputs, or take direct-learn, with labels, or match, with images."
        )


def _frozen(modules: list[Above]) -> Callable[[], None]:
    """Modules in evaluation mode and without gradients; the call puts everything back."""
    before = [(p, p.requires_grad) for m in modules for p in m.parameters()]
    modes = [(m, m.training) for whole in modules for m in whole.modules()]
    for p, _ in before:
        p.requires_grad_(False)
    for whole in modules:
        whole.eval()

    def restore() -> None:
        for p, wanted in before:
            p.requires_grad_(wanted)
        for m, mode in modes:
            m.training = mode

    return restore


def task_loss(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over classes or masks; of a single output, against 0 and 1."""
    if output.shape[1] == 1 and output.dim() == 2:
        return F.binary_cross_entropy_with_logits(output[:, 0], target.to(output.dtype))
    if target.dim() == 1:  # a class may have the number that marks a pixel without one
        return F.cross_entropy(output, target.long())
    summed = F.cross_entropy(output, target.long(), ignore_index=IGNORE, reduction="sum")
    return summed / (target != IGNORE).sum().clamp(min=1)  # a batch in which no pixel counts teaches nothing


def take_step(optimizer: torch.optim.Optimizer, loss: Tensor, step: int) -> None:
    """One step down a loss; nothing moves where it is no number."""
    if not torch.isfinite(loss.detach()):
        raise JobFailed(f"the loss became {float(loss.detach())} at step {step}; a smaller lr often helps.")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


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


@dataclass
class _Job:
    """The terms of the loss, each on a batch of its own."""

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
        self.chains: tuple[Chain, Chain] | None = None
        self.alpha = self.options.alpha

    def term(self, name: str, step: int) -> Tensor:
        return {"task": self._task, "answers": self._answers, "jacobian": self._jacobian, "pseudo": self._pseudo}[name](
            step
        )

    def _some(self, count: int) -> Tensor:
        return torch.randint(0, count, (min(self.options.batch_size, count),), generator=self.draw)

    def _shape(self, x: Tensor) -> Sequence[int] | None:
        return None if self.input_shape is None else (len(x), *self.input_shape[1:])

    def _task(self, step: int) -> Tensor:
        assert self.features is not None and self.labels is not None
        some = self._some(len(self.features))
        x = self.features[some.to(self.features.device)]
        output = self.task(self.adapter(x), image=self._shape(x))
        return task_loss(output, self.labels[some.to(self.labels.device)].to(output.device))

    def _answers(self, step: int) -> Tensor:
        assert self.pool is not None and self.teacher is not None
        x = self.pool[self._some(len(self.pool)).to(self.pool.device)]
        with torch.no_grad():
            answer = self._paired(self.teacher(x, image=self._shape(x)))
        output = self.task(self.adapter(x), image=self._shape(x))
        if output.shape != answer.shape:
            raise RequestError(
                f"the task answers with {tuple(output.shape[1:])} and its teacher with {tuple(answer.shape[1:])}, no "
                "example for it; use direct-learn with labels."
            )
        return answer_loss(output, answer, self.options.temperature)

    def _paired(self, answer: Tensor) -> Tensor:
        """The teacher's answer as the task's outputs stand."""
        return answer if self.order is None else answer[:, self.order]

    def _jacobian(self, step: int) -> Tensor:
        """Eq. 3 with true gradients: the student's by double backward."""
        assert self.pool is not None and self.teacher is not None
        x = self.pool[self._some(len(self.pool)).to(self.pool.device)].detach().requires_grad_()
        answer = self._paired(self.teacher(x, image=self._shape(x)))
        draw = torch.Generator(x.device).manual_seed(self.options.seed * 7919 + step)
        gradient = 2 * torch.rand(answer.shape, generator=draw, device=x.device, dtype=x.dtype) - 1
        (wanted,) = torch.autograd.grad(answer, x, gradient)
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels of attention have no second derivative
            inside = self.adapter(x)
            output = self.task(inside, image=self._shape(x))
            result, arrived = torch.autograd.grad(output, (x, inside), gradient, create_graph=True)
        return self._difference(result, wanted.detach(), arrived.detach())

    def _pseudo(self, step: int) -> Tensor:
        assert self.teacher is not None
        like = next(self.adapter.parameters())
        if self.chains is None:
            with torch.no_grad():
                inside = self.adapter(self.example)
            self.chains = (
                Chain(self.task, inside, image=self.input_shape),
                Chain(self.teacher, self.example, image=self.input_shape),
            )
        student, teacher = self.chains
        dummy = Dummy(self.dummy.kind, self.dummy.share, seed=self.options.seed * 100003 + step)
        gradient = student.random(
            self.options.batch_size, size=self.options.size, seed=self.options.seed * 7919 + step, like=like
        )
        with torch.no_grad():
            arrived, wanted = student(gradient, dummy), teacher(as_teachers(gradient, self.order), dummy)
        assert isinstance(self.adapter, Adapter)
        result = self.adapter.back(arrived)
        if result.shape != wanted.shape:
            raise RequestError(
                f"student and teacher send back {tuple(result.shape[1:])} and {tuple(wanted.shape[1:])}; their task "
                "modules must shrink features alike, or use a way without pseudo-gradients."
            )
        return self._difference(result, wanted, arrived)

    def _difference(self, found: Tensor, wanted: Tensor, arrived: Tensor) -> Tensor:
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
