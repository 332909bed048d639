"""Pseudo-gradients against autograd, in float64, wherever both are defined."""

from __future__ import annotations

import copy
import importlib.util

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from brickwork import zoo
from brickwork.blueprint.splitting import split
from brickwork.errors import BadModel, RequestError
from brickwork.transplant.chain import Chain, Dummy


def linear_twin(above):
    """The module with ReLU, dropout and max-pooling as the pseudo-gradient sees them: autograd gives the same then."""
    twin = copy.deepcopy(above)
    modules = dict(twin.net.named_modules())
    for node in twin.net.graph.nodes:
        layer = modules.get(str(node.target)) if node.op == "call_module" else None
        if isinstance(layer, nn.ReLU | nn.ReLU6 | nn.Dropout | nn.Dropout2d):
            twin.net.set_submodule(str(node.target), nn.Identity())
        if isinstance(layer, nn.MaxPool2d):
            pool = nn.AvgPool2d(layer.kernel_size, layer.stride, layer.padding, ceil_mode=layer.ceil_mode)
            twin.net.set_submodule(str(node.target), pool)
        if isinstance(layer, nn.AdaptiveMaxPool2d):
            twin.net.set_submodule(str(node.target), nn.AdaptiveAvgPool2d(layer.output_size))
        if node.op == "call_function" and node.target in (F.relu, torch.relu):
            node.op, node.target, node.args, node.kwargs = "call_method", "clone", (node.args[0],), {}
    twin.net.recompile()
    return twin.eval()


def halves(arch, at, size=32, **args):
    torch.manual_seed(0)
    model = zoo.build(arch, num_classes=3, seed=0, **args).double().eval()
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    for name, value in model.named_parameters():
        if "score_" in name:
            nn.init.normal_(value.data)
    image = torch.randn(2, 3, size, size, dtype=torch.float64)
    both = split(model, at)
    return both.above, both.below(image).detach(), image


ARCHITECTURES = [
    ("vgg16", "features.6"),
    ("resnet18", "layer1"),
    ("resnet50", "layer2.1"),
    ("fcn8s", "to_8.4"),
    ("resnet8", "conv2"),
    ("simplenetv1", "features.5"),
    ("mobilenetv2", "features.3"),
    ("lenet", "pool1"),
]


@pytest.mark.parametrize(("arch", "at"), ARCHITECTURES)
def test_the_chain_is_autograd_on_the_linear_twin(arch, at):
    above, features, image = halves(arch, at)
    chain = Chain(above, features, image=image.shape)
    gradient = chain.random(2, seed=1)
    found = chain(gradient)
    x = features.clone().requires_grad_()
    y = linear_twin(above)(x, image=image)
    (wanted,) = torch.autograd.grad(y, x, gradient)
    assert (found - wanted).abs().max() <= 1e-10 * wanted.abs().max()


def test_odd_sizes_and_ceil_pools():
    above, features, image = halves("fcn8s", "to_8.4", size=45)
    chain = Chain(above, features, image=image.shape)
    gradient = chain.random(2, seed=1)
    x = features.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(linear_twin(above)(x, image=image), x, gradient)
    assert (chain(gradient) - wanted).abs().max() <= 1e-10 * wanted.abs().max()


def test_where_every_unit_is_on_it_is_the_true_gradient():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Identity(),
        nn.Conv2d(3, 4, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 2),
    ).double()
    nn.init.constant_(net[1].bias, 50.0)
    x = torch.randn(3, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn(3, 2, dtype=torch.float64)
    (true,) = torch.autograd.grad(net(x), x, gradient)
    assert (Chain(split(net, "0").above, x.detach())(gradient) - true).abs().max() <= 1e-12


def masked_twin(above, dummy):
    """As the linear twin, with the second dummy's maps at the ReLUs."""
    twin, places = copy.deepcopy(above), []

    class Masks(fx.Interpreter):
        def run_node(self, n):
            if n.op == "call_module" and isinstance(self.fetch_attr(str(n.target)), nn.ReLU):
                value = self.fetch_args_kwargs_from_env(n)[0][0]
                places.append(n)
                return value * dummy.passes(torch.ones_like(value), len(places) - 1)
            return super().run_node(n)

    return Masks(linear_like(twin))


def linear_like(above):
    modules = dict(above.net.named_modules())
    for name, layer in modules.items():
        if isinstance(layer, nn.MaxPool2d):
            above.net.set_submodule(name, nn.AvgPool2d(layer.kernel_size, layer.stride, layer.padding))
    return above.net.eval()


@pytest.mark.parametrize("kind", ["second", "lowest"])
def test_random_maps(kind):
    above, features, _ = halves("vgg16", "features.6")
    dummy = Dummy(kind, 0.3, seed=4)
    gradient = Chain(above, features).random(2, seed=1)
    found = Chain(above, features)(gradient, dummy)
    x = features.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(masked_twin(above, dummy).run(x), x, gradient)
    assert (found - wanted).abs().max() <= 1e-10 * wanted.abs().max() and wanted.abs().max() > 0
    assert torch.equal(Chain(above, features)(gradient, dummy), found)  # the same seed, the same maps


class NormAndRelu(nn.BatchNorm2d):
    """A batch norm with its activation inside, as timm's BatchNormAct2d: traced as a call of the function."""

    def __init__(self, width, **options):
        super().__init__(width, **options)
        self.act = nn.ReLU()

    def forward(self, x):
        own = self.running_mean is None
        y = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, own, 0.1, self.eps)
        return self.act(y)


def normed(**options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Identity(), nn.Conv2d(2, 3, 1), NormAndRelu(3, **options), nn.Flatten(), nn.Linear(12, 2))
    net = net.double().eval()
    for value in (*net.parameters(), *net.buffers()):
        if value.is_floating_point():
            value.data.uniform_(0.5, 1.5)
    return net


@pytest.mark.parametrize("affine", [True, False])
def test_a_batch_norm_with_its_activation_inside(affine):
    net, dummy = normed(affine=affine), Dummy("second", 0.5, seed=2)
    above, x = split(net, "0").above, torch.randn(4, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    chain, gradient = Chain(above, x.detach()), torch.randn(4, 2, dtype=torch.float64)
    (wanted,) = torch.autograd.grad(linear_twin(above)(x), x, gradient)
    assert (chain(gradient) - wanted).abs().max() <= 1e-12 * wanted.abs().max()
    (wanted,) = torch.autograd.grad(masked_twin(above, dummy).run(x), x, gradient)
    assert (chain(gradient, dummy) - wanted).abs().max() <= 1e-12 * wanted.abs().max()
    with torch.no_grad():
        before = chain(gradient)
        dict(above.named_buffers())["net.2.running_var"].mul_(4).add_(3 * net[2].eps)
        torch.testing.assert_close(chain(gradient), before / 2)


def test_a_published_network_with_activations_inside_its_norms():
    if any(importlib.util.find_spec(package) is None for package in ("timm", "torchvision")):
        pytest.skip("needs the extra timm")
    above, features, image = halves("timm:resnetv2_18", "stages.2")
    chain = Chain(above, features, image=image.shape)
    gradient = chain.random(2, seed=1)
    x = features.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(linear_twin(above)(x, image=image), x, gradient)
    assert (chain(gradient) - wanted).abs().max() <= 1e-10 * wanted.abs().max()


def test_a_batch_norm_by_the_statistics_of_its_batch_is_refused():
    above = split(normed(track_running_stats=False), "0").above
    with pytest.raises(BadModel, match=r"the operation batch_norm in layer '2'; .* batch norm by running statistics"):
        Chain(above, torch.zeros(1, 2, 2, 2).double())


def test_a_norm_that_has_changed_is_read_again():
    """Its factor is kept from call to call, and not when the norm's tensors are others."""
    net = (
        nn.Sequential(nn.Identity(), nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2))
        .double()
        .eval()
    )
    above = split(net, "0").above
    chain, ones = Chain(above, torch.zeros(1, 2, 2, 2).double()), torch.ones(1, 2).double()
    norm = next(m for m in above.modules() if isinstance(m, nn.BatchNorm2d))
    with torch.no_grad():
        before = chain(ones)
        assert torch.equal(chain(ones), before)
        norm.running_var.mul_(4)
        norm.eps *= 4
        torch.testing.assert_close(chain(ones), before / 2)
        norm.weight.mul_(3)
        torch.testing.assert_close(chain(ones), before * 1.5)
        norm.weight = nn.Parameter(2 * norm.weight.detach())
        torch.testing.assert_close(chain(ones), before * 3)


def test_maps_are_drawn_once_and_do_not_depend_on_being_kept(monkeypatch):
    dummy, like = Dummy("second", 0.5, seed=3), torch.ones(4, 5, 6, 6)
    first = dummy.passes(like, 2)
    monkeypatch.setattr("torch.rand", lambda *_, **__: pytest.fail("drawn again"))
    assert torch.equal(dummy.passes(like, 2), first) and 0.3 < first.mean() < 0.7
    monkeypatch.undo()
    monkeypatch.setattr("brickwork.transplant.chain.KEPT", 1)
    fresh = Dummy("second", 0.5, seed=3)
    assert torch.equal(fresh.passes(like, 2), first) and fresh == dummy and not fresh._drawn


@pytest.mark.parametrize("top", ["flatten", "mean"])
def test_an_enlarged_gradient_is_the_network_moved_over_a_larger_map(top):
    """Linear layers slide over the map as convolutions would: checked against that network, by autograd."""
    torch.manual_seed(0)
    head = (
        [nn.Flatten(), nn.Linear(4 * 9, 5), nn.Linear(5, 2)]
        if top == "flatten"
        else [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)]
    )
    net = nn.Sequential(nn.Identity(), nn.Conv2d(3, 4, 3, padding=1), nn.AvgPool2d(2), *head).double()
    chain = Chain(split(net, "0").above, torch.zeros(1, 3, 6, 6, dtype=torch.float64))
    gradient = chain.random(2, size=7, seed=3)
    window = torch.eye(4, dtype=torch.float64)[:, :, None, None].expand(4, 4, 3, 3) / 9
    if top == "flatten":
        first = nn.functional.conv2d
        slide = lambda x: first(first(x, net[4].weight.reshape(5, 4, 3, 3)), net[5].weight[:, :, None, None])  # noqa: E731
    else:
        slide = lambda x: F.conv2d(F.conv2d(x, window), net[5].weight[:, :, None, None])  # noqa: E731
    x = torch.zeros(
        2, 3, 18, 18, dtype=torch.float64, requires_grad=True
    )  # 9 × 9 after pooling, 7 × 7 windows of 3 × 3
    y = slide(F.avg_pool2d(F.conv2d(x, net[1].weight, padding=1), 2))
    assert y.shape[2:] == (7, 7)
    (wanted,) = torch.autograd.grad(y, x, gradient)
    assert (chain(gradient) - wanted).abs().max() <= 1e-12


def test_what_it_cannot_go_through_is_named():
    net = nn.Sequential(nn.Identity(), nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 1))
    with pytest.raises(BadModel, match=r"layer '2' \(GELU\)"):
        Chain(split(net, "0").above, torch.zeros(1, 4))
    with pytest.raises(RequestError, match="dummy is 'third'"):
        Dummy("third")
    with pytest.raises(RequestError, match="share is 0"):
        Dummy("second", 0)
    above, features, image = halves("fcn8s", "to_8.4")
    with pytest.raises(RequestError, match="give image="):
        Chain(above, features)
    with pytest.raises(RequestError, match="enlarged"):
        Chain(above, features, image=image.shape).random(1, size=7)


class Odd(nn.Module):
    """A network with one operation between two layers."""

    def __init__(self, operation):
        super().__init__()
        self.first, self.operation, self.last = nn.Conv2d(4, 4, 1), operation, nn.Conv2d(4, 1, 1)

    def forward(self, x):
        return self.last(self.operation(self.first(x)))


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x[:, [2, 0, 1, 3]],
        lambda x: x[:, :, ::2],
        lambda x: x[:, :, 1:],
        lambda x: torch.add(x, x, alpha=2),
        lambda x: x.mean(1, keepdim=True).expand(-1, 4, -1, -1),
        lambda x: F.max_pool2d(x, 2, dilation=2),
        lambda x: F.avg_pool2d(x, 3, padding=1, count_include_pad=False),
        nn.AvgPool2d(2, divisor_override=3),
        lambda x: x.permute(0, 1, 3, 2),
    ],
)
def test_what_looks_like_a_known_operation_and_is_not_is_refused(operation):
    cut = split(Odd(operation), "first")
    with pytest.raises(BadModel, match="cannot go through"):
        Chain(cut.above, torch.zeros(1, 4, 6, 6))


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x[:, :, :3, :4],
        lambda x: x[..., :5],
        lambda x: x + x,
        lambda x: torch.cat([x[:, :2], x[:, :2]], 1),
        lambda x: torch.cat([x[:, :, :3], x[:, :, :2]], -2),
        lambda x: torch.cat([x[:, :2], x[:, :2]], dim=-3),
        lambda x: F.avg_pool2d(x, 3, stride=2, padding=1),
        lambda x: x.mean((2, 3), keepdim=True),
    ],
)
def test_operations_against_autograd(operation):
    torch.manual_seed(0)
    cut = split(Odd(operation).double(), "first")
    x = torch.randn(2, 4, 6, 6, dtype=torch.float64, requires_grad=True)
    y = cut.above(x)
    gradient = torch.randn_like(y)
    (wanted,) = torch.autograd.grad(y, x, gradient)
    assert (Chain(cut.above, x.detach()[:1])(gradient) - wanted).abs().max() <= 1e-12


def test_a_value_of_the_input_is_no_size_of_it():
    class Mixed(nn.Module):
        def __init__(self, odd):
            super().__init__()
            self.odd, self.layer, self.last = odd, nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x):
            return self.last(self.layer(x)) + (x.T[0, 0] if self.odd else x.size(-1) + x.shape[1])

    with pytest.raises(BadModel, match="crossed by"):
        split(Mixed(True), "layer")
    x = torch.randn(4, 3)
    whole = split(Mixed(False), "layer")
    assert sorted(whole.above.sizes) == [-1, 1]
    assert torch.equal(whole.above(whole.below(x), image=x), whole(x))
