"""A start fine-tuned on a task: a linear probe first, then the trunk under that head, which stays as it is.

So all trunks answer in the features that the start had, as the field's do under CLIP's fixed text heads (ours are learned from
labels: a deviation). The rate is chosen on held-out training images. Networks are kept by the hash of all they depend on.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.atomic import write_file
from brickwork.devices import device_of
from brickwork.origin import attach, origin_of
from brickwork.prediction import predict
from brickwork.training import train
from brickwork_lab.lab import Lab, contiguous, digest
from brickwork_lab.suite.starts import Start, prepared_of, state_digest, with_statistics
from brickwork_lab.suite.tasks import Task

FOLDER = "eight-tasks"  # of the folder of networks
DECAY = 1e-3  # of the probe's weights, in units of the features' spread


@dataclass(frozen=True)
class Tuning:
    """How a task is learned. rates: those that are tried; the best on held-out images stays."""

    epochs: int = 10
    batch_size: int = 64
    rates: tuple[float, ...] = (0.001, 0.003, 0.01)
    statistics: int = 1000  # images whose batch-norm statistics the probe's features have


@dataclass(frozen=True)
class Tuned:
    """A task's own network: its trunk, its head, and per cent right on held-out images."""

    task: str
    trunk: nn.Module
    head: nn.Linear
    held: float
    lr: float

    @property
    def digest(self) -> str:
        return digest([state_digest(self.trunk), state_digest(self.head)])


def fine_tune(lab: Lab, start: Start, task: Task, how: Tuning) -> Tuned:
    """The best of its rates on held-out images; found again in the folder of networks, where there is one."""
    found: list[nn.Linear] = []  # the probe, once it is wanted

    def head() -> nn.Linear:
        if not found:
            found.append(probe(start, task, how))
        return found[0]

    return max((_at_rate(lab, start, task, how, head, lr) for lr in how.rates), key=lambda one: one.held)


def probe(start: Start, task: Task, how: Tuning) -> nn.Linear:
    """Multinomial regression on the start's features under the task's own batch-norm statistics."""
    trunk = with_statistics(start.trunk, task.unlabelled(how.statistics, 0))
    features, labels = predict(trunk, task.train[0]), torch.from_numpy(task.train[1]).long()
    centre, spread = features.mean(0), features.std(0).clamp(min=1e-6)
    scaled = (features - centre) / spread
    weight = torch.zeros(len(task.classes), start.features, requires_grad=True)
    bias = torch.zeros(len(task.classes), requires_grad=True)
    solver = torch.optim.LBFGS([weight, bias], max_iter=50, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        value = F.cross_entropy(F.linear(scaled, weight, bias), labels) + 0.5 * DECAY * weight.square().sum()
        value.backward()
        return value

    solver.step(loss)
    head = nn.Linear(start.features, len(task.classes))
    with torch.no_grad():
        head.weight.copy_(weight / spread)
        head.bias.copy_(bias - (weight / spread) @ centre)
    return head.to(device_of(start.trunk))


def _at_rate(lab: Lab, start: Start, task: Task, how: Tuning, make_head: Callable[[], nn.Linear], lr: float) -> Tuned:
    recipe: dict[str, Any] = {"epochs": how.epochs, "batch_size": min(how.batch_size, len(task.train[1])), "lr": lr}
    recipe |= {"optimizer": "sgd", "schedule": "onecycle", "weight_decay": 0.0, "label_smoothing": 0.0}
    recipe |= {"augment": ("crop+flip" if task.flips else "crop") if lab.full else "none", "seed": lab.seed}
    facts = {"start": start.digest, "task": task.digest, "side": prepared_of(start).size, "decay": DECAY}
    facts |= {"statistics": how.statistics}
    trunk = copy.deepcopy(start.trunk)
    name = f"{task.name}-{digest({**facts, **recipe})[:16]}.safetensors"
    file = None if lab.networks is None else Path(lab.networks) / FOLDER / name
    if file is not None and file.is_file():
        head = nn.Linear(start.features, len(task.classes))
        nn.ModuleDict({"trunk": trunk, "head": head}).load_state_dict(load_file(file))
        with safe_open(file, "pt") as opened:
            held = json.loads(opened.metadata()["facts"])["held"]
    else:
        head = make_head()
        held = _trained(lab, trunk, head, task, recipe)
        if file is not None:
            _keep(file, trunk, head, {**facts, **recipe, "from": start.name, "of": task.name, "held": held})
    return Tuned(task.name, trunk.to(lab.where).eval(), head.to(lab.where), held, lr)


def _trained(lab: Lab, trunk: nn.Module, head: nn.Linear, task: Task, recipe: dict[str, Any]) -> float:
    """Train the trunk in place under a head that stays; per cent right on held-out images."""
    fixed = copy.deepcopy(head).requires_grad_(False)
    model = nn.Sequential(trunk.train(), fixed)
    options = {"device": lab.where, "progress": lab.progress, "channels_last": True, **recipe}
    train(model, *task.train, preprocessing=origin_of(trunk).preprocessing, **options)
    contiguous(trunk)
    return percent_right(trunk, head, *task.held)


def _keep(file: Path, trunk: nn.Module, head: nn.Linear, facts: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    both = nn.ModuleDict({"trunk": trunk, "head": head}).state_dict()
    with write_file(file) as draft:
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in both.items()}
        save_file(state, draft, metadata={"facts": json.dumps(facts)})


def answers(trunk: nn.Module, head: nn.Linear, images: np.ndarray) -> Tensor:
    """Logits of one task (n, classes) on the CPU."""
    features = predict(trunk, images, batch_size=256)
    weight, bias = head.weight.detach().cpu(), head.bias.detach().cpu()
    return F.linear(features, weight, bias)


def percent_right(trunk: nn.Module, head: nn.Linear, images: np.ndarray, labels: np.ndarray) -> float:
    right = answers(trunk, head, images).argmax(1).numpy() == labels
    return round(100 * float(right.mean()), 2)


def mixture(tasks: Sequence[Task], count: int, seed: int) -> np.ndarray:
    """Unlabelled training images of all tasks, mixed."""
    every = np.concatenate([task.unlabelled(count, seed) for task in tasks])
    return every[np.random.default_rng([seed, 23]).permutation(len(every))]


def start_network(start: Start, tasks: Sequence[Task], count: int, seed: int) -> nn.Module:
    """The start as every merged network is treated: batch-norm statistics of all tasks' images."""
    trunk = with_statistics(start.trunk, mixture(tasks, count, seed))
    attach(trunk, replace(origin_of(start.trunk)))
    return trunk
