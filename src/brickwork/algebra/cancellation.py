"""Why tasks cancel (paper 1, appendix B): training in sequence against assigning what was learned, θ_0 + g_1 + g_2.

The paper trains B, then A: θ_BA = θ_B − β L'_A(θ_B), and assigns θ_B − β L'_A(θ_0). Their gradients differ, to second order,
by −β_B Ĥ_A ĝ_B (GGC), so the weights by D = β_A β_B Ĥ_A ĝ_B. Here B is the first task, A the second. For T steps each, D is
predicted three ways: "ggc", as if T steps were one of T times the rate; "path", to first order in what the first task
really added, with the Hessian at every step of the second; "secant", −βT (L'_2(θ_1) − L'_2(θ_0)), without Taylor's theorem
(the Hessian does not see that a ReLU or a maximum switches).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from brickwork.algebra.cancellation_data import TaskImages, tasks_for
from brickwork.algebra.cancellation_result import ALL, Cancellation, Fit, Judged, Terms, layers_of
from brickwork.algebra.options import CancelOptions
from brickwork.copying import copy_module
from brickwork.devices import DeviceLike, pick
from brickwork.errors import BadData, BadModel, JobFailed, Unsupported
from brickwork.options import takes
from brickwork.outputs import logits_of
from brickwork.progress import bar

Loss = Callable[[Tensor, Tensor], Tensor]
PIECE = 50  # images at a time on a CPU


@takes(CancelOptions)
def cancel(
    base: nn.Module,
    first: Any,
    second: Any,
    *,
    loss: Loss | None = None,
    device: DeviceLike | None = None,
    progress: bool = True,
    options: CancelOptions,
) -> Cancellation:
    """How far the paper's second-order term explains what sequential training does; `base` is left unchanged.

    first, second: ImageData (its training images), or (images, labels), label k is output k. Both are trained on by plain
    gradient descent from `base`, in float64, with every lr and number of steps; batch_size: so many images a step, the
    same ones in every run, instead of all. bn: batch norms use the statistics of the batch, as in training, or
    "keep" the base's. loss(logits, labels): cross-entropy if not given. Dropout is off.

    >>> _ = torch.manual_seed(0)
    >>> net, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(2, 30, 4)
    >>> y = torch.randint(3, (2, 30))
    >>> found = cancel(net, (x[0], y[0]), (x[1], y[1]), lr=[0.001, 1.0], steps=[1], progress=False)
    >>> found.fit(0.001, 1).error["ggc"] < 0.01 < found.fit(1.0, 1).error["ggc"]
    True
    """
    rates, counts = sorted(options.lr), sorted(options.steps)
    where = pick(device, of=base)
    began = time.perf_counter()
    tasks = tasks_for(base, first, second, where, max(counts), options.batch_size, options.seed)
    slope = _Slope(base, options.bn, loss, where)
    for task in tasks:
        slope.check(task, plain=loss is None)
    if loss is None:
        tasks = [slope.in_pieces(task) for task in tasks]
    fits: list[Fit] = []
    judged: list[Judged] = []
    with bar("training", 1 + count_steps(rates, counts), show=progress) as advance:
        terms, gradient, product = _terms(slope, tasks)
        advance()
        for rate in rates:
            moved = {t: now for t, now, _ in _descend(slope, slope.start, tasks[0], rate, counts, advance)}
            for count in counts:
                step = moved[count] - slope.start
                (_, alone, tangent), *_ = _descend(slope, slope.start, tasks[1], rate, [count], advance, step)
                (_, in_sequence, _), *_ = _descend(slope, moved[count], tasks[1], rate, [count], advance)
                assigned = moved[count] + (alone - slope.start)
                assert tangent is not None
                guesses = {
                    "ggc": (rate * count) ** 2 * product,
                    "path": tangent - step,
                    "secant": -rate * count * (slope.gradient(moved[count], tasks[1].whole) - gradient),
                }
                real = in_sequence - assigned
                fits += _fits(slope, rate, count, real, alone - slope.start, guesses)
                networks = {
                    "start": slope.start,
                    "first": moved[count],
                    "second": alone,
                    "sequential": in_sequence,
                    "assigned": assigned,
                    "assigned + ggc": assigned + guesses["ggc"],
                }
                for name, theta in networks.items():
                    result = [slope.judge(theta, task, plain=loss is None) for task in tasks]
                    judged.append(Judged(rate, count, name, *zip(*result, strict=True)))
    names = (tasks[0].name, tasks[1].name)
    sizes = (len(tasks[0].labels), len(tasks[1].labels))
    seconds = round(time.perf_counter() - began, 3)
    return Cancellation(names, sizes, tuple(terms), tuple(fits), tuple(judged), seconds)


def count_steps(rates: Sequence[float], counts: Sequence[int]) -> int:
    """Of gradient descent: the first task up to the most, the second alone and in sequence for each count."""
    return len(rates) * (max(counts) + 2 * sum(counts))


class _Slope:
    """Loss, gradient and Hessian-vector products of a network as a function of its trainable weights, one long vector."""

    def __init__(self, base: nn.Module, bn: str, loss: Loss | None, where: torch.device) -> None:
        self.net = copy_module(base).to(where).double().eval()
        if bn == "batch":
            for module in self.net.modules():
                if isinstance(module, _BatchNorm):  # without statistics of its own it uses the batch's
                    module.running_mean = module.running_var = module.num_batches_tracked = None
        named = {n: p for n, p in self.net.named_parameters() if p.requires_grad}
        if not named:
            raise BadModel("every parameter of the network is frozen; there is nothing to train.")
        self.shapes = {n: p.shape for n, p in named.items()}
        self.start = torch.cat([p.detach().reshape(-1) for p in named.values()])
        if not bool(torch.isfinite(self.start).all()):
            raise BadModel("the network has weights that are NaN or infinite.")
        owners = [(layer, p.numel()) for layer, p in zip(layers_of(list(named)), named.values(), strict=True)]
        names = list(dict.fromkeys(layer for layer, _ in owners))
        number = torch.tensor([names.index(layer) for layer, _ in owners])
        owner = number.repeat_interleave(torch.tensor([count for _, count in owners]))
        self.layers = {name: (owner == k).nonzero()[:, 0].to(where) for k, name in enumerate(names)}
        self.loss = loss or F.cross_entropy

    def logits(self, theta: Tensor, images: Tensor) -> Tensor:
        parts = theta.split([shape.numel() for shape in self.shapes.values()])
        values = {n: part.view(shape) for (n, shape), part in zip(self.shapes.items(), parts, strict=True)}
        return logits_of(torch.func.functional_call(self.net, values, (images,)))

    @torch.no_grad()
    def in_pieces(self, task: TaskImages) -> TaskImages:
        """The task with all its images in pieces, where an image's logits do not hang on the others' (as in batch norm).

        Convolutions in float64 unfold what they are given: of pieces the memory stays in use, of large batches it is asked
        for and given back in every step, which takes as long as the work.
        """
        count = -(-len(task.images) // PIECE)
        if task.order is not None or count == 1 or self.start.device.type != "cpu":
            return task
        pieces = tuple(zip(task.images.tensor_split(count), task.labels.tensor_split(count), strict=True))
        whole = self.logits(self.start, task.images)
        apart = torch.cat([self.logits(self.start, images) for images, _ in pieces])
        same = torch.allclose(whole, apart, rtol=1e-9, atol=1e-9)
        return replace(task, whole=pieces) if same else task

    def gradient(self, theta: Tensor, batches: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        return self._over(theta, None, batches)[0]

    def product(self, theta: Tensor, vector: Tensor, batches: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """The gradient, and the Hessian times a vector (by differentiating ⟨gradient, vector⟩)."""
        return self._over(theta, vector, batches)

    def _over(
        self, theta: Tensor, vector: Tensor | None, batches: Sequence[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        total, slope, bend = sum(len(y) for _, y in batches), torch.zeros_like(theta), torch.zeros_like(theta)
        for images, labels in batches:
            here = theta.detach().requires_grad_()
            share = len(labels) / total
            with sdpa_kernel(SDPBackend.MATH):  # the others cannot be differentiated twice
                value = self.loss(self.logits(here, images), labels) * share
                (result,) = torch.autograd.grad(value, here, create_graph=vector is not None)
                slope += result.detach()
                if vector is not None and result.requires_grad:
                    bend += _again(result @ vector, here)
        return slope, bend

    @torch.no_grad()
    def judge(self, theta: Tensor, task: TaskImages, *, plain: bool) -> tuple[float, float | None]:
        """Mean loss and accuracy on all images of a task; accuracy for cross-entropy only."""
        lost, right = 0.0, 0
        for images, labels in task.whole:
            logits = self.logits(theta, images)
            lost += float(self.loss(logits, labels)) * len(labels)
            right += int((logits.argmax(1) == labels).sum()) if plain else 0
        return lost / len(task.labels), right / len(task.labels) if plain else None

    @torch.no_grad()
    def check(self, task: TaskImages, *, plain: bool) -> None:
        """Whether the network takes these images and has an output for every label."""
        try:
            shape = tuple(self.logits(self.start, task.whole[0][0]).shape)
        except (RuntimeError, ValueError) as error:
            summary = " ".join(str(error).split())
            raise BadModel(f"the network cannot be run on {task.name}: {summary[:200]}") from error
        low, high = float(task.labels.min()), float(task.labels.max())
        numbers = not task.labels.is_floating_point() and task.labels.ndim == 1
        if plain and not (numbers and len(shape) == 2 and 0 <= low <= high < shape[1]):
            raise BadData(
                f"{task.name} has labels from {low:g} to {high:g}, {tuple(task.labels.shape)}, and the network gives "
                f"{shape}; there must be one whole number an image, from 0, and an output for each."
            )


def _again(slope: Tensor, here: Tensor) -> Tensor:
    try:
        return torch.autograd.grad(slope, here, materialize_grads=True)[0]
    except RuntimeError as error:
        if "not implemented" not in str(error):
            raise
        summary = " ".join(str(error).split())
        raise Unsupported(f"the network has an operation without a second derivative: {summary[:200]}") from error


def _descend(
    slope: _Slope,
    theta: Tensor,
    task: TaskImages,
    lr: float,
    counts: Sequence[int],
    advance: Any,
    tangent: Tensor | None = None,
) -> Iterator[tuple[int, Tensor, Tensor | None]]:
    """Gradient descent; (steps, weights, tangent) after each of `counts`. A tangent is carried along to first order."""
    for t in range(1, max(counts) + 1):
        batches = task.step(t - 1)
        if tangent is None:
            theta = theta - lr * slope.gradient(theta, batches)
        else:
            gradient, bent = slope.product(theta, tangent, batches)
            theta, tangent = theta - lr * gradient, tangent - lr * bent
        if not bool(torch.isfinite(theta).all()):
            raise JobFailed(f"training on {task.name} with lr {lr:g} left the numbers in step {t}; a smaller lr helps.")
        advance()
        if t in counts:
            yield t, theta, tangent


def _terms(slope: _Slope, tasks: Sequence[TaskImages]) -> tuple[list[Terms], Tensor, Tensor]:
    """Everything at θ_0, layer by layer and as a whole; and the vectors ĝ_2 and Ĥ_2 ĝ_1."""
    first = slope.gradient(slope.start, tasks[0].whole)
    second, product = slope.product(slope.start, first, tasks[1].whole)
    everything = torch.arange(len(slope.start), device=slope.start.device)
    result = []
    for name, index in {ALL: everything, **slope.layers}.items():
        a, b, h = first[index], second[index], product[index]
        result.append(
            Terms(name, len(index), float(a.norm()), float(b.norm()), _cosine(a, b), float(h.norm()), float(a @ h))
        )
    return result, second, product


def _fits(slope: _Slope, lr: float, steps: int, real: Tensor, learned: Tensor, guesses: dict[str, Tensor]) -> list[Fit]:
    everything = torch.arange(len(real), device=real.device)
    result = []
    for name, index in {ALL: everything, **slope.layers}.items():
        part, size = real[index], float(real[index].norm())
        moved = float(learned[index].norm())
        cosine = {n: _cosine(g[index], part) for n, g in guesses.items()}
        error = {n: float((g[index] - part).norm()) / size if size else None for n, g in guesses.items()}
        result.append(Fit(lr, steps, name, size, size / moved if moved else None, cosine, error))
    return result


def _cosine(a: Tensor, b: Tensor) -> float | None:
    sizes = float(a.norm()) * float(b.norm())
    return max(-1.0, min(1.0, float(a @ b) / sizes)) if sizes else None
