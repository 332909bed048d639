"""Moments of all patches without laying them out: the same sums, whatever the kernel."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from brickwork.blueprint.record import record
from brickwork.moments import Moments, collect_moments, windows
from brickwork.moments.layers import find_layers, rows_of
from brickwork.moments.windows import add_windows, has_windows

SUMS = ("gram", "cross", "sum_x", "sum_y", "sum_yy")
#: kernel, stride, padding, dilation, sides of the image
KERNELS = {
    "plain": (3, 1, 1, 1, (7, 6)),
    "stride": (3, 2, 1, 1, (9, 8)),
    "oblong": ((3, 5), 1, (1, 2), 1, (6, 7)),
    "one line": ((1, 3), 1, (0, 1), 1, (4, 4)),
    "one column": ((3, 1), (2, 1), (1, 0), 1, (7, 4)),
    "dilated": (3, 1, 2, 2, (7, 7)),
    "dilated with a stride": (3, 3, 0, 2, (11, 12)),
    "stem": (7, 2, 3, 1, (12, 11)),
    "no padding": (5, 1, 0, 1, (9, 9)),
    "smaller than the kernel": (3, 1, 1, 1, (2, 2)),
    "a single place": (3, 1, 1, 1, (1, 1)),
}


def layer_and_images(kernel, stride, padding, dilation, sides, dtype=torch.float64):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, kernel, stride, padding, dilation)).to(dtype)
    x = torch.randn(7, 3, *sides, dtype=dtype) + 1
    return net, find_layers(record(net, x), net)[0], x, net(x).detach()


def empty(net: nn.Module) -> Moments:
    return Moments.empty(net[0].weight[0].numel(), 4, groups=1)


@pytest.mark.parametrize("name", KERNELS)
def test_the_sums_are_those_of_the_patches(name, monkeypatch):
    net, layer, x, y = layer_and_images(*KERNELS[name])
    wanted = empty(net).add(*rows_of(layer, x, y, None))
    for room in (2**28, 4000):  # at once, and some images at a time
        monkeypatch.setattr(windows, "LAID_OUT", room)
        found = empty(net)
        add_windows(found, layer, x, y)
        assert found.rows == wanted.rows
        for sums in SUMS:
            torch.testing.assert_close(getattr(found, sums), getattr(wanted, sums), rtol=1e-12, atol=1e-11)


def test_other_responses_leave_the_inputs_alone():
    net, layer, x, y = layer_and_images(*KERNELS["plain"])
    both, other = empty(net), empty(net)
    add_windows(both, layer, x, y)
    add_windows(other, layer, x, 2 * y + 1)
    alone = both.responses_alone()
    add_windows(alone, layer, x, 2 * y + 1, gram=False)
    renewed = both.with_responses(alone)
    assert all(torch.equal(getattr(renewed, sums), getattr(other, sums)) for sums in SUMS)
    assert renewed.rows == both.rows


def test_half_precision_is_summed_in_single():
    net, layer, x, y = layer_and_images(*KERNELS["plain"], dtype=torch.bfloat16)
    found, wanted = empty(net), empty(net).add(*rows_of(layer, x.double(), y.double(), None))
    add_windows(found, layer, x, y)
    torch.testing.assert_close(found.gram, wanted.gram, rtol=1e-6, atol=1e-4)


def test_grouped_layers_small_kernels_and_other_axes_have_none():
    nets = [nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 1), nn.Conv1d(4, 4, 3), nn.Linear(4, 4), nn.Conv2d(4, 4, 3)]
    images = [torch.randn(2, 4, 5, 5)] * 2 + [torch.randn(2, 4, 5), torch.randn(2, 4), torch.randn(2, 4, 5, 5)]
    layers = [find_layers(record(nn.Sequential(n), x), nn.Sequential(n))[0] for n, x in zip(nets, images, strict=True)]
    assert [has_windows(layer) for layer in layers] == [False] * 4 + [True]


def test_collected_over_all_places_as_over_a_sample_of_all():
    net, _, x, _ = layer_and_images(*KERNELS["plain"])
    batches = list(x.split(3))
    every, sampled = (collect_moments(net, batches, places=k, progress=False)["0"] for k in (None, 42))
    for sums in SUMS:
        torch.testing.assert_close(getattr(every, sums), getattr(sampled, sums), rtol=1e-12, atol=1e-11)
