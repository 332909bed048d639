"""Heads for a merged trunk, fitted to what the networks themselves answer on unlabelled images.

One head that serves all tasks, or one head a task on one shared trunk. Only the last linear layer changes.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.algebra.inputs import ModelTask, inputs_of, tasks_of
from brickwork.copying import copy_module
from brickwork.data.streamed import Images
from brickwork.errors import BadModel, JobFailed, RequestError
from brickwork.moments import Moments, solve_ridge
from brickwork.origin import attach, origin_of
from brickwork.outputs import logits_of
from brickwork.prediction import evaluating

GOALS = ("logits", "soft", "entropy")


def refit_head(
    trunk: nn.Module,
    networks: Sequence[nn.Module],
    images: Sequence[Images],
    *,
    goal: str = "entropy",
    weights: Sequence[float] | None = None,
    ridge: float = 1e-3,
    temperature: float = 1.0,
) -> nn.Module:
    """A copy of `trunk` whose last linear layer answers each network's images as that network does.

    goal: least squares to the networks' "logits" (each image's mean taken off) or to their "soft" predictions, both in
    closed form; or "entropy", the cross-entropy to the soft predictions, which is convex. images: unlabelled, one set a
    network, prepared as the trunk's preprocessing says. weights: how much each task counts; the same by default.

    >>> torch.manual_seed(0) and None
    >>> net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    >>> x = torch.randn(80, 4)
    >>> other = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    >>> other[0].load_state_dict(net[0].state_dict()) and None
    >>> fitted = refit_head(other, [net], [x], goal="logits", ridge=1e-8)
    >>> bool((fitted(x).argmax(1) == net(x).argmax(1)).all())
    True
    """
    shares = _check(networks, images, goal, weights, ridge, temperature)
    trunks = tasks_of([trunk, *networks], images, pairs=False, labels=False)
    tasks = [
        replace(task, own=inputs_of(network, some))
        for task, network, some in zip(trunks, networks, images, strict=True)
    ]
    return _fitted(trunk, networks, tasks, goal, shares, ridge, temperature)


def own_heads(
    trunk: nn.Module,
    networks: Sequence[nn.Module],
    images: Sequence[Images],
    *,
    goal: str = "logits",
    ridge: float = 1e-3,
) -> list[nn.Module]:
    """For each network a copy of `trunk` with a head of its own; all but the last layer is the same in all."""
    return [
        refit_head(trunk, [network], [some], goal=goal, ridge=ridge)
        for network, some in zip(networks, images, strict=True)
    ]


def _check(
    networks: Sequence[nn.Module],
    images: Sequence[Images],
    goal: str,
    weights: Sequence[float] | None,
    ridge: float,
    temperature: float,
) -> list[float]:
    if goal not in GOALS:
        raise RequestError(f"goal is {goal!r}; it must be {', '.join(GOALS)}.")
    if not networks or len(networks) != len(images):
        raise RequestError(f"{len(networks)} networks and {len(images)} sets of images; each needs its own.")
    shares = [1.0] * len(networks) if weights is None else [float(w) for w in weights]
    if len(shares) != len(networks) or not all(0 < w < float("inf") for w in shares):
        raise RequestError(f"weights are {weights}; there must be {len(networks)}, all above 0.")
    if not (ridge >= 0 and temperature > 0):
        raise RequestError(f"ridge is {ridge} and temperature {temperature}; 0 or more, and above 0.")
    return shares


def _fitted(
    trunk: nn.Module,
    networks: Sequence[nn.Module],
    tasks: list[ModelTask],
    goal: str,
    shares: list[float],
    ridge: float,
    temperature: float,
) -> nn.Module:
    model = copy_module(trunk)
    path, head = _head(model)
    features, answers = [], []
    for network, task in zip(networks, tasks, strict=True):
        seen, words = _look(model, head, network, task, path)
        features.append(seen)
        answers.append(_targets(words, goal, temperature))
    if answers[0].shape[1] != head.out_features:
        raise BadModel(f"the head has {head.out_features} outputs, and the networks answer {answers[0].shape[1]}.")
    weight, bias = (_entropy if goal == "entropy" else _squares)(features, answers, shares, ridge, head)
    with torch.no_grad():
        head.weight.copy_(weight)
        if head.bias is None:
            head.bias = nn.Parameter(torch.zeros_like(bias, dtype=head.weight.dtype))
        head.bias.copy_(bias)
    facts = {"head": {"goal": goal, "weights": shares, "images": [len(f) for f in features], "ridge": ridge}}
    attach(model, replace(origin_of(trunk), provenance={**origin_of(trunk).provenance, **facts}))
    return model


def _head(model: nn.Module) -> tuple[str, nn.Linear]:
    linear = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear)]
    if not linear:
        raise BadModel("the network has no linear layer that could be its head.")
    return linear[-1]


def _look(model: nn.Module, head: nn.Linear, network: nn.Module, task: ModelTask, path: str) -> tuple[Tensor, Tensor]:
    """What arrives at the head (n, features), and what the network of this task answers (n, classes)."""
    came: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, inputs: came.append(inputs[0]))
    words, alike = [], True
    try:
        with evaluating(model), evaluating(network):
            for x, own in zip(task.images.split(500), task.own.split(500), strict=True):
                made = logits_of(model(x))
                alike = alike and torch.allclose(made, F.linear(came[-1], head.weight, head.bias), rtol=1e-3)
                words.append(logits_of(network(own)))
    finally:
        handle.remove()
    if not alike or came[0].dim() != 2:
        raise BadModel(f"{path} is not the network's head: its output is worked on further.")
    return torch.cat(came).double(), torch.cat(words).double()


def _targets(logits: Tensor, goal: str, temperature: float) -> Tensor:
    if goal == "logits":
        return logits - logits.mean(1, keepdim=True)
    return (logits / temperature).softmax(1)


def _squares(
    features: list[Tensor], answers: list[Tensor], shares: list[float], ridge: float, head: nn.Linear
) -> tuple[Tensor, Tensor]:
    total: Moments | None = None
    for x, y, share in zip(features, answers, shares, strict=True):
        result = Moments.empty(x.shape[1], y.shape[1], x.device).add(x, y).scaled(share / len(x))
        total = result if total is None else total.plus(result)
    assert total is not None
    fit = solve_ridge(total, ridge=ridge)
    assert fit.bias is not None
    return fit.weight.mT, fit.bias


def _entropy(
    features: list[Tensor], answers: list[Tensor], shares: list[float], ridge: float, head: nn.Linear
) -> tuple[Tensor, Tensor]:
    """Multinomial regression by L-BFGS from zero, on features of unit spread; the ridge is in their units."""
    every = torch.cat(features)
    centre, spread = every.mean(0), every.std(0).clamp(min=1e-8)
    scaled = [(x - centre) / spread for x in features]
    weight = torch.zeros(head.out_features, head.in_features, dtype=torch.float64, device=every.device)
    bias = torch.zeros(head.out_features, dtype=torch.float64, device=every.device)
    weight.requires_grad_()
    bias.requires_grad_()
    solver = torch.optim.LBFGS([weight, bias], max_iter=200, history_size=20, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        value = 0.5 * ridge * weight.square().sum()
        for x, y, share in zip(scaled, answers, shares, strict=True):
            value = value + share / sum(shares) * F.cross_entropy(F.linear(x, weight, bias), y)
        value.backward()
        return value

    value = solver.step(loss)
    if not bool(torch.isfinite(torch.as_tensor(value))):
        raise JobFailed("the head could not be fitted: the loss is not finite.")
    weight, bias = weight.detach() / spread, bias.detach()
    return weight, bias - weight @ centre
