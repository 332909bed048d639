"""Without stored images: a penalty holds a network to what it was before a task."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from brickwork.continual.bench import Bench
from brickwork.continual.one_network import NETWORK, OneNetwork, Penalty, Stored
from brickwork.continual.registry import method
from brickwork.data.images import ImageData
from brickwork.options import option
from brickwork.outputs import logits_of
from brickwork.prediction import input_of

FISHER = "fisher."  # before the names of parameters: how much each mattered to the tasks so far


@method("lwf")
class LearningWithoutForgetting(OneNetwork):
    """On the images of a task the network keeps to what it answered for the earlier classes before it (1606.09282)."""

    prefix = "lwf"
    strength: float = option(default=1.0, at_least=0, help="Weight of the earlier answers.")
    temperature: float = option(default=2.0, above=0, help="Temperature of both answers.")

    def penalty(self, model: nn.Module, bench: Bench, number: int, earlier: Stored) -> Penalty:
        before = self.whole(bench, number - 1).to(bench.device).requires_grad_(False)

        def penalty(images: Tensor, logits: Tensor, _target: Tensor) -> Tensor:
            with torch.no_grad():
                wanted = logits_of(before(images)).float() / self.temperature
            given = logits[:, : wanted.shape[1]].float() / self.temperature
            far = F.kl_div(given.log_softmax(1), wanted.log_softmax(1), log_target=True, reduction="batchmean")
            return self.strength * self.temperature**2 * far

        return penalty


@method("ewc")
class ElasticWeights(OneNetwork):
    """Weights are held to what they were, each by how much it mattered to earlier tasks (1612.00796; one sum, 1805.06370)."""

    prefix = "ewc"
    strength: float = option(default=1000.0, at_least=0, help="Weight of the penalty.")
    seen: int = option(default=200, at_least=1, help="Images per task that say how much a weight matters.")

    def penalty(self, model: nn.Module, bench: Bench, number: int, earlier: Stored) -> Penalty:
        held = []
        for name, parameter in model.named_parameters():
            old, matters = (earlier[part + name].to(bench.device) for part in (NETWORK, FISHER))
            # a weight that is held more than 1 / lr would leap over what it is held to, further every step
            held.append((parameter, old, (self.strength * matters).clamp(max=1 / self.lr)))

        def penalty(_images: Tensor, logits: Tensor, _target: Tensor) -> Tensor:
            far = [(stiffness * (_grown_from(old, p) - old).square()).sum() for p, old, stiffness in held]
            return 0.5 * torch.stack(far).sum().to(logits.dtype)

        return penalty

    def kept(self, model: nn.Module, bench: Bench, number: int, task: ImageData, earlier: Stored) -> Stored:
        """The diagonal of the Fisher matrix, of all tasks so far: mean squares of the gradients of single images."""
        draw = np.random.default_rng([bench.seed_of(number), 8])
        some = np.sort(draw.permutation(len(task.train_labels))[: self.seen])
        inputs = input_of(model, task.train_images[some], bench.device)
        model.eval()
        total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
        for x, label in zip(inputs, torch.from_numpy(task.train_labels[some]).to(bench.device), strict=True):
            loss = F.cross_entropy(logits_of(model(x[None])).float(), label[None])
            gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
            for name, gradient in zip(total, gradients, strict=True):
                if gradient is not None:
                    total[name] += gradient.square() / len(some)
        for name, matters in total.items() if earlier else ():
            old = earlier[FISHER + name].to(matters)
            _grown_from(old, matters).add_(old)
        return {FISHER + name: matters.detach().cpu() for name, matters in total.items()}


def _grown_from(old: Tensor, new: Tensor) -> Tensor:
    """The part of a tensor that was there before: all of it, or the outputs of the earlier classes."""
    return new if new.shape == old.shape else new[: len(old)]
