"""Merging that looks at images, and re-basin: identities, and that it is worth it on two tasks."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import brickwork
from brickwork import data, zoo
from brickwork.algebra.with_data import METHODS, merge_on, rebasin, repair
from brickwork.errors import RequestError, UnknownName
from brickwork.evaluation import evaluate
from brickwork.moments import fold_batch_norm
from brickwork.store import state_hash
from brickwork.training import train

QUIET = {"progress": False}


def scrambled(seed):
    torch.manual_seed(seed)
    net = zoo.build("resnet8", num_classes=5, in_channels=1, width=4, seed=seed).double().eval()
    with torch.no_grad():
        for buffer in net.buffers():
            if buffer.is_floating_point():
                buffer.copy_(torch.rand_like(buffer) + 0.5)
    return net


X = torch.randn(60, 1, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("method", METHODS)
def test_a_network_merged_with_itself(method):
    net = scrambled(0)
    before = state_hash(net)
    merged = merge_on([net, net], [X, X.flip(0)], method, **QUIET)
    with torch.no_grad():
        assert (merged(X) - net(X)).abs().max() <= 1e-6 * net(X).abs().max()
    assert state_hash(net) == before and not merged.training
    again = merge_on([net, net], [X, X.flip(0)], method, **QUIET)
    assert state_hash(again) == state_hash(merged)


def test_regmean_is_the_papers_formula():
    torch.manual_seed(0)
    a, b = (nn.Sequential(nn.Linear(4, 3, bias=False)).double() for _ in range(2))
    x, y = torch.randn(30, 4, dtype=torch.float64), torch.randn(50, 4, dtype=torch.float64)
    merged = merge_on([a, b], [x, y], "regmean", shrink=0.7, ridge=0.0, **QUIET)

    def gram(z):
        full = z.T @ z / len(z)
        return 0.7 * full + 0.3 * torch.diag(full.diagonal())

    wanted = torch.linalg.solve(gram(x) + gram(y), gram(x) @ a[0].weight.T + gram(y) @ b[0].weight.T).T
    assert (merged[0].weight - wanted).abs().max() <= 1e-10


def test_fisher_is_the_mean_where_all_matters_the_same():
    torch.manual_seed(0)
    a = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
    b = copy.deepcopy(a)
    with torch.no_grad():
        b[1].weight += 1e-9  # the same predictions, so the same importance
    x = torch.randn(40, 1, 2, 2, dtype=torch.float64)
    merged = merge_on([a, b], [x, x], "fisher", **QUIET)
    assert (merged[1].weight - (a[1].weight + b[1].weight) / 2).abs().max() <= 1e-12


def test_rebasin_undoes_a_permutation():
    net = scrambled(1)
    bp = brickwork.trace(net, X[:2])
    order = {n: torch.randperm(s).tolist() for n, s in bp.spaces.items() if n != "classes"}
    moved = bp.permute(net, order)
    back = rebasin(net, moved, X[:2])
    with torch.no_grad():
        assert (back(X) - moved(X)).abs().max() <= 1e-10
    assert all((v - back.state_dict()[n]).abs().max() <= 1e-12 for n, v in net.state_dict().items())


def test_two_tasks():
    """Two halves of the digits, each numbered 0 to 4, from one start: matching beats the mean of the weights."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    common = data.load("digits", size=16, channels=1).preprocessing()
    halves = [data.load(f"digits:{h}", size=16, channels=1) for h in "AB"]
    nets = []
    for half in halves:
        net = zoo.build("resnet8", num_classes=5, in_channels=1, width=8, seed=0)
        train(
            net, half.train_images, half.train_labels, epochs=3, batch_size=32, lr=0.05, preprocessing=common,
            device="cpu", progress=False,
        )  # fmt: skip
        nets.append(net.eval())
    images = [half.train_images[:300] for half in halves]

    def worst(model):
        return min(evaluate(model, h.test_images, h.test_labels).accuracy for h in halves)

    plain = brickwork.merge(nets)
    repaired = repair(plain, torch.cat([torch.from_numpy(i) for i in images]))
    matched = merge_on(nets, images, "match", **QUIET)
    torch.set_num_threads(threads)
    assert worst(matched) > worst(plain) + 0.1 and worst(repaired) >= worst(plain) - 0.05
    folded = fold_batch_norm(nets[0], torch.zeros(2, 1, 16, 16))
    assert {n: p.shape for n, p in matched.named_parameters()} == {
        n: p.shape for n, p in folded.named_parameters()
    }


def test_wrong_requests():
    net = nn.Sequential(nn.Linear(4, 3))
    x = torch.randn(10, 4)
    for arguments, options, error, message in (
        (([net], [x], "mach"), {}, UnknownName, "did you mean 'match'"),
        (([net, net], [x]), {}, RequestError, "2 networks and 1 sets"),
        (([net], [x]), {"weights": [0]}, RequestError, "all above 0"),
        (([net], [x], "regmean"), {"shrink": 2}, RequestError, "shrink is 2"),
    ):
        with pytest.raises(error, match=message):
            merge_on(*arguments, **options, **QUIET)
