"""Coefficients learned on unlabelled images: θ_0 + Σ_k λ_k^l (θ_k − θ_0), one λ a layer and model.

AdaMerging (Yang 2023, arXiv 2310.02575): λ minimises the mean entropy of the answers. The paper gives every task a head
of its own (`heads`, on networks that answer with features); without, the head is merged like every other layer, and where tasks
share its outputs a network can be sure of itself by answering one task only. goal="teachers" learns from what each network itself
says of its own images.
Batch norms normalise by the batch while λ is learned, every batch holding images of all tasks, and get statistics of
all the images, mixed, at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from brickwork.algebra.agreement import refuse_differences
from brickwork.algebra.alignment import recalibrated
from brickwork.algebra.data_methods import find
from brickwork.algebra.deltas import delta
from brickwork.algebra.inputs import ModelTask, tasks_of
from brickwork.algebra.states import like, shapes_of
from brickwork.copying import copy_module
from brickwork.data.streamed import Images
from brickwork.errors import JobFailed
from brickwork.outputs import logits_of, of_classes
from brickwork.prediction import evaluating
from brickwork.progress import bar
from brickwork.store.weights import tied_names


@dataclass(frozen=True)
class LearnedCoefficients:
    """The network, and λ for every layer and model; with per="task" there is one row, "all".

    entropy: mean over all the images, in nats, with every λ at its start and with what was learned.
    """

    model: nn.Module = field(repr=False)
    coefficients: Mapping[str, tuple[float, ...]]
    entropy: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        rows = {layer: list(row) for layer, row in self.coefficients.items()}
        return {"coefficients": rows, "entropy": list(self.entropy)}

    def __str__(self) -> str:
        width = max(len(layer) for layer in self.coefficients)
        rows = [f"{n:<{width}}  {'  '.join(f'{c:.3f}' for c in row)}" for n, row in self.coefficients.items()]
        before, after = self.entropy
        return "\n".join([*rows, f"mean entropy {before:.4f} before, {after:.4f} after"])


def adamerge(
    models: Sequence[nn.Module],
    images: Sequence[Images],
    *,
    base: nn.Module,
    heads: Sequence[nn.Module] | None = None,
    progress: bool = True,
    **options: Any,
) -> LearnedCoefficients:
    """λ for every layer (or one a model, per="task"), learned on unlabelled images of all tasks; nothing is changed.

    options: goal "entropy" (the paper's) or "teachers" (cross-entropy to model k's answers on the k-th images; one set a
    model); per "layer" or "task"; steps (500), lr (1e-3) and batch_size (16 images a set) of Adam; start (0.3), where
    every λ begins; limit (1), λ stays between 0 and it: larger weights are surer of anything; seed of the batches. heads: what
    makes logits of features, one a model, where the models are trunks; images are then one set a model.

    >>> zero, a = nn.Linear(4, 3), nn.Linear(4, 3)
    >>> found = adamerge([a], [torch.randn(40, 4)], base=zero, steps=3, progress=False)
    >>> list(found.coefficients), len(found.coefficients["itself"])
    (['itself'], 1)
    """
    chosen = find("adamerging")
    count = None if heads is None else len(heads)
    chosen.check(len(models), len(images), base=True, heads=count, options=options)
    every = {f"model {k}": m for k, m in enumerate(models)} | {"the base": base}
    refuse_differences(shapes_of(every))
    tasks = tasks_of(models, images, pairs=chosen.pairs(options, count), labels=False)
    return _learn(list(models), tasks, base, heads, progress, options)


def merged(
    models: list[nn.Module],
    tasks: list[ModelTask],
    *,
    base: nn.Module,
    progress: bool,
    heads: Sequence[nn.Module] | None = None,
    **options: Any,
) -> tuple[nn.Module, dict[str, Any]]:
    """As `merge_on` calls it."""
    result = _learn(models, tasks, base, heads, progress, options)
    return result.model, result.to_dict()


def _learn(
    models: list[nn.Module],
    tasks: list[ModelTask],
    base: nn.Module,
    heads: Sequence[nn.Module] | None,
    progress: bool,
    options: Mapping[str, Any],
) -> LearnedCoefficients:
    options = {name: options.get(name, known.default) for name, known in find("adamerging").options.items()}
    space = _Space(models, base, options["per"])
    start = min(options["start"], options["limit"])
    first = next(base.parameters())
    wide = torch.promote_types(first.dtype, torch.float32)
    scale = torch.full((len(space.layers), len(models)), start, dtype=wide, device=first.device)
    scale.requires_grad_()
    optimizer = torch.optim.Adam([scale], lr=options["lr"])
    generator = torch.Generator().manual_seed(options["seed"])
    tops = [copy_module(h).eval().requires_grad_(False) for h in heads or [nn.Identity()] * len(tasks)]
    words = None
    if options["goal"] == "teachers":
        words = [_answers(m, top, t.own) for m, top, t in zip(models, tops, tasks, strict=True)]
    with bar("learning coefficients", options["steps"], show=progress) as advance:
        for step in range(options["steps"]):
            drawn = [_drawn(t.images, options["batch_size"], generator) for t in tasks]
            batch = torch.cat([t.images[index] for t, index in zip(tasks, drawn, strict=True)])
            parts = space.answer(scale, batch).split([len(index) for index in drawn])
            logits = [top(part) for top, part in zip(tops, parts, strict=True)]
            if words is None:
                losses = [entropy(some) for some in logits]
            else:
                losses = [F.cross_entropy(some, y[i]) for some, y, i in zip(logits, words, drawn, strict=True)]
            shares = [len(index) / len(batch) for index in drawn]
            loss = torch.stack([share * one for share, one in zip(shares, losses, strict=True)]).sum()
            if not bool(torch.isfinite(loss)):
                raise JobFailed(f"the loss became {loss.item()} in step {step + 1}; a smaller lr often helps.")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                scale.clamp_(0, options["limit"])
            advance(1, f"loss {loss.item():.4f}")
    result = scale.detach()
    begun, model = (
        recalibrated(space.network(s, models[0]), tasks, seed=options["seed"])
        for s in (torch.full_like(result, start), result)
    )
    rows = {n: tuple(round(float(c), 6) for c in row) for n, row in zip(space.layers, result.tolist(), strict=True)}
    return LearnedCoefficients(model, rows, (_mean_entropy(begun, tops, tasks), _mean_entropy(model, tops, tasks)))


class _Space:
    """Networks base + Σ λ (model − base); buffers are the base's, and batch norms use the batch."""

    def __init__(self, models: list[nn.Module], base: nn.Module, per: str) -> None:
        self.net = copy_module(base).eval().requires_grad_(False)
        for module in self.net.modules():
            if isinstance(module, _BatchNorm):
                module.train()
        self.base = {n: p.detach() for n, p in self.net.named_parameters()}
        moved = [delta(m, base).tensors for m in models]  # refuses what is not finite
        self.steps = {n: torch.stack([g[n].to(zero) for g in moved]) for n, zero in self.base.items()}
        home = {n: "all" if per == "task" else n.rpartition(".")[0] or "itself" for n in self.base}
        self.layers = list(dict.fromkeys(home.values()))
        self.row = {n: self.layers.index(layer) for n, layer in home.items()}
        self.buffers = {n: b.clone() for n, b in self.net.named_buffers()}

    def state(self, scale: Tensor) -> dict[str, Tensor]:
        return {
            n: zero + torch.einsum("k,k...->...", scale[self.row[n]].to(zero), self.steps[n])
            for n, zero in self.base.items()
        }

    def answer(self, scale: Tensor, images: Tensor) -> Tensor:
        """Logits, differentiable in λ. The running statistics that a batch norm writes are our own copies."""
        values = {**self.buffers, **self.state(scale)}
        return logits_of(torch.func.functional_call(self.net, values, (images,)))

    def network(self, scale: Tensor, first: nn.Module) -> nn.Module:
        """As a network of its own, with the classes and preprocessing of the first model."""
        with torch.no_grad():
            state = {**self.net.state_dict(), **self.state(scale)}
        tied = tied_names(dict(self.net.state_dict()))
        return like(first, {n: state[tied.get(n, n)] for n in state}, {})


def entropy(logits: Tensor) -> Tensor:
    """Mean entropy of the answers, in nats.

    >>> round(float(entropy(torch.zeros(2, 4))), 4)
    1.3863
    """
    logs = of_classes(logits).log_softmax(1)
    return -(logs.exp() * logs).sum(1).mean()


def _drawn(images: Any, count: int, generator: torch.Generator) -> Tensor:
    return torch.randperm(len(images), generator=generator)[:count].to(images.device)


def _answers(model: nn.Module, head: nn.Module, images: Any) -> Tensor:
    with evaluating(model):
        result = torch.cat([head(logits_of(model(x))).softmax(1) for x in images.split(512)])
    return result.clone()  # out of inference mode


def _mean_entropy(model: nn.Module, heads: Sequence[nn.Module], tasks: list[ModelTask]) -> float:
    with evaluating(model):
        result = [
            (len(x), float(entropy(head(logits_of(model(x))))))
            for head, t in zip(heads, tasks, strict=True)
            for x in t.images.split(512)
        ]
    return round(sum(n * e for n, e in result) / sum(n for n, _ in result), 6)
