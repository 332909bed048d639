"""How much a channel matters to a class: a registry of scores, one number a sample, unit and response point.

A score looks at a layer's response `a` and the gradient `g` of what the class is judged by, both
(batch, channels, places), and gives (batch, channels).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from brickwork.errors import UnknownName

Objective = Callable[[Tensor, Tensor], Tensor]  # (logits, labels) -> one number a sample
Score = Callable[[Tensor, Tensor], Tensor]  # (responses, gradients) -> (batch, channels)


@dataclass(frozen=True)
class Attribution:
    name: str
    score: Score | None  # None: not by gradient, see contribution.py
    objective: Objective
    confident: float  # use only samples the model is this sure of; 0: all
    about: str
    at: str = "norm"  # where it looks: at what a "layer" makes, behind its batch "norm", or behind the "activation"


REGISTRY: dict[str, Attribution] = {}


def attribution(
    name: str, *, objective: Objective, confident: float = 0.0, at: str = "norm"
) -> Callable[[Score], Score]:
    """Register a score function under a name."""

    def register(score: Score) -> Score:
        REGISTRY[name] = Attribution(name, score, objective, confident, (score.__doc__ or "").split("\n")[0], at)
        return score

    return register


def get(name: str) -> Attribution:
    if name not in REGISTRY:
        raise UnknownName("attribution", name, REGISTRY)
    return REGISTRY[name]


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """The class's logit above the soft maximum of the others; the logit itself where there is no other.

    >>> import torch
    >>> margin(torch.tensor([[3.0, 1.0]]), torch.tensor([0])).item()
    2.0
    """
    own = logits.gather(1, labels[:, None])[:, 0]
    if logits.shape[1] == 1:
        return own
    others = logits.scatter(1, labels[:, None], float("-inf"))
    return own - others.logsumexp(1)


def probability(logits: Tensor, labels: Tensor) -> Tensor:
    """The predicted probability of the class (paper 2, Eq. 1)."""
    return logits.softmax(1).gather(1, labels[:, None])[:, 0]


@attribution("taylor", objective=margin)
def taylor(a: Tensor, g: Tensor) -> Tensor:
    """First-order change of the margin if the channel were zero: |Σ_places a · g|."""
    return (a * g).sum(2).abs()


@attribution("frat", objective=probability, confident=0.9, at="layer")
def frat(a: Tensor, g: Tensor) -> Tensor:
    """The paper's feature route attribution: positive derivatives of the class probability, summed.

    Where a feature map is, the paper leaves open. On a public VGG-16, cut to what any class needs, positive and absolute
    derivatives at what the convolutions make leave 90.1 and 87.4 % (the paper 91.3 and 87.8), behind the batch norms 81.7
    and 63.6, behind the activations 87.7 and 63.9 (`study frat-readings`).
    """
    return g.clamp(min=0).sum(2)


@attribution("frat-negative", objective=probability, confident=0.9, at="layer")
def frat_negative(a: Tensor, g: Tensor) -> Tensor:
    """The paper's ablation: negative derivatives."""
    return (-g).clamp(min=0).sum(2)


@attribution("frat-absolute", objective=probability, confident=0.9, at="layer")
def frat_absolute(a: Tensor, g: Tensor) -> Tensor:
    """The paper's ablation: absolute derivatives."""
    return g.abs().sum(2)


REGISTRY["contribution"] = Attribution(
    "contribution", None, margin, 0.0, "Forward: what the class's route adds up, by channel (contribution.py)."
)
