"""What a network answers, and how far a changed one is from it: damage where it reaches."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from brickwork.copying import copy_module
from brickwork.moments.batches import SlicedImages
from brickwork.outputs import logits_of, place_rows, places_for


class Answers:
    """The whole network's logits of some classes on a few images; of a map, at its places.

    numbers: the answers are no classes' logits, so that what is added to all of them counts.
    """

    def __init__(
        self,
        model: nn.Module,
        images: SlicedImages,
        classes: list[int],
        output: str | int | None,
        batch_size: int,
        *,
        numbers: bool = False,
    ) -> None:
        self.model, self.numbers = copy_module(model).eval(), numbers
        self.images, self.classes, self.output, self.batch = images, classes, output, batch_size
        self.whole = self._logits(self.model, restrict=True)
        self.scale = max(float(self.whole.square().sum(1).mean()), 1e-300)

    def distance(self, part: nn.Module) -> float:
        """How far a network of these classes alone is from the whole: mean squared difference, over the mean square."""
        return self._far(self._logits(part, restrict=False))

    def changed(self, whole: nn.Module) -> float:
        """The distance of the whole network with other weights."""
        return self._far(self._logits(whole, restrict=True))

    @torch.no_grad()
    def with_weights(self, weights: dict[str, tuple[Tensor, Tensor]]) -> float:
        """The distance while some layers have other weights, and a vector added to what they answer."""
        saved, hooks = {}, []
        for path, (weight, shift) in weights.items():
            module = self.model.get_submodule(path)
            own = module.weight
            assert isinstance(own, Tensor)
            saved[path] = own.detach().clone()
            added = shift.to(own).reshape(-1, *[1] * (own.dim() - 2))
            hooks.append(module.register_forward_hook(partial(_add, added)))
            own.copy_(weight.reshape(own.shape))
        try:
            return self._far(self._logits(self.model, restrict=True))
        finally:
            for hook in hooks:
                hook.remove()
            for path, weight in saved.items():
                self.model.get_submodule(path).weight.copy_(weight)  # type: ignore[operator]

    @torch.no_grad()
    def _logits(self, model: nn.Module, *, restrict: bool) -> Tensor:
        rows, places = [], places_for(len(self.images), len(self.classes))
        for start in range(0, len(self.images), self.batch):
            logits = place_rows(logits_of(model(self.images[start : start + self.batch]), self.output), places).double()
            rows.append(logits[:, self.classes] if restrict else logits)
        logits = torch.cat(rows)
        alone = self.numbers or logits.shape[1] == 1
        return logits - logits.mean(0 if alone else 1, keepdim=True)

    def _far(self, logits: Tensor) -> float:
        return float((logits - self.whole).square().sum(1).mean()) / self.scale


def _add(shift: Tensor, _module: nn.Module, _inputs: object, out: Tensor) -> Tensor:
    return out + shift
