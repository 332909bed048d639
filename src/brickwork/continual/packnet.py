"""PackNet (Mallya and Lazebnik 2018): tasks share the weights of one network out among themselves."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from brickwork.continual.base import RewrittenFile
from brickwork.continual.bench import Bench
from brickwork.continual.computed import compute, rules, settle
from brickwork.continual.files import pack, unpack, write_tensors
from brickwork.continual.networks import flat, halved, kernels_of, load_flat, load_head, small_of, stored_head
from brickwork.continual.options import passes, rate
from brickwork.continual.registry import method
from brickwork.options import option
from brickwork.store.weights import read_safetensors

State = dict[str, Tensor]


@method("packnet")
class PackNet(RewrittenFile):
    """A task trains the free weights, keeps the largest of each layer, sets the others free again and is trained on.

    prune: the share of a layer's free weights that is set free for later tasks, or "equal": every task keeps as many.
    Batch norms, biases and heads are of each task. The last task keeps all that is left.
    """

    prefix = "packed"
    prune: float | str = option(
        default=0.6, above=0, below=1, help="Share of the free weights set free again, or equal."
    )
    lr: float = rate(0.05)
    epochs: int | None = passes()
    again: float = option(default=0.3, above=0, help="Epochs after pruning, as a share of those before.")

    def rules(self) -> Iterator[str]:
        if isinstance(self.prune, str) and self.prune != "equal":
            yield f"`prune` is {self.prune!r}; it must be 'equal' or a share between 0 and 1"

    def learn(self, bench: Bench, number: int) -> None:
        kernels, owners = self._packed(bench, number - 1)
        model = bench.fresh(number)
        free = {name: owner == 0 for name, owner in owners.items()}
        compute(model, lambda name, layer: Shared(kernels[name], free[name]))
        with torch.no_grad():
            for name, layer in kernels_of(model).items():
                # the first task begins with the start, later ones with free weights of 0, as they were left
                layer.parametrizations.weight.original.copy_(kernels[name])
        epochs = self.epochs or bench.options.epochs
        bench.fit(model, number, lr=self.lr, epochs=epochs)
        left = len(bench.scenario) - number
        if left > 1:
            share = 1 - 1 / left if self.prune == "equal" else float(self.prune)
            for rule, layer in zip(rules(model).values(), kernels_of(model).values(), strict=True):
                rule.free.copy_(largest(layer.parametrizations.weight.original.detach(), rule.free, 1 - share))
            bench.fit(model, number, lr=self.lr, epochs=max(1, round(self.again * epochs)))
        kept = {name: rule.free.clone() for name, rule in rules(model).items()}
        settle(model)
        packed: State = {}
        bits = (number + 1).bit_length()
        for name, layer in kernels_of(model).items():
            packed[f"kernel.{name}"] = halved(layer.weight.detach())
            packed[f"owner.{name}"] = pack(torch.where(kept[name], number + 1, owners[name]), bits)
        write_tensors(self.file(bench, number), packed)
        bench.held.pop("packed", None)
        write_tensors(bench.task_path(number), {"small": flat(small_of(model)), **stored_head(model)})

    def network(self, bench: Bench, number: int, after: int) -> nn.Module | None:
        kernels, owners = self._packed(bench, after)
        stored = read_safetensors(bench.task_path(number))
        model = bench.fresh(number)
        with torch.no_grad():
            for name, layer in kernels_of(model).items():
                known = (owners[name] > 0) & (owners[name] <= number + 1)
                layer.weight.copy_(torch.where(known, kernels[name], 0.0))
            load_flat(small_of(model), stored["small"])
            load_head(model, stored)
        return model.eval()

    def opening(self, bench: Bench, number: int) -> nn.Module:
        if number == 0:
            return bench.start
        model = bench.fresh(number)
        kernels, _ = self._packed(bench, number - 1)
        with torch.no_grad():
            for name, layer in kernels_of(model).items():
                layer.weight.copy_(kernels[name])
        return model

    def _packed(self, bench: Bench, after: int) -> tuple[State, State]:
        """Kernels, and the task each weight belongs to: 0 for nobody, k + 1 for task k."""
        layers = kernels_of(bench.start)
        if after < 0:
            kernels = {name: layer.weight.detach() for name, layer in layers.items()}
            return kernels, {name: torch.zeros_like(value, dtype=torch.int64) for name, value in kernels.items()}
        if bench.held.get("packed", (None,))[0] == after:  # every task is judged on the same packed weights
            return bench.held["packed"][1:]
        stored = read_safetensors(self.file(bench, after))
        kernels, owners = {}, {}
        for name, layer in layers.items():
            weight = layer.weight
            kernels[name] = stored[f"kernel.{name}"].to(weight)
            numbers = unpack(stored[f"owner.{name}"], (after + 1).bit_length(), weight.numel())
            owners[name] = numbers.reshape(weight.shape).to(weight.device)
        bench.held["packed"] = (after, kernels, owners)
        return kernels, owners


class Shared(nn.Module):
    """The weights of earlier tasks where they are, a task's own where they are free."""

    fixed: Tensor
    free: Tensor

    def __init__(self, kernel: Tensor, free: Tensor) -> None:
        super().__init__()
        self.register_buffer("fixed", torch.where(free, 0.0, kernel))
        self.register_buffer("free", free.clone())

    def forward(self, weight: Tensor) -> Tensor:
        return self.fixed + weight * self.free


def largest(values: Tensor, among: Tensor, share: float) -> Tensor:
    """Which of the chosen values are the largest in size, a share of them; at least one where there is any.

    >>> largest(torch.tensor([3.0, -4.0, 9.0, 1.0]), torch.tensor([True, True, False, True]), 0.67).tolist()
    [True, True, False, False]
    """
    count = int(among.sum())
    keep = max(min(1, count), round(share * count))
    sizes = torch.where(among, values.abs(), -1.0).flatten()
    chosen = torch.zeros_like(sizes, dtype=torch.bool)
    chosen[sizes.topk(keep).indices] = True
    return chosen.reshape(values.shape)
