"""REPAIR without batch norm: identities, the statistics that are asked for, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import brickwork
from brickwork.algebra import merge_on, rebasin, repair
from brickwork.algebra.data_methods import DATA_METHODS
from brickwork.errors import BadModel, RequestError
from brickwork.origin import Origin, Preprocessing, attach, origin_of
from brickwork.store import state_hash

QUIET = {"progress": False}
X = torch.randn(300, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def network(seed, *, bias=True, norm=False):
    torch.manual_seed(seed)
    return (
        nn.Sequential(
            nn.Conv2d(1, 6, 3, bias=bias),
            nn.BatchNorm2d(6) if norm else nn.Identity(),
            nn.ReLU(),
            nn.Conv2d(6, 6, 3, groups=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(96, 5),
        )
        .double()
        .eval()
    )


def statistics(model):
    """Mean and spread of every channel of every layer, by hooks."""
    seen = {}

    def hook(module, _, y):
        rows = y.movedim(1, -1).flatten(0, -2)
        seen[module] = torch.stack([rows.mean(0), rows.var(0, correction=0).sqrt()])

    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    handles = [m.register_forward_hook(hook) for m in layers]
    with torch.no_grad():
        model(X)
    for handle in handles:
        handle.remove()
    return [seen[m] for m in layers]


def test_networks_that_are_the_same_are_not_changed():
    net = network(0)
    again = repair(net, X, parents=[net, net, net])
    assert all((v - again.state_dict()[n]).abs().max() <= 1e-10 for n, v in net.state_dict().items())


@pytest.mark.parametrize("weights", [None, [3.0, 1.0]])
def test_every_layer_has_the_statistics_between_the_parents(weights):
    parents = [network(k) for k in range(2)]
    hashes = [state_hash(p) for p in parents]
    a, b = (0.5, 0.5) if weights is None else (0.75, 0.25)
    merged = merge_on(parents, [X[:100], X[100:]], "linear", weights=[a, b], repair=True, **QUIET)
    for now, *own in zip(statistics(merged), *map(statistics, parents), strict=True):
        assert (now - a * own[0] - b * own[1]).abs().max() <= 1e-10
    plain = statistics(brickwork.merge(parents, weights=[a, b]))
    assert plain[1][1].mean() < 0.9 * statistics(merged)[1][1].mean()  # it was needed: a mean varies less
    assert {n: p.shape for n, p in merged.state_dict().items()} == {
        n: p.shape for n, p in parents[0].state_dict().items()
    }
    assert [state_hash(p) for p in parents] == hashes and origin_of(merged).provenance["merge"]["repair"] is True
    same = repair(brickwork.merge(parents, weights=[a, b]), X, parents=parents, weights=[a, b])
    assert all((v - same.state_dict()[n]).abs().max() <= 1e-10 for n, v in merged.state_dict().items())


@pytest.mark.parametrize("by", ["weights", "activations"])
def test_behind_rebasin_the_parents_are_in_the_order_of_the_first(by):
    first, second = network(0), network(1)
    merged = merge_on([first, second], [X], "rebasin", by=by, repair=True, **QUIET)
    moved = rebasin(first, second, X, by=by)
    assert not torch.equal(moved[0].weight, second[0].weight)
    for now, *own in zip(statistics(merged), *map(statistics, (first, moved)), strict=True):
        assert (now - sum(own) / 2).abs().max() <= 1e-10


@pytest.mark.parametrize("method", [m.name for m in DATA_METHODS.values() if "repair" in m.every_option])
def test_behind_every_method_that_allows_it(method):
    """Of a network merged with itself it is that network; batch norms that a method folds are none."""
    folds = DATA_METHODS[method].folds
    net = network(0, norm=folds)
    options = {"base": net, "steps": 2} if DATA_METHODS[method].needs_base else {}
    merged = brickwork.merge([net, net], method, data=[X, X.flip(0)[:100]], repair=True, **options)
    with torch.no_grad():
        assert (merged(X) - net(X)).abs().max() <= 1e-6 * net(X).abs().max()


def test_where_each_has_a_set_of_its_own_it_is_asked_on_that():
    """What is set is the mean and spread of network 0 on the first images and network 1 on the others, taken together."""
    parents = [network(k) for k in range(2)]
    merged = merge_on(parents, [X[:100], 2 * X[100:]], "regmean", repair=True, **QUIET)
    both = torch.cat([X[:100], 2 * X[100:]])
    with torch.no_grad():
        wanted = torch.cat([parents[0](X[:100]), parents[1](2 * X[100:])])
        found = merged(both)
    assert (found.mean(0) - wanted.mean(0)).abs().max() <= 1e-10
    assert (found.std(0) - wanted.std(0)).abs().max() <= 1e-10


def test_a_channel_that_never_changes_stays():
    net = network(0)
    with torch.no_grad():
        net[0].weight[2], net[0].bias[2] = 0, 0.3
    again = repair(net, X, parents=[network(1), network(2)])
    assert not again[0].weight[2].any() and torch.isfinite(again(X)).all()


def test_wrong_requests():
    net, x = network(0), X[:20]
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    up = nn.Sequential(nn.ConvTranspose2d(1, 2, 2), nn.ReLU(), nn.Conv2d(2, 2, 1)).double()
    for call, error, message in (
        (lambda: repair(net, x), RequestError, "give them as `?parents"),
        (lambda: repair(network(0, norm=True), x, parents=[net]), RequestError, "`?parents`? are not used"),
        (lambda: repair(net, x, parents=[net, nn.Linear(2, 2)]), BadModel, "parent 0 and parent 1 are not of one"),
        (lambda: repair(net, x, parents=[net], weights=[-1]), RequestError, "there must be 1, all above 0"),
        (
            lambda: merge_on([net, net], [x], "linear", repair="yes", **QUIET),
            RequestError,
            "repair is 'yes'; it must be true",
        ),
        (
            lambda: merge_on([net] * 2, [x], "linear", weights=[2, -1], repair=True),
            RequestError,
            "needs them 0 or more",
        ),
        (lambda: merge_on([network(0, norm=True)] * 2, [x], "linear", repair=True), RequestError, "without batch norm"),
        (lambda: merge_on([network(0, bias=False)] * 2, [x], "rebasin", repair=True), BadModel, "0 has no bias"),
        (lambda: merge_on([tied, tied], [torch.randn(5, 4)], "linear", repair=True), BadModel, "shares its weight"),
        (lambda: merge_on([up, up], [x], "linear", repair=True), BadModel, "0 cannot be repaired"),
        (
            lambda: merge_on([net, net], [(x, x[:, 0, 0, 0])], "greedy_soup", repair=True),
            RequestError,
            "option of greedy_soup .repair",
        ),
        (lambda: merge_on([net, net], [x, x], "match", repair=True), RequestError, "option of match .repair"),
        (lambda: merge_on([net, net], [x], "linear", **QUIET), RequestError, "or ask for `?repair"),
        (lambda: brickwork.merge([net, net], repair=True), RequestError, "none are given; give some"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_each_parent_sees_the_images_as_it_prepares_them():
    """Whichever parent is named first; the merged network's images are prepared as the first one's."""
    a, b = network(0), network(1)
    attach(a, Origin(preprocessing=Preprocessing((8, 8), 1, (0.5,), (0.25,))))
    attach(b, Origin(preprocessing=Preprocessing((8, 8), 1, (0.0,), (1.0,))))
    raw = torch.randint(0, 256, (60, 8, 8, 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    merged = brickwork.merge([a, b])
    one, two = (repair(merged, raw, parents=parents) for parents in ([a, b], [b, a]))
    assert (one(X) - two(X)).abs().max() <= 1e-10 < (one(X) - merged(X)).abs().max()
