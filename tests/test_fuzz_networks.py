"""Random small networks, cut and joined, against an interpreter that knows nothing of blueprints: masks in float64."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import brickwork
from brickwork.errors import RequestError

SEEDS = range(24)


class Grown(nn.Module):
    """Blocks of a random recipe; `forward` is plain torch, `masked` says the same with channels taken away."""

    def __init__(self, seed: int, values: int | None = None) -> None:
        super().__init__()
        rng = random.Random(seed)
        torch.manual_seed(seed if values is None else values)
        width, self.recipe = 4 * rng.randint(1, 3), []
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.layers = nn.ModuleDict()
        for number in range(rng.randint(2, 4)):
            kind = rng.choice(["conv", "residual", "concat", "grouped", "depthwise", "attention"])
            name, new = f"{kind}{number}", 4 * rng.randint(1, 3)
            block = nn.ModuleDict()
            if kind == "conv":
                block["one"], block["norm"] = nn.Conv2d(width, new, 3, stride=rng.choice([1, 2]), padding=1), _norm(new)
                width = new
            elif kind == "residual":
                block["one"], block["norm"] = nn.Conv2d(width, new, 3, padding=1, bias=False), _norm(new)
                block["two"] = nn.Conv2d(new, width, 1)
            elif kind == "concat":
                block["one"], block["two"] = nn.Conv2d(width, new, 1), nn.Conv2d(width, 4, 3, padding=1)
                width = new + 4
            elif kind == "grouped":
                block["one"], block["norm"] = nn.Conv2d(width, width, 3, padding=1, groups=2), _norm(width)
            elif kind == "depthwise":
                block["one"] = nn.Conv2d(width, width, 3, padding=1, groups=width)
                block["two"] = nn.Conv2d(width, new, 1)
                width = new
            else:
                for part in ("query", "key", "value", "out"):
                    block[part] = nn.Linear(width, width)
            self.layers[name] = block
            self.recipe.append((kind, name))
        self.head = nn.Linear(width, 5)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):  # shifts that show: a channel that is cut must not leave its own
                (
                    nn.init.uniform_(module.weight, 0.5, 1.5),
                    nn.init.normal_(module.bias),
                    nn.init.normal_(module.running_mean),
                )
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.masked(x, lambda name, x: x, lambda name, x: x)

    def masked(self, x: Tensor, made, read) -> Tensor:
        """made: what a layer gives; read: what a layer is given. Both may put zeros where a channel was taken away."""

        def run(name: str, layer: nn.Module, x: Tensor) -> Tensor:
            return made(name, layer(read(name, x)))

        x = F.relu(run("stem", self.stem, x))
        for kind, name in self.recipe:
            block, path = self.layers[name], f"layers.{name}"
            if kind in ("conv", "grouped"):
                x = F.relu(block["norm"](run(f"{path}.one", block["one"], x)))
            elif kind == "residual":
                inner = F.relu(block["norm"](run(f"{path}.one", block["one"], x)))
                x = F.relu(x + run(f"{path}.two", block["two"], inner))
            elif kind == "concat":
                x = F.relu(torch.cat([run(f"{path}.one", block["one"], x), run(f"{path}.two", block["two"], x)], 1))
            elif kind == "depthwise":
                x = F.relu(run(f"{path}.two", block["two"], run(f"{path}.one", block["one"], x)))
            else:
                tokens = x.flatten(2).transpose(1, 2)
                q, k, v = (run(f"{path}.{part}", block[part], tokens) for part in ("query", "key", "value"))
                mixed = torch.softmax(q @ k.transpose(1, 2) / 4.0, -1) @ v
                x = (tokens + run(f"{path}.out", block["out"], mixed)).transpose(1, 2).reshape(x.shape)
        return run("head", self.head, x.mean((2, 3)))


def _norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width)


def reference(net: Grown, bp, keep: dict[str, list[int]], x: Tensor) -> Tensor:
    """The whole network in which no layer sees a channel that was not kept; which those are is read off its weight."""

    def kept(layout) -> Tensor | None:
        if layout is None:
            return None
        places = [bp.place(int(unit)) for unit in layout.units]
        return torch.tensor([space not in keep or index in keep[space] for space, index in places], dtype=torch.float64)

    def read(name: str, x: Tensor) -> Tensor:
        layer = net.get_submodule(name)
        groups = getattr(layer, "groups", 1)
        # a depthwise layer gives the channels that it reads; those of other groups are never cut here
        mask = None if 1 < groups < x.shape[1] else kept(bp.axes[f"{name}.weight"][0 if groups > 1 else 1])
        if mask is None or name == "stem":
            return x
        return x * (mask if isinstance(layer, nn.Linear) else mask[:, None, None])

    return net.masked(x, lambda name, x: x, read)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cut_is_the_whole_with_channels_taken_away(seed):
    net, rng = Grown(seed), random.Random(seed + 1000)
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    bp = brickwork.trace(net, x)
    with torch.no_grad():
        assert (reference(net, bp, {}, x) - net(x)).abs().max() <= 1e-10
        grouped = [f"layers.{name}.one" for kind, name in net.recipe if kind == "grouped"]
        fixed = {bp.place(int(u))[0] for g in grouped for a in bp.axes[f"{g}.weight"][:1] if a for u in a.units}
        fixed |= {bp.place(int(u))[0] for g in grouped for u in _read_by(bp, g)}
        free = [space for space in bp.spaces if space != "classes" and space not in fixed]
        for _ in range(3):
            keep = {
                s: sorted(rng.sample(range(bp.spaces[s]), rng.randint(1, bp.spaces[s])))
                for s in free
                if rng.random() < 0.6
            }
            try:
                small = bp.select(net, keep)
            except RequestError as error:  # a layer may lose all its channels, which is refused by its name
                assert "keep a channel of it" in str(error)
                continue
            assert (small(x) - reference(net, bp, keep, x)).abs().max() <= 1e-10
            classes = sorted(rng.sample(range(5), 3))
            assert (bp.select(net, {**keep, "classes": classes})(x) - small(x)[:, classes]).abs().max() <= 1e-10


def _read_by(bp, path):
    return next(site.reads for site in bp.sites if site.module == path)


@pytest.mark.parametrize("seed", SEEDS)
def test_joined_networks_answer_side_by_side(seed):
    nets = [Grown(seed), Grown(seed, values=seed + 500)]
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    bp = brickwork.trace(nets[0], x)
    nets.append(bp.select(nets[0], {"classes": [0, 2]}))
    with torch.no_grad():
        wanted = torch.cat([net(x) for net in nets], 1)
        assert (brickwork.join(nets, x)(x) - wanted).abs().max() <= 1e-10
