"""One training step of back-distillation, against the same loss by autograd's double backward.

Both distil the pseudo-gradients of a VGG-16's upper part into an adapter of one 1×1 convolution (paper 3, Eq. 3 and 4b),
on the same random gradients and the same random maps at the ReLUs. Ours sends them down a chain of transposed layers and
differentiates the adapter alone. The peer is what one writes without that chain: a twin of the network whose ReLUs are
those maps, whose max-pools average and whose batch norms only scale; a forward pass, `torch.autograd.grad` with
`create_graph`, and a backward pass through both. The twin's weights are frozen, so it computes no gradient for them.
Exactness is checked in float64: the same loss and the same gradient of the adapter.
"""

import copy
import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from brickwork import zoo
from brickwork.blueprint.splitting import Above, split
from brickwork.devices import pick
from brickwork.errors import JobFailed, RequestError
from brickwork.transplant.adapter import Adapter
from brickwork.transplant.chain import Chain, Dummy
from brickwork.transplant.options import AdapterOptions
from brickwork.transplant.terms import Terms
from brickwork_lab.benchmarks.measure import Contender, Row, Work, ratios
from brickwork_lab.benchmarks.registry import Contest, Outcome, benchmark

OURS, PEER = "brickwork", "double backward"
AT = {"vgg16": "features.6", "lenet": "pool1"}  # behind the first block, where the paper cuts
TOLERANCE = 1e-6


@benchmark(
    "backdistill",
    help="One step of back-distillation, against autograd's double backward.",
    at_least={"size": 0, "batch": 0},
)
def backdistill(contest: Contest, *, arch: str = "vgg16", size: int = 0, batch: int = 0, steps: int = 3) -> Outcome:
    """size 0: 32 and 224 px; batch 0: 50, and 4 above 64 px without a GPU; steps: in one measurement.

    separate: each measurement in its own process.
    """
    if arch not in AT:
        raise RequestError(f"arch is {arch!r}; it must be one of {', '.join(AT)}.")
    if size and size < 16:
        raise RequestError(f"size must be 16 or more (or 0: 32 and 224), not {size}")
    on_gpu = pick(contest.device).type == "cuda"
    columns = ("cpu_s", "wall_s", "peak_mb", "gpu_peak_mb" if on_gpu else "grown_mb")
    contenders: dict[str, Contender] = {OURS: (steps_of, {"who": OURS}), PEER: (steps_of, {"who": PEER})}
    rows: list[Row] = []
    gains: dict[str, float] = {}
    for side in [size] if size else [32, 224]:
        number = batch or (50 if side <= 64 or on_gpu else 4)
        arguments = {"arch": arch, "size": side, "batch": number, "steps": steps, "device": contest.device}
        measured = contest.measure(contenders, **arguments)
        errors = differences(arch, side)
        gains |= {f"{side} px, {name}": value for name, value in ratios(measured, OURS, columns).items()}
        rows += [{"size": side, "batch": number, **row, **errors} for row in measured]
    return Outcome(rows, gains)


Step = Callable[[int], Tensor]  # number of the step -> its loss, with gradients left on the adapter


def steps_of(arch: str, size: int, batch: int, steps: int, device: str, who: str) -> Work:
    """So many steps of one of the two: the work to be measured."""
    torch.set_num_threads(1)
    where, make = pick(device), by_chain if who == OURS else by_autograd
    make(_problem(arch, size, where), 1)(0)  # imports and first calls
    gc.collect()
    step = make(_problem(arch, size, where), batch)
    if where.type == "cuda":
        step(0)  # and the choice of kernels for these shapes
        torch.cuda.synchronize(where)
        torch.cuda.reset_peak_memory_stats(where)

    def work() -> dict[str, float]:
        for number in range(steps):
            loss = step(number)
        facts = {"loss": float(loss)}
        if where.type == "cuda":
            torch.cuda.synchronize(where)
            facts["gpu_peak_mb"] = torch.cuda.max_memory_allocated(where) / 2**20
        return facts

    return work


def _problem(arch: str, size: int, where: torch.device, dtype: torch.dtype = torch.float32) -> Terms:
    """Two networks cut behind their first block, and an adapter between them."""
    torch.manual_seed(0)
    halves = [split(zoo.build(arch, num_classes=2, seed=s).eval().to(where, dtype), AT[arch]) for s in (0, 1)]
    for half in halves:
        half.above.requires_grad_(False)
    with torch.no_grad():
        example = halves[0].below(torch.rand(1, 3, size, size).to(where, dtype))
    channels = example.shape[1]
    adapter = Adapter(channels, channels, start="random", seed=2, scale=0.8).to(where, dtype)
    task, teacher = halves[1].above, halves[0].above
    unused: dict[str, Any] = dict.fromkeys(("features", "labels", "pool", "input_shape"))
    options = AdapterOptions(way="back-distill", batch_size=1)
    given: dict[str, Any] = {"example": example, "dummy": Dummy("second", 0.5), "options": options, **unused}
    return Terms(["pseudo"], adapter, task, teacher, **given)


def by_chain(job: Terms, batch: int) -> Step:
    """The term as learn_adapter computes it."""
    job.options = replace(job.options, batch_size=batch)

    def step(number: int) -> Tensor:
        job.adapter.zero_grad(set_to_none=True)
        (loss,) = job.losses(job.drawn(number))
        loss.backward()
        return loss.detach()

    return step


def by_autograd(job: Terms, batch: int) -> Step:
    """The same by differentiating twins of both networks, the student's twice."""
    assert job.teacher is not None
    twins = [linear_twin(module) for module in (job.task, job.teacher)]
    chain = Chain(job.task, job.adapter(job.example).detach())  # only to draw the same random gradients
    like = job.example.expand(batch, -1, -1, -1)

    def step(number: int) -> Tensor:
        job.adapter.zero_grad(set_to_none=True)
        dummy = Dummy(job.dummy.kind, job.dummy.share, seed=job.options.seed * 100003 + number)
        gradient = chain.random(batch, seed=job.options.seed * 7919 + number, like=job.example)
        for layer in (m for twin in twins for m in twin.modules() if isinstance(m, Map)):
            layer.dummy = dummy
        x = like.detach().requires_grad_()
        (wanted,) = torch.autograd.grad(twins[1](x), x, gradient)
        y: Any = job.adapter.prepared(x)
        for conv in job.adapter.convs:  # its ReLUs let everything pass
            y = conv(y)
        given, arrived = torch.autograd.grad(twins[0](y), (x, y), gradient, create_graph=True)
        loss = job.difference(given, wanted, arrived.detach())
        loss.backward()
        return loss.detach()

    return step


class Map(nn.Module):
    """A ReLU as the second dummy sees it: what a random map lets pass."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place, self.dummy = place, Dummy("second", 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dummy.passes(x, self.place)


class Scale(nn.Module):
    """A batch norm without its shift, which no derivative sees."""

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__()
        assert layer.running_var is not None
        scale = (layer.running_var + layer.eps).rsqrt() * layer.weight
        self.scale: Tensor
        self.register_buffer("scale", scale[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def linear_twin(above: Above) -> Above:
    """The module as a pseudo-gradient sees it, for autograd to differentiate."""
    twin = copy.deepcopy(above, {id(t): t for t in above.state_dict(keep_vars=True).values()}).eval()  # weights shared
    place = 0
    for node in list(twin.net.graph.nodes):
        if node.op == "call_function" and node.target in (F.relu, torch.relu):
            twin.net.add_submodule(f"map{place}", Map(place))
            node.op, node.target, node.args, node.kwargs = "call_module", f"map{place}", node.args[:1], {}
            place += 1
            continue
        if node.op != "call_module":
            continue
        name, layer = str(node.target), twin.net.get_submodule(str(node.target))
        if isinstance(layer, nn.ReLU):
            twin.net.set_submodule(name, Map(place))
            place += 1
        elif isinstance(layer, nn.MaxPool2d):
            pool = nn.AvgPool2d(layer.kernel_size, layer.stride, layer.padding, ceil_mode=layer.ceil_mode)
            twin.net.set_submodule(name, pool)
        elif isinstance(layer, nn.AdaptiveMaxPool2d):
            twin.net.set_submodule(name, nn.AdaptiveAvgPool2d(layer.output_size))
        elif isinstance(layer, _BatchNorm):
            twin.net.set_submodule(name, Scale(layer))
    twin.net.recompile()
    return twin


def differences(arch: str, size: int) -> dict[str, float]:
    """In float64: how far the two losses, and the two gradients of the adapter, are from each other."""
    results = []
    for make in (by_chain, by_autograd):
        job = _problem(arch, min(size, 64), torch.device("cpu"), torch.float64)
        loss = make(job, 2)(0)
        weight = job.adapter.convs[0].weight
        assert isinstance(weight, Tensor) and weight.grad is not None
        results.append((loss, weight.grad))
    (one, a), (two, b) = results
    errors = {"loss_error": float((one - two).abs() / two), "gradient_error": float((a - b).norm() / b.norm())}
    if max(errors.values()) > TOLERANCE:
        raise JobFailed(f"the two do not compute the same: {errors}.")
    return errors
