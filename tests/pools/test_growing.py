"""What a pool grows by: kernels for what its own leave badly served, as many as there is room for."""

import copy

import pytest
import torch

from brickwork.errors import RequestError
from brickwork.pools import KernelPool, PoolFolder, encode, learn
from brickwork.pools.clusters import k_means_beside
from brickwork.pools.gram_choice import strengths
from brickwork.pools.growing import GrowthBudget, new_kernels, without_unused
from brickwork.pools.growing_search import GrowingSearch
from brickwork.pools.growth_file import growth_bytes
from brickwork.pools.layers import weight_of
from brickwork.pools.nearest import nearest
from brickwork.pools.search import Search
from brickwork.prediction import predict

QUICK = {"epochs": 3, "lr": 0.05, "batch_size": 20, "device": "cpu", "progress": False}


@pytest.fixture(scope="module")
def small(network):
    return KernelPool.cluster([network], size=5)


@pytest.fixture(scope="module")
def second(digits):
    return digits[1]


@pytest.fixture(scope="module")
def grown(small, second):
    return learned(small, second)


def learned(pool, data):
    return learn(pool, data.train_images, data.train_labels, classes=data.classes, grow=12, **{**QUICK, "epochs": 6})


def error(pool, model):
    """How far a network is from the nearest kernels, all layers together."""
    total = 0.0
    for name, book in pool.layers.items():
        vectors = weight_of(model, name).reshape(-1, book.shape[1])
        total += float((vectors - book[nearest(vectors, book)]).square().sum())
    return total


def test_missing_centres_are_found_and_the_book_stays():
    draw = torch.Generator().manual_seed(0)
    places = torch.tensor([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0], [8.0, 8.0]], dtype=torch.float64)
    vectors = (places[:, None] + 0.1 * torch.randn(4, 50, 2, generator=draw, dtype=torch.float64)).reshape(-1, 2)
    book = vectors.reshape(4, 50, 2).mean(1)[:2]
    new = k_means_beside(vectors, book, 2, seed=1)
    # what is nearer to the new ones than to the book is the two groups that it lacks, and their means are exact
    assert torch.allclose(new, vectors.reshape(4, 50, 2).mean(1)[2:], atol=1e-12)
    assert torch.equal(new, k_means_beside(vectors, book, 2, seed=1))
    assert len(k_means_beside(vectors[:100], vectors[:100], 5)) == 0  # nothing is missing


def test_one_new_centre_is_the_weighed_mean():
    vectors = torch.tensor([[4.0], [6.0], [0.0]], dtype=torch.float64)
    book = torch.tensor([[0.0]], dtype=torch.float64)
    cost = torch.tensor([1.0, 3.0, 1.0])
    assert k_means_beside(vectors, book, 1, weights=cost).item() == pytest.approx(5.5)
    assert k_means_beside(vectors, book, 1).item() == pytest.approx(5.0)
    apart, cost = torch.tensor([[4.0], [-6.0], [0.0]], dtype=torch.float64), torch.tensor([1.0, 0.0, 1.0])
    for seed in range(8):  # what costs nothing is not served
        assert k_means_beside(apart, book, 1, weights=cost, seed=seed).item() == pytest.approx(4.0)


def test_new_kernels_are_told_exactly_in_16_bits_and_are_new():
    draw = torch.Generator().manual_seed(0)
    vectors = torch.randn(300, 9, generator=draw)
    book = vectors[:20].half().float()
    new = new_kernels(vectors, book, 30)
    assert 25 <= len(new) <= 30 and torch.equal(new.half().float(), new)
    both = torch.cat([book, new])
    assert len(torch.unique(both, dim=0)) == len(both)
    assert new_kernels(vectors, book, 0).shape == (0, 9)
    assert new_kernels(book.repeat(3, 1), book, 8).shape == (0, 9)  # it has them all
    assert new_kernels(book.repeat(3, 1) * 1.0001, book, 8).shape == (0, 9)  # or would, in 16 bits


def test_inputs_count_by_their_strength():
    """A grouped layer of 2 × 3 outputs, 2 inputs a group, vectors of 2 numbers."""
    gram = torch.diag_embed(torch.tensor([[1.0, 3.0, 10.0, 30.0], [100.0, 300.0, 0.0, 0.0]]))
    assert strengths(gram, 6, 2).tolist() == [2.0, 20.0] * 3 + [200.0, 0.0] * 3


def test_room_within_bytes_goes_where_it_saves_most(small, network, tmp_path):
    tuned = copy.deepcopy(network)
    with torch.no_grad():
        tuned.conv2[0].weight.add_(torch.randn(tuned.conv2[0].weight.shape, generator=torch.Generator().manual_seed(0)))
    weights = {name: weight_of(tuned, name) for name in small.shapes}
    counts = GrowthBudget(30, 700).shares(small, weights)
    # in shares of a layer's energy the layer that was changed has the most to gain
    assert max(counts, key=counts.get) == "conv2.0" and sum(counts.values()) > 0 and max(counts.values()) <= 30
    sizes = []
    for size in (500, 700, 5000):
        task = encode(small, tuned, metric="weight", grow=30, grow_bytes=size)
        sizes.append(0 if task.brings is None else growth_bytes(task.brings, small))
        assert sizes[-1] <= size
    assert sizes[0] < sizes[1] < sizes[2] and sizes[1] > 600
    folder = PoolFolder.create(tmp_path / "pool", small)
    before = folder.bytes()
    folder.add("one", encode(small, tuned, metric="weight", grow=30, grow_bytes=700))
    assert before < folder.bytes() <= before + 700
    assert encode(small, tuned, metric="weight", grow=30, grow_bytes=20).brings is None  # no room for a header


@pytest.mark.parametrize("factor", [1e-6, 1e6], ids=["tiny", "huge"])
def test_room_is_kept_to_where_16_bits_do_not_tell_kernels(network, digits, factor):
    model = copy.deepcopy(network)
    with torch.no_grad():
        model.conv2[0].weight.mul_(factor)  # a batch norm follows: the scale means nothing
        model.conv2[1].running_mean.mul_(factor)
        model.conv2[1].running_var.mul_(factor**2)
    pool, room = KernelPool.cluster([model], size=5), {"grow": 20, "grow_bytes": 1500}
    first = digits[0]
    tasks = [
        encode(pool, model, metric="weight", **room),
        learn(pool, first.train_images, first.train_labels, classes=first.classes, start=model, **room, **QUICK),
        encode(pool, model, first.train_images, device="cpu", progress=False, **room),
    ]
    assert all(1000 < growth_bytes(task.brings, pool) <= 1500 for task in tasks)


def test_kernels_are_told_in_16_bits_where_the_room_was_counted_so(small):
    counts = {"conv2.0": 40}
    assert not GrowthBudget(40).narrow(small, counts) and not GrowthBudget(40, 10**6).narrow(small, counts)
    assert GrowthBudget(40, 1200).narrow(small, counts)
    vectors = 1e-6 * torch.randn(300, 9, generator=torch.Generator().manual_seed(0))
    for narrow in (False, True):
        new = new_kernels(vectors, small.layers["conv2.0"], 8, narrow=narrow)
        assert len(new) and torch.equal(new.half().float(), new) is narrow


def test_with_room_for_all_kernels_the_network_comes_back_exactly(small, network):
    """A network whose weights 16 bits tell, said in a pool of five kernels a layer that may grow."""
    model = copy.deepcopy(network)
    with torch.no_grad():
        for name in small.shapes:
            weight = model.get_submodule(name).weight
            weight.copy_(weight.half().float())
    task = encode(small, model, metric="weight", grow=10**6, bits=32)
    for name in small.shapes:
        assert torch.equal(weight_of(small.rebuild(task), name), weight_of(model, name)), name
    x = torch.randn(3, 1, 8, 8)
    assert torch.equal(small.rebuild(task)(x), model.eval()(x))


@pytest.mark.parametrize("metric", ["weight", "gram"])
def test_encode_with_growth_is_nearer_and_leaves_the_pool_alone(small, network, digits, metric):
    images = digits[0].train_images
    digest, state = small.hash, copy.deepcopy(network.state_dict())
    plain, more = (
        encode(small, network, images, metric=metric, grow=grow, device="cpu", progress=False) for grow in (None, 8)
    )
    assert plain.brings is None and plain.pool == small.hash
    assert more.brings.after == small.hash and more.pool == more.brings.hash
    for name, rows in more.brings.layers.items():
        first = len(small.layers[name])
        assert len(rows) <= 8 and set(range(first, first + len(rows))) <= set(more.codes[name].tolist())
    wanted = predict(network, images, device="cpu")
    far = [
        float((predict(small.rebuild(task), images, device="cpu") - wanted).square().mean()) for task in (plain, more)
    ]
    assert far[1] < 0.7 * far[0]
    if metric == "weight":
        assert error(small.grown_by(more.brings), network) < 0.8 * error(small, network)
    assert small.hash == digest and all(torch.equal(state[k], v) for k, v in network.state_dict().items())
    again = encode(small, network, images, metric=metric, grow=8, device="cpu", progress=False)
    assert again.hash == more.hash


def test_kernels_that_nothing_is_said_in_are_dropped(small):
    name, old = "conv2.0", len(small.layers["conv2.0"])
    codes = dict(small.base.codes)
    codes[name] = codes[name].clone()
    codes[name][:3] = torch.tensor([old + 3, old, old + 3], dtype=torch.int32)
    new = {name: torch.arange(4.0)[:, None].repeat(1, 9), "conv1.0": torch.ones(2, 9)}
    kept, moved = without_unused(small, new, codes)
    assert kept[name][:, 0].tolist() == [0.0, 3.0] and len(kept["conv1.0"]) == 0
    assert moved[name][:3].tolist() == [old + 1, old, old + 1]
    assert torch.equal(
        torch.cat([small.layers[name], kept[name]])[moved[name].long()],
        torch.cat([small.layers[name], new[name]])[codes[name].long()],
    )
    assert all(torch.equal(moved[k], codes[k]) for k in codes if k != name)


def test_layers_that_cannot_be_solved_for_grow_too(tied):
    pool = KernelPool.cluster([tied], size=3)
    images = torch.randn(40, 4, 5, 5)
    task = encode(pool, tied, images, grow=4, device="cpu", progress=False)
    assert set(task.brings.layers) == {"depthwise", "grouped", "one"}  # `one` is used twice
    model = pool.rebuild(task)
    assert model.two.weight is model.one.weight


def test_learning_brings_kernels_that_it_uses(small, grown, second):
    assert grown.brings.after == small.hash and grown.pool == grown.brings.hash
    for name, rows in grown.brings.layers.items():
        first = len(small.layers[name])
        assert len(rows) <= 12 and torch.equal(rows.half().float(), rows)
        assert set(range(first, first + len(rows))) <= set(grown.codes[name].tolist()), name
    assert grown.facts["free"] == 0.6
    assert learned(small, second).hash == grown.hash
    accuracy = (predict(small.rebuild(grown), second.test_images).argmax(1).numpy() == second.test_labels).mean()
    assert accuracy > 0.8


def test_the_pools_own_kernels_never_move_and_what_is_used_is_what_is_kept(small, network):
    model = copy.deepcopy(network)
    search = Search(model, small, None, refresh=1, free=0.4)
    growing = GrowingSearch(search, small, GrowthBudget(4), search.step)
    draw = torch.Generator().manual_seed(0)
    sizes = set()
    for step in range(20):
        growing.step(step, 20)
        for name, chosen in search.layers.items():
            assert torch.equal(chosen.book[: len(small.layers[name])], small.layers[name]), (step, name)
            with torch.no_grad():  # as training would move them
                weight = search.temporary(name)
                weight.add_(0.05 * torch.randn(weight.shape, generator=draw))
        sizes.add(len(search.layers["conv2.0"].book))
    assert len(sizes) > 1
    growing.finish()
    grown = small.grown_by(growing.growth)
    for name, chosen in search.layers.items():
        assert torch.equal(grown.layers[name], chosen.book), name
        used = model.get_submodule(name).weight.detach()
        assert torch.equal(grown.layers[name][chosen.index].reshape(used.shape), used), name


def test_a_task_starts_from_one_that_let_the_pool_grow(small, grown, second, tmp_path):
    folder = PoolFolder.create(tmp_path / "pool", small)
    folder.add("first", grown)
    start = folder.task("first")
    task = learn(
        folder.pool,
        second.train_images,
        second.train_labels,
        classes=second.classes,
        start=start,
        stay=1.0,
        grow=2,
        **{**QUICK, "epochs": 1},
    )
    folder.add("second", task)
    opened = PoolFolder.open(folder.path)
    assert opened.task("second").hash == task.hash and opened.header("second")["reference"][0] in ("first", "base")
    assert len(opened.pool.grown) == 1 + (task.brings is not None)


def test_a_budget_is_kept_while_the_pool_grows(small, second, tmp_path):
    task = learn(
        small,
        second.train_images,
        second.train_labels,
        classes=second.classes,
        grow=4,
        budget=1700,
        fold=True,
        bits=12,
        **QUICK,
    )
    folder = PoolFolder.create(tmp_path / "pool", small)
    folder.add("one", task)
    assert folder.bytes("one") <= 1700


def test_a_free_part_uses_the_weights_as_they_are(small, network):
    model = copy.deepcopy(network)
    search = Search(model, small, None, free=0.5)
    free = weight_of(network, "conv2.0")
    search.step(4, 10)
    assert torch.allclose(model.conv2[0].weight, free, atol=1e-7)
    search.step(5, 10)
    kernels = small.layers["conv2.0"][search.layers["conv2.0"].index].reshape(free.shape)
    assert torch.equal(model.conv2[0].weight.detach(), kernels) and not torch.allclose(kernels, free, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"grow": 0}, "grow is 0"),
        ({"grow": 4, "grow_bytes": 0}, "grow_bytes is 0"),
        ({"grow_bytes": 500}, "grow_bytes is 500, and grow"),
        ({"free": 1.0}, "free is 1"),
        ({"free": -0.1}, "free is -0.1"),
    ],
    ids=["none", "no-bytes", "bytes-alone", "all-free", "less-than-free"],
)
def test_wrong_options(small, second, options, said):
    with pytest.raises(RequestError, match=said):
        learn(small, second.train_images, second.train_labels, **options, **QUICK)
