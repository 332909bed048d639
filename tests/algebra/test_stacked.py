"""Several networks in one pass, batch norms folded: each against the plain way, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import brickwork
from brickwork import zoo
from brickwork.algebra.cells import Cells
from brickwork.algebra.folded import Folded
from brickwork.algebra.plane import Plane
from brickwork.algebra.stacked import stack
from brickwork.blueprint.record import record
from brickwork.errors import RequestError

CPU = torch.device("cpu")
CELLS = [(1.0, 0.0), (0.3, 0.7), (0.0, 1.0), (-0.5, 2.0)]
#: architecture, arguments, size of an image
NETS = [("lenet", {}, 16), ("resnet8", {"width": 4}, 16), ("mobilenetv2", {}, 32)]


def shaken(model, seed):
    """The model in float64 with statistics and weights unlike those it was born with."""
    generator = torch.Generator().manual_seed(seed)
    model = model.double().eval()
    for name, value in model.state_dict().items():
        if name.endswith("running_var"):
            value.copy_(0.5 + torch.rand(value.shape, generator=generator))
        elif value.is_floating_point():
            value += 0.1 * torch.randn(value.shape, generator=generator).double()
    return model


def pair(arch, **args):
    return [shaken(zoo.build(arch, num_classes=5, seed=s, **args), s) for s in (0, 1)]


def alone(plane, cell, images):
    """One cell, the plain way: every tensor of the network itself, nothing folded."""
    state = {name: plane.at(name, [cell])[0] for name in plane.kept}
    return torch.func.functional_call(plane.model, state, (images,))


@pytest.mark.parametrize(("arch", "args", "size"), NETS, ids=lambda v: v if isinstance(v, str) else "")
def test_many_at_once_answer_as_each_alone(arch, args, size):
    plane = Plane(*pair(arch, **args), None, bn="linear", where=CPU)
    images = torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(2)).double()
    folded = Folded(plane, images[:2])
    assert not any(isinstance(m, nn.BatchNorm2d) for m in folded.model.modules())
    many = stack(folded.model, folded.graph, images[:2])
    assert many is not None
    cells = CELLS[:2] if arch != "lenet" else CELLS
    many.load(folded.state(cells))
    with torch.no_grad():
        found = many(images)
        for k, cell in enumerate(cells):
            right = alone(plane, cell, images)
            assert (found[:, k] - right).abs().max() <= 1e-9 * right.abs().max()


@pytest.mark.parametrize("arch", ["lenet", "resnet8"])
@pytest.mark.parametrize("bn", ["linear", "keep"])
@pytest.mark.filterwarnings("ignore::brickwork.errors.NegativeVariance")
def test_the_same_accuracies_as_the_plain_loop(arch, bn):
    args = {"width": 4} if arch == "resnet8" else {}
    nets = [*pair(arch, **args), shaken(zoo.build(arch, num_classes=5, seed=7, **args), 7)]
    images = torch.randn(41, 3, 16, 16, generator=torch.Generator().manual_seed(0)).double()
    labels = torch.arange(41) % 5
    plane = Plane(nets[0], nets[1], nets[2], bn=bn, where=CPU)
    grid = [0.0, 0.5, 1.5]
    with torch.no_grad():
        right = {
            (a, b): round(float((alone(plane, (a, b), images).argmax(1) == labels).double().mean()), 6)
            for a in grid
            for b in grid
        }
    for cells in (None, 1, 4):
        found = brickwork.sweep(
            nets[0],
            nets[1],
            base=nets[2],
            data={"x": (images, labels)},
            alpha=grid,
            beta=grid,
            bn=bn,
            cells=cells,
            batch_size=10,
            progress=False,
        )
        assert {(a, b): v for a, b, _, v in found.rows} == right


class Odd(nn.Module):
    """Grouped convolution on the images, a norm that nothing can be folded into, then what the subclass does."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(4, 8, 3, padding=1, groups=2)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 6, 3, stride=2, bias=False)
        self.head = nn.Linear(6, 5)

    def mix(self, x):
        return x

    def forward(self, x):
        x = self.norm(torch.relu(self.first(x)))
        return self.head(self.mix(self.second(x)).mean((2, 3)))


class Softmax(Odd):
    def mix(self, x):
        return torch.softmax(x, 1)


class Doubled(Odd):
    def mix(self, x):
        return (torch.cat([x, x], 1).unflatten(1, (2, 6))).sum(1)


class Choosing(Odd):
    def mix(self, x):
        return x if float(x.detach().sum()) > -1e9 else -x


@pytest.mark.parametrize(("kind", "stacked"), [(Odd, True), (Softmax, False), (Doubled, False), (Choosing, False)])
def test_networks_whose_channels_meet(kind, stacked):
    torch.manual_seed(0)
    nets = [shaken(kind(), s) for s in (0, 1)]
    plane = Plane(*nets, None, bn="linear", where=CPU)
    images, labels = torch.randn(30, 4, 9, 9).double(), torch.arange(30) % 5
    runner = Cells(plane, images[:2], cells=1 if kind is Choosing else 3, batch=None)
    assert (runner.stack is not None) == stacked
    group = CELLS[: runner.at_once]
    with torch.no_grad():
        right = [round(float((alone(plane, c, images).argmax(1) == labels).double().mean()), 6) for c in group]
    assert runner.accuracies(group, images, labels) == right


def test_small_networks_run_side_by_side_and_large_ones_alone():
    for arch, expected in (("lenet", 8), ("resnet8", 1)):
        nets = [zoo.build(arch, num_classes=5, seed=s) for s in (0, 1)]
        runner = Cells(Plane(*nets, None, bn="linear", where=CPU), torch.randn(2, 3, 32, 32), cells=None, batch=None)
        assert runner.at_once == expected and runner.stack is not None


def test_a_relu_behind_a_convolution_is_done_with_it():
    net = zoo.build("resnet8", num_classes=5, width=4, seed=0)
    folded = Folded(Plane(net, None, None, bn="linear", where=CPU), torch.zeros(2, 3, 16, 16))
    many = stack(folded.model, folded.graph, torch.randn(2, 3, 16, 16))
    assert not any(isinstance(m, nn.ReLU) for m in many.model.modules())
    assert record(folded.model, torch.zeros(2, 3, 16, 16)).calls["conv1.2"] == 1  # the network itself keeps it


def test_half_precision():
    nets = [zoo.build("lenet", num_classes=5, seed=s) for s in (0, 1)]
    data = {"x": (torch.randn(64, 3, 16, 16, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 5)}
    options = {"data": data, "alpha": [0.5, 1.0], "beta": [0.5], "progress": False}
    own, half = (brickwork.sweep(*nets, precision=p, **options) for p in ("auto", "bf16"))
    assert all(abs(a[3] - b[3]) < 0.2 for a, b in zip(own.rows, half.rows, strict=True))
    with pytest.raises(RequestError, match="precision is 'fp8'"):
        brickwork.sweep(*nets, precision="fp8", **options)


def test_cells_one_after_another_answer_as_side_by_side():
    """As large networks run on a GPU: combined in groups, each on its own through the images."""
    plane, images = (
        Plane(*pair("resnet8", width=4), None, bn="linear", where=CPU),
        torch.randn(30, 3, 16, 16).double(),
    )
    labels = alone(plane, CELLS[1], images).argmax(1)
    found = []
    for in_a_pass in (4, 3, 1):
        runner = Cells(plane, images[:2], cells=4, batch=12)
        runner.in_a_pass = in_a_pass
        found.append(runner.accuracies(CELLS, images, labels))
    assert found[0] == found[1] == found[2] and found[0][1] == 1.0


class _Asking(nn.Module):
    """A forward that looks at its convolution, as those of transformers do to pad."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

    def forward(self, x):
        edge = self.conv.kernel_size[0] // 2
        return self.head(self.conv(F.pad(x, [edge] * 4)).relu().mean((2, 3)))


def test_a_forward_that_asks_its_layers_is_not_stacked_but_swept():
    nets, images = [shaken(_Asking(), seed) for seed in (0, 1)], torch.randn(6, 3, 8, 8).double()
    assert stack(nets[0], record(nets[0], images), images) is None
    labels = nets[0](images).argmax(1)
    found = brickwork.sweep(*nets, data={"a": (images, labels)}, alpha=[1.0], beta=[0.0], progress=False)
    assert found.rows[0][-1] == 1.0
