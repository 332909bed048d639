"""Learn the adapter and nothing else: by labels, by the teacher's answers, by its pseudo-gradients, or several of them.

Every way says what it needs. Category and task module are frozen: their tensors are not touched.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from brickwork.blueprint.splitting import Above
from brickwork.copying import copy_module
from brickwork.errors import BadData, JobFailed, RequestError
from brickwork.options import takes
from brickwork.origin import origin_of
from brickwork.prediction import evaluating
from brickwork.progress import bar
from brickwork.training.options import TrainOptions
from brickwork.training.recording import RecordedStep
from brickwork.training.run import tuned
from brickwork.training.schedules import learning_rate
from brickwork.transplant.adapter import Adapter
from brickwork.transplant.chain import Chain, Dummy
from brickwork.transplant.class_order import places_in
from brickwork.transplant.closed_form import solve_pseudo_gradients
from brickwork.transplant.matching import match_features
from brickwork.transplant.options import WAYS, AdapterOptions, Way
from brickwork.transplant.terms import Terms
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
    names = [name.rstrip("?") for name in chosen.terms if not (name == "task?" and labels is None)]
    terms = Terms(
        names, new, task, teacher, features, labels, pooled, looked_at[:1], input_shape, dummy, options, order
    )
    seen = {"task", "answers", "jacobian"} & set(names)
    trained = [p for name, p in new.named_parameters() if seen or not name.endswith("bias")]
    on_gpu = looked_at.device.type == "cuda"
    optimizer = torch.optim.Adam(trained, options.lr, fused=on_gpu)
    recorded = RecordedStep(partial(optimizer.zero_grad, set_to_none=True), record=on_gpu, needed=False)
    course = TrainOptions(epochs=1, lr=options.lr, schedule=options.schedule)
    steps = options.steps
    history = []
    frozen = _frozen([m for m in (task, teacher) if m is not None])
    try:
        with tuned(looked_at.device), bar("learning the adapter", steps, show=progress) as advance:
            for step in range(steps):
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(course, step, steps)
                drawn = terms.drawn(step)
                gradients = partial(_gradients, terms, [len(some) for some in drawn])
                losses = recorded(gradients, *(tensor for some in drawn for tensor in some))
                optimizer.step()
                if step % 50 == 0 or step == steps - 1:
                    row = {"step": float(step), **{k: float(v) for k, v in zip(names, losses, strict=True)}}
                    if not all(torch.isfinite(torch.tensor(v)) for v in row.values()):
                        raise JobFailed(f"the loss became {row} at step {step}; a smaller lr often helps.")
                    history.append(row)
                advance(1)
    finally:
        frozen()
    return LearnedAdapter(new.eval(), options, history)


def _gradients(terms: Terms, counts: Sequence[int], *given: Tensor) -> list[Tensor]:
    """Each term's loss, and the adapter's gradients by their sum; counts: of the tensors given, how many are each term's."""
    left = iter(given)
    losses = terms.losses([list(islice(left, count)) for count in counts])
    torch.stack(losses).sum().backward()
    return [loss.detach() for loss in losses]


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


def take_step(optimizer: torch.optim.Optimizer, loss: Tensor, step: int) -> None:
    """One step down a loss; nothing moves where it is no number."""
    if not torch.isfinite(loss.detach()):
        raise JobFailed(f"the loss became {float(loss.detach())} at step {step}; a smaller lr often helps.")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
