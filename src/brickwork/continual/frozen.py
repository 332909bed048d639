"""Methods that leave every kernel as it is: a linear probe, and batch norms with a head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from brickwork.continual.base import TaskFiles
from brickwork.continual.bench import Bench
from brickwork.continual.files import write_tensors
from brickwork.continual.networks import halved, head_of, kernels_of
from brickwork.continual.options import passes, rate
from brickwork.continual.registry import method
from brickwork.errors import BadModel
from brickwork.origin import attach, origin_of
from brickwork.outputs import logits_of


@method("probe")
class Probe(TaskFiles):
    """A linear layer per task on the features of the start, which stays as it is, statistics included."""

    lr: float = rate(0.6)
    epochs: int | None = passes()

    keeps_small = False

    def learn(self, bench: Bench, number: int) -> None:
        model = Probed(bench.fresh(number, self.opening(bench, number)))
        bench.fit(model, number, lr=self.lr, weight_decay=0.0, epochs=self.epochs)
        head = {f"head.{name}": halved(value) for name, value in model.head.state_dict().items()}
        write_tensors(bench.task_path(number), head)


class Probed(nn.Module):
    """A network whose trunk stays in evaluation mode, and without gradients, while its head is trained."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        name = head_of(model)
        head = model.get_submodule(name)
        assert isinstance(head, nn.Linear)
        self.head = head
        model.set_submodule(name, nn.Identity())
        self.trunk = model.requires_grad_(False)
        attach(self, origin_of(model))

    def train(self, mode: bool = True) -> Probed:
        super().train(mode)
        self.trunk.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            features = logits_of(self.trunk(images))  # some answer with more than a tensor
        if features.shape != (len(images), self.head.in_features):
            raise BadModel(
                f"the features of the network are {tuple(features.shape)}, not (N, {self.head.in_features}): its last "
                "linear layer is not its head."
            )
        return self.head(features)


@method("bn-head")
class NormsAndHead(TaskFiles):
    """Batch norms, biases and a head per task; every kernel stays the start's."""

    lr: float = rate(0.05)
    epochs: int | None = passes()

    def prepare(self, model: nn.Module, bench: Bench, number: int) -> None:
        for module in kernels_of(model).values():
            module.weight.requires_grad_(False)
