"""What every surgery must satisfy, in float64: the identities, and that nothing else was touched."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor, nn

import brickwork
from brickwork.errors import BrickworkError

TOLERANCE = 1e-10


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """Double precision, evaluation mode, and no parameter or statistic left at its default."""
    model = model.double().eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() < 2:
                p.copy_(torch.rand(p.shape, generator=draw, dtype=p.dtype) * 1.5 - 0.5)
            else:
                p.copy_(torch.randn(p.shape, generator=draw, dtype=p.dtype) * (1.5 / (p[0].numel() ** 0.5)))
        for name, b in model.named_buffers():
            if name.endswith("running_mean"):
                b.copy_(torch.randn(b.shape, generator=draw, dtype=b.dtype) * 0.3)
            elif name.endswith("running_var"):
                b.copy_(torch.rand(b.shape, generator=draw, dtype=b.dtype) + 0.5)
    return model


def fill(example: Any, seed: int = 0) -> Any:
    """The example with random numbers in place of whatever it held; whole numbers stay as they are."""
    draw = torch.Generator().manual_seed(seed)
    if isinstance(example, Tensor):
        if not example.is_floating_point():
            return example
        return torch.randn(example.shape, generator=draw, dtype=torch.float64)
    if isinstance(example, dict):
        return {k: fill(v, seed) for k, v in example.items()}
    return tuple(fill(v, seed + k) for k, v in enumerate(example))


def call(model: nn.Module, example: Any, output: Any = None) -> Tensor:
    from brickwork.blueprint.record import as_call
    from brickwork.outputs import logits_of

    args, kwargs = as_call(example)
    with torch.no_grad():
        return logits_of(model(*args, **kwargs), output)


def axes_of(bp: brickwork.Blueprint) -> dict[int, list[Any]]:
    """The axes that every unit lies on."""
    places: dict[int, list[Any]] = {}
    for tensor, axes in bp.axes.items():
        for dim, axis in enumerate(axes):
            for unit in [] if axis is None else axis.units.tolist():
                places.setdefault(unit, []).append((tensor, dim))
    return places


def kinds(bp: brickwork.Blueprint, name: str, places: dict[int, list[Any]]) -> list[list[int]]:
    """The indices of a space by the axes they lie on: channels of one kind may change places."""
    groups: dict[Any, list[int]] = {}
    for k, unit in enumerate(bp.space(name).units.tolist()):
        groups.setdefault(tuple(places.get(unit, [])), []).append(k)
    return list(groups.values())


def draw_keep(bp: brickwork.Blueprint, seed: int, *, share: float = 0.7) -> dict[str, list[int]]:
    """A random kept set: about `share` of the spaces are cut; what must stay stays, no layer is emptied."""
    rng = random.Random(seed)
    places, keep = axes_of(bp), {}
    for name, size in bp.spaces.items():
        if rng.random() > share:
            continue
        stays = set(bp.space(name).fixed)
        for group in kinds(bp, name, places):
            free = [k for k in group if k not in stays]
            if free:
                stays |= set(rng.sample(free, rng.randint(1, len(free))))
        if len(stays) < size:
            keep[name] = sorted(stays)
    return keep


def difference(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape, f"shapes {tuple(a.shape)} and {tuple(b.shape)}"
    assert torch.isfinite(a).all() and torch.isfinite(b).all()
    return float((a - b).detach().abs().max())


def restricted(bp: brickwork.Blueprint, keep: dict[str, Any], y: Tensor, dim: int = 1) -> Tensor:
    """The output of the dense model at the kept classes, in the order in which they were asked for."""
    if bp.spaces.get("classes") == y.shape[dim]:
        return y.index_select(dim, torch.as_tensor(keep["classes"])) if "classes" in keep else y
    gone = set()  # the output is put together from several spaces
    for name, kept in keep.items():
        gone |= {int(u) for k, u in enumerate(bp.space(name).units) if k not in set(kept)}
    places = [k for k, u in enumerate(bp.output_units) if int(u) not in gone]
    return y if len(bp.output_units) != y.shape[dim] else y.index_select(dim, torch.tensor(places))


def fingerprint(model: nn.Module) -> dict[str, Any]:
    """Everything that surgery must leave alone."""
    tensors = {n: (t.detach().clone(), t.requires_grad, id(t)) for n, t in model.state_dict(keep_vars=True).items()}
    modes = {n: m.training for n, m in model.named_modules()}
    shown = repr(model)
    hooks = {n: len(m._forward_hooks) + len(m._forward_pre_hooks) for n, m in model.named_modules()}
    return {"tensors": tensors, "modes": modes, "shown": shown, "hooks": hooks}


def same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    if any(before[k] != after[k] for k in ("modes", "shown", "hooks")):
        return False
    if list(before["tensors"]) != list(after["tensors"]):
        return False
    pairs = ((v, after["tensors"][n]) for n, v in before["tensors"].items())
    return all(torch.equal(a[0], b[0]) and a[1:] == b[1:] for a, b in pairs)


def check_select(model: nn.Module, example: Any, seeds: range, output: Any = None, *, may_refuse: bool = False) -> int:
    """Cut at random: select == zero. Returns how many of the kept sets were accepted."""
    before = fingerprint(model)
    bp = brickwork.trace(model, example, output=output)
    x, accepted = fill(example, 1), 0
    for seed in seeds:
        keep = draw_keep(bp, seed)
        if not keep:
            continue
        try:
            small = bp.select(model, keep)
        except BrickworkError:
            if not may_refuse:
                raise
            continue
        accepted += 1
        wanted = restricted(bp, keep, call(bp.zero(model, keep), x, output))
        error = difference(call(small, x, output), wanted)
        assert error <= TOLERANCE, f"select differs from zero by {error:.3g} for {keep}"
    assert same(before, fingerprint(model))
    return accepted


def check_permute(model: nn.Module, example: Any, seeds: range, output: Any = None, *, may_refuse: bool = False) -> int:
    """Shuffle every space but the classes, except channels that must stay: the function is the same."""
    bp = brickwork.trace(model, example, output=output)
    x, accepted, places = fill(example, 2), 0, axes_of(bp)
    for seed in seeds:
        rng = random.Random(seed)
        order = {}
        for name, size in bp.spaces.items():
            if set(bp.space(name).units.tolist()) & set(bp.output_units.tolist()):
                continue
            order[name] = list(range(size))
            for group in kinds(bp, name, places):
                free = [k for k in group if k not in bp.space(name).fixed]
                for a, b in zip(free, rng.sample(free, len(free)), strict=True):
                    order[name][a] = b
        if not order:
            continue
        try:
            moved = bp.permute(model, order)
        except BrickworkError:
            if not may_refuse:
                raise
            continue
        accepted += 1
        error = difference(call(moved, x, output), call(model, x, output))
        assert error <= TOLERANCE, f"permuted differs by {error:.3g} for {order}"
    return accepted


def check_join(models: list[nn.Module], example: Any, how: str, output: Any = None) -> nn.Module:
    """Joined == side by side."""
    before = [fingerprint(m) for m in models]
    joined = brickwork.join(models, example, how=how, output=output)
    x = fill(example, 3)
    wanted = torch.cat([call(m, x, output) for m in models], 1)
    whole = type(joined).__name__ == "Branches"  # picks the output itself
    error = difference(call(joined, x, None if whole else output), wanted)
    assert error <= TOLERANCE, f"joined ({how}) differs by {error:.3g}"
    assert all(same(b, fingerprint(m)) for b, m in zip(before, models, strict=True))
    return joined


def twins(factory: Any, count: int = 2) -> list[nn.Module]:
    """Networks of one architecture with weights of their own."""
    return [randomise(factory(), seed) for seed in range(count)]
