"""Tracing and cutting half of the channels, against Torch-Pruning: cost, exactness, and who handles what.

Both remove the same channels of the same layers. Torch-Pruning changes the model it is given; ours makes a
new one and proves it, on labels and on random numbers, before handing it out: both proofs are in the measured
time. Each has cut a tiny network before (`first_s`), so that imports and torch's own first calls are not.
Exact means: in float64, equal to the dense network with every parameter of the removed channels set to zero;
in the table of constructs the channels are those that each contender itself says it removes.
Torch-Pruning makes no such promise for LayerNorm and GroupNorm, where it normalises over what is left.
"""

import copy
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import brickwork
from brickwork import zoo
from brickwork.blueprint import CLASSES, Blueprint
from brickwork.errors import BrickworkError
from brickwork.progress import bar
from brickwork_lab.benchmarks.constructs import CONSTRUCTS, example
from brickwork_lab.benchmarks.measure import Work, quiet, ratios
from brickwork_lab.benchmarks.registry import Contest, Outcome, benchmark

OURS, PEER = "brickwork", "torch-pruning"
Removed = dict[str, list[int]]  # layer -> the output channels that go


@benchmark(
    "surgery",
    help="Trace a network and cut half of its channels, against Torch-Pruning.",
    common=("repeat", "separate"),
    needs="torch_pruning",
)
def surgery(contest: Contest, *, arch: str = "resnet50", stem: str = "imagenet", size: int = 224) -> Outcome:
    """stem: of architectures that have one ("" for none); separate: each measurement in its own process."""
    net, x = _build(arch, stem, size)
    bp = brickwork.trace(net, x)
    keep = {n: list(range(-(-s // 2))) for n, s in bp.spaces.items() if n != CLASSES and not bp.space(n).fixed}
    removed = _removed(bp, keep)
    rows = contest.measure({OURS: ours, PEER: peer}, arch=arch, stem=stem, size=size, keep=keep, removed=removed)
    for row, error in zip(rows, _errors(net, x, keep), strict=True):
        row["error"] = error
    table = []
    with bar("constructs", len(CONSTRUCTS)) as advance:
        for name in CONSTRUCTS:
            table.append(judge(name))
            advance(1, name)
    return Outcome(rows, ratios(rows, OURS, ("cpu_s", "wall_s", "peak_mb")), {"constructs": table})


def ours(arch: str, stem: str, size: int, keep: dict[str, list[int]], removed: Removed) -> Work:
    def work(model: nn.Module, x: Tensor, keep: dict[str, list[int]]) -> dict[str, float]:
        start = time.perf_counter()
        bp = brickwork.trace(model, x)
        traced = time.perf_counter()
        bp.select(model, keep)
        return {"trace_s": traced - start, "cut_s": time.perf_counter() - traced}

    first = work(*_tiny(), {"0": [0]})
    model, x = _build(arch, stem, size)
    return lambda: {**work(model, x, keep), "first_s": sum(first.values())}


def peer(arch: str, stem: str, size: int, keep: dict[str, list[int]], removed: Removed) -> Work:
    import torch_pruning as tp

    def work(model: nn.Module, x: Tensor, removed: Removed) -> dict[str, float]:
        start = time.perf_counter()
        graph = tp.DependencyGraph().build_dependency(model, example_inputs=x)
        traced = time.perf_counter()
        _prune(graph, model, removed)
        return {"trace_s": traced - start, "cut_s": time.perf_counter() - traced}

    first = work(*_tiny(), {"0": [1]})
    model, x = _build(arch, stem, size)
    return lambda: {**work(model, x, removed), "first_s": sum(first.values())}


def _tiny() -> tuple[nn.Module, Tensor]:
    torch.set_num_threads(1)
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3)).eval(), torch.zeros(1, 3, 8, 8)


def _build(arch: str, stem: str, size: int) -> tuple[nn.Module, Tensor]:
    torch.set_num_threads(1)
    arguments = {"stem": stem} if stem else {}
    model = zoo.build(arch, seed=0, **arguments).eval()
    return model, torch.zeros(1, 3, size, size)


def _removed(bp: Blueprint, keep: dict[str, list[int]]) -> Removed:
    """What goes, as output channels of the first layer that makes each space."""
    removed = {}
    for name, ids in keep.items():
        gone = np.delete(bp.space(name).units, ids)
        first = bp.space(name).made_by[0]
        removed[first] = np.flatnonzero(np.isin(_made(bp, name), gone)).tolist()
    return {layer: channels for layer, channels in removed.items() if channels}


def _made(bp: Blueprint, space: str) -> np.ndarray:
    """The units of the first layer that makes a space, in the order of its output channels."""
    first = bp.space(space).made_by[0]
    return next(s.makes for s in bp.sites if s.module == first and s.makes is not None)


def _prune(graph: Any, model: nn.Module, removed: Removed, note: Callable[[Any], None] = lambda group: None) -> None:
    """Torch-Pruning's own way: a group of coupled layers for each root, pruned together."""
    for path, channels in removed.items():
        layer = model.get_submodule(path)
        function = graph.get_pruner_of_module(layer).prune_out_channels
        group = graph.get_pruning_group(layer, function, idxs=channels)
        if not graph.check_pruning_group(group):
            raise Refused(f"its check of the group of {path} says no")
        note(group)
        group.prune()


def _prune_and_tell(graph: Any, model: nn.Module, removed: Removed) -> Removed:
    """The same; says which output channels of every layer are left."""
    names = {module: name for name, module in model.named_modules()}
    left = {name: list(range(_width(module))) for module, name in names.items()}

    def note(group: Any) -> None:
        went = {
            names[dep.target.module]: set(idxs)
            for dep, idxs in group
            if dep.target.module in names and graph.is_out_channel_pruning_fn(dep.handler)
        }
        for name, idxs in went.items():
            left[name] = [channel for k, channel in enumerate(left[name]) if k not in idxs]

    _prune(graph, model, removed, note)
    return {name: channels for name, channels in left.items() if channels}


def _width(module: nn.Module) -> int:
    """How many channels a layer with a weight of its own makes."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor):
        return 0
    return weight.shape[1] * module.groups if isinstance(module, nn.ConvTranspose2d) else weight.shape[0]


class Refused(Exception):
    """The peer said no by itself."""


def randomise(model: nn.Module) -> nn.Module:
    """Double precision, and no parameter or statistic left at its default."""
    rng = torch.Generator().manual_seed(0)
    model = model.double().eval()
    with torch.no_grad():
        for p in model.parameters():
            noise = torch.rand(p.shape, generator=rng, dtype=p.dtype)
            p.copy_(noise + 0.5 if p.dim() < 2 else (2 * noise - 1) * (6 / p[0].numel()) ** 0.5)
        for name, b in model.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                b.copy_(torch.rand(b.shape, generator=rng, dtype=b.dtype) + 0.5)
    return model


def _output(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        made = model(x)
    return made[0] if isinstance(made, tuple) else made


def _difference(model: nn.Module, x: Tensor, wanted: Tensor) -> float:
    made = _output(model, x)
    if made.shape != wanted.shape:
        raise ValueError(f"the output has shape {tuple(made.shape)}, not {tuple(wanted.shape)}")
    return float((made - wanted).abs().max() / wanted.abs().max())


def _errors(net: nn.Module, x: Tensor, keep: dict[str, list[int]]) -> list[float]:
    """The largest difference of each from the dense network with zeros, against the largest output."""
    import torch_pruning as tp

    net = randomise(net)
    x = torch.randn(x.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    bp = brickwork.trace(net, x)
    wanted = _output(bp.zero(net, keep), x)
    errors = [_difference(bp.select(net, keep), x, wanted)]
    with quiet():
        _prune(tp.DependencyGraph().build_dependency(net, example_inputs=x), net, _removed(bp, keep))
    return [*errors, _difference(net, x, wanted)]


def _silenced(model: nn.Module, left: Removed) -> nn.Module:
    """The dense network with every layer's channels that are not left set to zero; no weight is shared."""
    twin = copy.deepcopy(model)
    for name, channels in left.items():
        layer: Any = twin.get_submodule(name)
        gone = torch.tensor(sorted(set(range(_width(layer))) - set(channels)), dtype=torch.int64)
        for kind in ("weight", "bias"):
            if getattr(layer, kind, None) is not None:
                tensor = getattr(layer, kind).detach().clone()
                tensor.index_fill_(1 if kind == "weight" and getattr(layer, "transposed", False) else 0, gone, 0)
                setattr(layer, kind, nn.Parameter(tensor))
    return twin


def judge(name: str) -> dict[str, Any]:
    """One construct, half of the channels of every space removed: what each contender does with it."""
    model, x = randomise(CONSTRUCTS[name]()), example(name)
    output = 0 if name == "tuple output" else None
    bp = brickwork.trace(model, x, output=output)
    keep = {}
    for space in bp.spaces:
        stays = bp.space(space).fixed
        gone = set(list(dict.fromkeys(int(u) for u in _made(bp, space) if u))[1::2])
        keep[space] = [k for k, u in enumerate(bp.space(space).units) if k in stays or int(u) not in gone]
    cut = {n: ids for n, ids in keep.items() if n != CLASSES and len(ids) < bp.spaces[n]}
    if not cut:
        raise AssertionError(f"nothing of {name} can be cut: the table would show nothing")

    def by_ours() -> tuple[nn.Module, nn.Module]:
        bp = brickwork.trace(model, x, output=output)
        return bp.select(model, cut), bp.zero(model, cut)

    def by_peer() -> tuple[nn.Module, nn.Module]:
        import torch_pruning as tp

        twin = copy.deepcopy(model)
        graph = tp.DependencyGraph().build_dependency(twin, example_inputs=x)
        left = _prune_and_tell(graph, twin, _removed(bp, cut))
        return twin, _silenced(model, left)

    row: dict[str, Any] = {"construct": name}
    for who, make in ((OURS, by_ours), (PEER, by_peer)):
        row[who], row[f"{who} note"] = _verdict(make, x, model)
    return row


def _verdict(make: Callable[[], tuple[nn.Module, nn.Module]], x: Tensor, whole: nn.Module) -> tuple[str, str]:
    """What comes of making (a cut network, its reference) from the whole one."""
    dense = _output(whole, x)
    with quiet():
        try:
            small, reference = make()
        except (BrickworkError, Refused) as refusal:
            return "refuses", str(refusal)
        except Exception as error:
            return "crashes", _shown("while cutting", error)
        wanted = _output(reference, x)
        if wanted.shape == dense.shape and float((wanted - dense).abs().max()) < 1e-6:
            return "crashes", "nothing was removed"
        try:
            off = _difference(small, x, wanted)
        except Exception as error:
            return "crashes", _shown("when the result runs", error)
    note = ", weights no longer tied" if _ties(small) < _ties(whole) else ""
    return ("exact" if off <= 1e-10 else "silently wrong"), f"differs by {off:.1e}{note}"


def _ties(model: nn.Module) -> int:
    return len(list(model.named_parameters(remove_duplicate=False))) - len(list(model.parameters()))


def _shown(when: str, error: Exception) -> str:
    return f"{when}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:200]
