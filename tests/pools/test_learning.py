"""Learning a task: the straight-through step, the search, its options, and what they cost in bytes."""

import copy
import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from brickwork import zoo
from brickwork.errors import BadData, BadModel, RequestError
from brickwork.evaluation import evaluate
from brickwork.pools import KernelPool, LearnOptions, learn, learning, rank_starts
from brickwork.pools.codebook_weight import CodebookWeight, StraightThrough
from brickwork.pools.search import Search
from brickwork.pools.taskfile import write_task
from brickwork.training import train

QUICK = {"epochs": 6, "lr": 0.1, "refresh": 1, "batch_size": 20, "device": "cpu", "progress": False}


@pytest.fixture(scope="module")
def second(digits):
    return digits[1]


@pytest.fixture(scope="module")
def learned(pool, second):
    return learn(pool, second.train_images, second.train_labels, classes=second.classes, **QUICK)


def test_the_gradient_is_that_of_the_papers_loss():
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 3, 3, 3, generator=draw, dtype=torch.float64, requires_grad=True)
    book = torch.randn(7, 9, generator=draw, dtype=torch.float64)
    x = torch.randn(2, 3, 5, 5, generator=draw, dtype=torch.float64)
    chosen = CodebookWeight(weight.detach(), book, commitment=0.3)
    chosen.use(chosen.nearest_to(weight))

    def loss(kernel):
        return nn.functional.conv2d(x, kernel).square().sum()

    loss(StraightThrough.apply(weight, chosen.kernels, chosen.pull)).backward()
    got, weight.grad = weight.grad, None
    kernels = chosen.kernels.detach()
    through = weight + (kernels - weight).detach()
    (loss(through) + 0.3 * (kernels - weight).square().mean()).backward()
    assert torch.allclose(got, weight.grad, atol=1e-12)


def test_skipping_what_cannot_have_changed_changes_nothing():
    draw = torch.Generator().manual_seed(0)
    book = torch.randn(32, 9, generator=draw)
    weight = torch.randn(50, 8, 3, 3, generator=draw) * 0.7
    lazy, full = CodebookWeight(weight, book), CodebookWeight(weight, book)
    for _ in range(5):
        weight = weight + 0.1 * torch.randn(weight.shape, generator=draw)
        full.fresh = False
        indices = [c.nearest_to(weight) for c in (lazy, full)]
        assert torch.equal(*indices)
        lazy.use(indices[0])


def test_a_task_is_learned(pool, second, learned):
    found = evaluate(pool.rebuild(learned), second.test_images, second.test_labels)
    assert found.accuracy > 0.8
    assert learned.classes == second.classes and 0 < learned.changed() < 0.9
    for name, codes in learned.codes.items():
        assert int(codes.max()) < len(pool.layers[name])


def test_the_same_seed_gives_the_same_task(pool, second, learned):
    again = learn(pool, second.train_images, second.train_labels, classes=second.classes, **QUICK)
    assert again.hash == learned.hash


def test_pool_and_start_are_left_as_they_were(pool, network, second, learned):
    before = copy.deepcopy(network.state_dict())
    digest, base = pool.hash, pool.base.hash
    learn(pool, second.train_images, second.train_labels, start=network, **{**QUICK, "epochs": 1})
    assert all(torch.equal(before[k], v) for k, v in network.state_dict().items())
    del pool.__dict__["versions"], pool.base.__dict__["hash"]
    assert (pool.hash, pool.base.hash) == (digest, base)


@pytest.mark.parametrize(
    "options",
    [
        {"refresh": 3},
        {"norms": "measured"},
        {"fold": True, "bits": 12},
        {"optimizer": "adamw", "lr": 0.005},
        {"commitment": 0.0},
    ],
    ids=["refresh", "measured", "fold", "adamw", "no-commitment"],
)
def test_options_learn_as_well(pool, second, options):
    task = learn(pool, second.train_images, second.train_labels, **{**QUICK, **options})
    found = evaluate(pool.rebuild(task), second.test_images, second.test_labels)
    assert found.accuracy > 0.55  # of three classes, after 36 steps


def test_starts(pool, network, second, learned):
    images, labels = second.train_images, second.train_labels
    for start in (learned, network, "random"):
        task = learn(pool, images, labels, start=start, **{**QUICK, "epochs": 1})
        assert task.reference is (learned if start is learned else pool.base)
    with pytest.raises(RequestError, match="'sideways'"):
        learn(pool, images, labels, start="sideways", **QUICK)
    wider = zoo.build("resnet8", num_classes=3, in_channels=1, width=8)
    with pytest.raises(BadModel, match="another network"):
        learn(pool, images, labels, start=wider, **QUICK)


def test_what_stays_costs_little(pool, second, learned):
    held = learn(pool, second.train_images, second.train_labels, classes=second.classes, stay=1.0, **QUICK)
    assert held.changed() < 0.7 * learned.changed()
    reference = ("base", pool.base)
    assert len(write_task(held, pool, reference)) < len(write_task(learned, pool, reference))


def test_a_budget_is_kept_to_the_byte(pool, second, learned):
    size = len(write_task(learned, pool, ("base", pool.base)))
    for budget in (int(0.8 * size), int(0.65 * size)):
        task = learn(pool, second.train_images, second.train_labels, classes=second.classes, budget=budget, **QUICK)
        used = len(write_task(task, pool, ("base", pool.base)))
        assert 0.85 * budget < used <= budget and 0 < task.changed() < learned.changed()
    with pytest.raises(RequestError, match=r"budget is 300 bytes, and norms, head and header alone take about"):
        learn(pool, second.train_images, second.train_labels, budget=300, **{**QUICK, "epochs": 10_000})  # at once
    with pytest.raises(RequestError, match="budget is 0"):
        learn(pool, second.train_images, second.train_labels, budget=0, **QUICK)


def test_only_the_changes_that_gain_most_are_made(pool, network):
    model = pool.rebuild(pool.base)
    search = Search(model, pool, pool.base, changes=7)
    with torch.no_grad():
        for name in search.layers:
            search.temporary(name).add_(
                torch.randn(pool.shapes[name].shape, generator=torch.Generator().manual_seed(0))
            )
    search.choose()
    made = sum(int((i != pool.base.codes[n]).sum()) for n, i in search.codes.items())
    assert made == 7


def test_layers_that_share_a_weight_share_its_kernels(tied):
    pool = KernelPool.cluster([tied], size=8)
    model = copy.deepcopy(tied)
    search = Search(model, pool, None)
    search.choose()
    x = torch.randn(2, 4, 5, 5, generator=torch.Generator().manual_seed(0))
    task = pool.task_of(model, codes=search.codes, bits=32)
    assert torch.equal(model(x), pool.rebuild(task)(x))  # what is trained is what is kept
    search.finish()
    assert model.two.weight is model.one.weight
    assert model.state_dict().keys() == tied.state_dict().keys()


def test_folded_norms_are_the_same_function(pool, network):
    x = torch.randn(8, 1, 8, 8, dtype=torch.float64)
    exact = copy.deepcopy(network).double()
    pool64 = KernelPool.cluster([exact], size=24)
    moved = copy.deepcopy(exact)
    for module in moved.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean += 0.3
            module.running_var *= 1.7
    plain, folded = (pool64.task_of(moved, bits=32, reference=pool64.base, fold=fold) for fold in (False, True))
    assert torch.allclose(pool64.rebuild(plain)(x), pool64.rebuild(folded)(x), atol=1e-10)
    assert torch.equal(folded.own["conv1.1.running_var"], pool64.base.own["conv1.1.running_var"])


def test_norms_that_are_measured_and_folded_are_the_same_function(pool, second):
    options = {**QUICK, "epochs": 1, "norms": "measured", "bits": 32}
    plain, folded = (
        learn(pool, second.train_images, second.train_labels, fold=fold, **options) for fold in (False, True)
    )
    x = torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(pool.rebuild(plain)(x), pool.rebuild(folded)(x), atol=1e-4)
    assert torch.equal(folded.own["conv1.1.running_var"], pool.base.own["conv1.1.running_var"])


def test_the_best_start_is_found_by_the_data(pool, digits, learned):
    second = digits[1]
    scores = rank_starts(
        pool, {"first": pool.base, "second": learned}, second.train_images, second.train_labels, device="cpu"
    )
    assert next(iter(scores)) == "second" and scores["second"] > scores["first"]
    with pytest.raises(RequestError, match="no task to start from"):
        rank_starts(pool, {}, second.train_images, second.train_labels)


def test_requests_that_cannot_be_right(pool, second):
    images, labels = second.train_images, second.train_labels
    for options, said in (
        ({"commitment": -1}, "commitment is -1"),
        ({"refresh": 0}, "refresh is 0"),
        ({"stay": -0.5}, "stay is -0.5"),
        ({"bits": 8}, "bits is 8; it must be one of 32, 16, 12"),
        ({"norms": "none"}, "norms is 'none'"),
        ({"norms": "measured", "budget": 5000}, "leave one out"),
        ({"classes": ["a", "a", "b"]}, "same name"),
    ):
        with pytest.raises(RequestError, match=said):
            learn(pool, images, labels, **{**QUICK, **options})
    with pytest.raises(BadData, match="labels run from 0 to 2, but there are 2 classes"):
        learn(pool, images, labels, classes=2, **QUICK)
    with pytest.raises(BadData, match="one class number per image"):
        learn(pool, images, labels.astype(float), **QUICK)


def test_a_data_set_is_augmented_as_suits_it_and_arrays_are_not(pool, second, monkeypatch):
    seen = []

    def spy(model, data, labels=None, **options):
        result = train(model, data, labels, **options)
        seen.append(result.options.augment)
        return result

    monkeypatch.setattr(learning, "train", spy)
    once, photos = {**QUICK, "epochs": 1}, replace(second, name="cifar10:3-5@40")
    task = learn(pool, second, **once)
    assert task.classes == second.classes and task.facts["images"] == len(second.train_labels)
    assert task.hash == learn(pool, second.train_images, second.train_labels, classes=second.classes, **once).hash
    learn(pool, photos, **once)
    assert seen == ["none", "none", "crop+flip"]


def test_a_task_knows_its_options_and_where_it_came_from(pool, second):
    task = learn(pool, second, budget="20K", fold=True, bits=12, stay=0.5, **{**QUICK, "epochs": 1})
    assert task.options == LearnOptions(epochs=1, lr=0.1, refresh=1, budget=20_000, fold=True, bits=12, stay=0.5)
    assert task.provenance["pool"] == pool.hash and task.provenance["reference"] == pool.base.hash
    about = json.loads(json.dumps(task.to_dict()))
    assert [row["layer"] for row in about["layers"]] == list(pool.layers) and about["hash"] == task.hash
    assert "<table>" in task._repr_html_()
