"""Pseudo-gradients (paper 3, Eq. 4b): what a task module sends back to its input, whatever its feature maps are.

Biases and dropout drop out of a derivative, max-pooling is taken as average-pooling, and ReLU lets everything pass (the
first dummy) or what a random map says (the second). What is left is linear in the gradient at the output, so it is a
feed-forward chain of transposed layers, from the output down; no graph of a forward pass is kept or differentiated twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx

from brickwork.blueprint.splitting import Above
from brickwork.errors import BadModel, RequestError
from brickwork.prediction import evaluating
from brickwork.transplant.options import DUMMIES
from brickwork.transplant.transposes import Transpose, rule_for

KEPT = 1 << 22  # places of a map: a larger one is drawn again sooner than kept in memory


@dataclass(frozen=True)
class Dummy:
    """How ReLUs are passed on the way down; the same seed draws the same maps for student and teacher.

    "first": everything passes. "second": each ReLU passes where a random map is positive, for `share` of its places.
    "lowest": only the ReLU next to the features has a map, one for all channels.
    """

    kind: str = "first"
    share: float = 0.5
    seed: int = 0
    _drawn: dict[tuple[Any, ...], Tensor] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in DUMMIES:
            raise RequestError(f"dummy is {self.kind!r}; it must be one of {', '.join(DUMMIES)}.")
        if not 0 < self.share <= 1:
            raise RequestError(f"share is {self.share}; it must be above 0 and at most 1.")

    def reseeded(self, seed: int) -> Dummy:
        """The same with other maps, in the memory of those that were kept: a recorded step reads them there."""
        new = replace(self, seed=seed)
        for (place, where, *shape), kept in self._drawn.items():
            kept.copy_(new._new_map(shape, where, place))
        return new

    def passes(self, gradient: Tensor, place: int) -> Tensor:
        """The gradient behind ReLU number `place`, counted from the features."""
        if self.kind == "first" or (self.kind == "lowest" and place > 0):
            return gradient
        shape = list(gradient.shape)
        if self.kind == "lowest":
            shape[1] = 1
        return gradient * self._map(shape, gradient.device, place)

    def _map(self, shape: list[int], where: torch.device, place: int) -> Tensor:
        """The random map of a ReLU; a small one is kept for the other network, which asks for the same."""
        key = (place, where, *shape)
        if key in self._drawn:
            return self._drawn[key]
        positive = self._new_map(shape, where, place)
        if positive.numel() <= KEPT:
            self._drawn[key] = positive
        return positive

    def _new_map(self, shape: list[int], where: torch.device, place: int) -> Tensor:
        draw = torch.Generator(where).manual_seed(self.seed * 1009 + place)
        return torch.rand(shape, generator=draw, device=where) < self.share


class Chain:
    """The pseudo-gradient of a task module with respect to its input features.

    features: an example of the input, to read shapes off; image: as for the module itself.

    >>> from torch import nn
    >>> from brickwork.blueprint.splitting import split
    >>> net = nn.Sequential(nn.Identity(), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> chain = Chain(split(net, "0").above, torch.zeros(1, 3))
    >>> torch.allclose(chain(torch.ones(2, 1)), (net[3].weight @ net[1].weight).expand(2, 3))
    True
    """

    def __init__(self, above: Above, features: Tensor, *, image: Sequence[int] | None = None) -> None:
        self.above, self.example = above, features[:1]
        shapes = _shapes(above, features, image)
        graph = above.net.graph
        modules = dict(above.net.named_modules())
        output = next(n for n in graph.nodes if n.op == "output").args[0]
        if not isinstance(output, fx.Node):
            raise BadModel("the task module returns several things; pseudo-gradients need one output.")
        self.target = next(n for n in graph.nodes if n.op == "placeholder")
        self.output = output
        self.shape = shapes[output]  # of one output, without the batch
        self.features = shapes[self.target]
        reached = _reached(self.target)
        relus = 0
        steps: list[tuple[fx.Node, Transpose]] = []
        for node in graph.nodes:
            if node in reached and node in shapes and node.op not in ("placeholder", "output"):
                step = rule_for(node, modules, shapes, reached, relus)
                relus += step.is_relu
                steps.append((node, step))
        self.steps = steps[::-1]

    def random(self, count: int, *, size: int | None = None, seed: int = 0, like: Tensor | None = None) -> Tensor:
        """Random gradients at the output in [−1, 1]; size: an enlarged map for a classifier (the paper's is 7).

        1 where the output is a single number: it has no neighbours to differ from (§4.1).
        """
        if size is not None and len(self.shape) != 1:
            raise RequestError("only a classifier's output can be enlarged; this module gives a map already.")
        shape = (*self.shape, size, size) if size is not None else self.shape
        where = next(self.above.parameters(), self.example) if like is None else like
        if shape == (1,):
            return torch.ones((count, 1), device=where.device, dtype=where.dtype)
        draw = torch.Generator(where.device).manual_seed(seed)
        drawn = torch.rand((count, *shape), generator=draw, device=where.device, dtype=where.dtype)
        return 2 * drawn - 1

    def __call__(self, gradient: Tensor, dummy: Dummy | None = None) -> Tensor:
        """gradient at the output (B, …) → pseudo-gradient at the features."""
        dummy = dummy or Dummy()
        enlarged = gradient.dim() - 1 > len(self.shape)
        arrived: dict[fx.Node, Tensor] = {self.output: gradient}
        for node, step in self.steps:
            came = arrived.pop(node, None)
            if came is None:
                continue  # a value that the output does not need
            for source, sent in step.back(came, dummy, enlarged):
                arrived[source] = arrived[source] + sent if source in arrived else sent
        return arrived[self.target]


def _reached(start: fx.Node) -> set[fx.Node]:
    """Everything that depends on the features."""
    result = {start}
    for node in start.graph.nodes:
        if any(n in result for n in node.all_input_nodes):
            result.add(node)
    return result


def _shapes(above: Above, features: Tensor, image: Sequence[int] | None) -> dict[fx.Node, tuple[int, ...]]:
    """The shape of every value for one example, without the batch axis."""
    sizes = []
    if above.sizes:
        if image is None:
            raise RequestError("this task module crops its output to the image; give image=, the image's shape.")
        sizes = [int(image[axis]) for axis in above.sizes]
    result: dict[fx.Node, tuple[int, ...]] = {}

    class Watcher(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            value = super().run_node(n)
            if isinstance(value, Tensor):
                result[n] = tuple(value.shape[1:])
            return value

    with evaluating(above):
        Watcher(above.net).run(features, *sizes)
    return result
