"""Pools trained with a network: kernels follow, the unused start anew, the network keeps what it knows."""

import copy

import pytest
import torch
from torch import nn

from brickwork.errors import RequestError
from brickwork.evaluation import evaluate
from brickwork.pools import KernelPool, PretrainOptions, pretraining
from brickwork.pools.nearest import nearest
from brickwork.pools.pretraining import MovingCodebooks
from brickwork.pools.search import Search
from brickwork.training import train

QUICK = {"epochs": 8, "lr": 0.05, "batch_size": 20, "device": "cpu", "progress": False}


def test_a_trained_pool_serves_its_network_better(network, digits):
    first = digits[0]
    before = copy.deepcopy(network.state_dict())
    clustered = KernelPool.cluster([network], size=8)
    trained = KernelPool.pretrain(network, first, size=8, **QUICK)
    right = [evaluate(p.rebuild(p.base), first.test_images, first.test_labels).accuracy for p in (clustered, trained)]
    assert right[1] > 0.9 and right[1] >= right[0]
    assert trained.hash != clustered.hash and trained.base.classes == first.classes
    assert trained.options == PretrainOptions(size=8, head="fc", epochs=8, lr=0.05, batch_size=20)
    assert all(torch.equal(before[k], v) for k, v in network.state_dict().items())


def test_the_base_is_said_in_the_kernels_as_they_are_in_the_end(digits, monkeypatch):
    first, seen = digits[0], []
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))

    def spy(model, *args, **options):
        seen.append(model)
        return train(model, *args, **options)

    monkeypatch.setattr(pretraining, "train", spy)
    pool = KernelPool.pretrain(network, first.train_images, first.train_labels, size=8, **{**QUICK, "decay": 0.5})
    for name, layer in pool.shapes.items():
        near = nearest(seen[0].get_submodule(name).weight.reshape(-1, layer.length), pool.layers[name])
        assert torch.equal(pool.base.codes[name].long(), near), name


def test_kernels_move_to_the_mean_of_those_that_choose_them(pool):
    model = pool.rebuild(pool.base)
    search = Search(model, pool, None)
    books = MovingCodebooks(search, decay=0.0, revive=10**6, seed=0)
    with torch.no_grad():
        search.temporary("res1.0.0").add_(0.01 * torch.randn(8, 8, 3, 3, generator=torch.Generator().manual_seed(0)))
    books.step(0, 1)
    chosen = search.layers["res1.0.0"]
    vectors = chosen.vectors(search.temporary("res1.0.0"))
    for k in chosen.index.unique():
        assert torch.allclose(chosen.book[k], vectors[chosen.index == k].mean(0), atol=1e-6)


def test_unused_kernels_start_anew(pool):
    model = pool.rebuild(pool.base)
    search = Search(model, pool, None)
    with torch.no_grad():
        search.layers["res2.0.0"].book[:5] += 100.0
        search.temporary("res2.0.0").add_(0.05 * torch.randn(32, 32, 3, 3, generator=torch.Generator().manual_seed(0)))
    books = MovingCodebooks(search, decay=0.9, revive=2, seed=0)
    for step in range(4):
        books.step(step, 100)
    assert books.revived >= 5 and float(search.layers["res2.0.0"].book.abs().max()) < 50
    search.choose()
    assert len(search.codes["res2.0.0"].unique()) > len(pool.layers["res2.0.0"]) - 5


def test_requests_that_cannot_be_right(network, digits):
    first = digits[0]
    for options, said in (({"decay": 1.0}, "decay is 1.0"), ({"revive": 0}, "revive is 0"), ({"size": 0}, "size is 0")):
        with pytest.raises(RequestError, match=said):
            KernelPool.pretrain(network, first.train_images, first.train_labels, **options, **QUICK)
