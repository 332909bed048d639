"""Encoding without training: exact with all kernels, and better in the Gram metric than by looks."""

import copy

import pytest
import torch
from torch import nn

from brickwork.errors import BadData, BadModel, RequestError
from brickwork.evaluation import evaluate
from brickwork.pools import EncodeOptions, KernelPool, encode, learn
from brickwork.pools.gram_choice import choose_in_gram
from brickwork.pools.nearest import nearest
from brickwork.training import train


@pytest.fixture(scope="module")
def tuned(network, digits):
    """The network fine-tuned on the second task."""
    model, second = copy.deepcopy(network), digits[1]
    train(
        model,
        second.train_images,
        second.train_labels,
        classes=second.classes,
        epochs=6,
        lr=0.1,
        batch_size=20,
        device="cpu",
        progress=False,
    )
    return model


def test_with_all_kernels_nothing_is_lost(tuned):
    exact = copy.deepcopy(tuned).double()
    pool = KernelPool.cluster([exact], size=10**6)
    images = torch.randn(60, 1, 8, 8, dtype=torch.float64)
    for metric in ("weight", "gram"):
        data = None if metric == "weight" else images
        task = encode(pool, exact, data, metric=metric, bits=32, device="cpu", progress=False)
        assert torch.allclose(pool.rebuild(task)(images), exact(images), atol=1e-9), metric


def test_images_of_uint8_are_given_to_a_network_in_its_precision(network, digits):
    exact, first = copy.deepcopy(network).double(), digits[0]
    pool = KernelPool.cluster([exact], size=8)
    quick = {"device": "cpu", "progress": False}
    tasks = [encode(pool, exact, first.train_images, metric=metric, **quick) for metric in ("gram", "weight")]
    tasks.append(learn(pool, first.train_images, first.train_labels, epochs=1, norms="measured", **quick))
    assert all(next(pool.rebuild(task).parameters()).dtype == torch.float64 for task in tasks)


def test_the_gram_metric_keeps_what_a_layer_answers():
    draw = torch.Generator().manual_seed(0)
    mix = torch.randn(36, 36, generator=draw, dtype=torch.float64)
    x = torch.randn(500, 36, generator=draw, dtype=torch.float64) @ mix
    weight = torch.randn(10, 4, 3, 3, generator=draw, dtype=torch.float64)
    book = torch.randn(200, 9, generator=draw, dtype=torch.float64)
    near, chosen = nearest(weight.reshape(-1, 9), book), choose_in_gram(weight, (x.T @ x)[None] / 500, book)

    def error(index):
        return float((x @ (weight.reshape(10, 36) - book[index].reshape(10, 36)).T).square().mean())

    assert error(chosen) < 0.85 * error(near)


def test_inputs_that_hardly_vary_still_give_a_metric():
    draw = torch.Generator().manual_seed(0)
    x = 3 + 1e-9 * torch.randn(200, 18, generator=draw, dtype=torch.float64)
    gram = x.T @ x / 200 - x.mean(0)[:, None] * x.mean(0)  # nothing but rounding, and not positive
    assert float(torch.linalg.eigvalsh(gram).min()) < 0
    weight, book = (torch.randn(*shape, generator=draw) for shape in ((4, 2, 3, 3), (10, 9)))
    assert choose_in_gram(weight, gram[None], book).shape == (8,)
    with pytest.raises(BadData, match="NaN or infinite"):
        choose_in_gram(weight, gram[None] * torch.nan, book)


def test_a_layer_behind_which_all_is_switched_off(tuned, digits):
    model = copy.deepcopy(tuned)
    torch.nn.init.zeros_(model.get_submodule("res1.1.1").weight)  # as networks begin whose last norms are zero
    pool = KernelPool.cluster([model], size=10**6)
    task = encode(pool, model, digits[1].train_images, device="cpu", progress=False)
    assert torch.equal(pool.weight(task, "res1.1.0"), model.get_submodule("res1.1.0").weight)


def test_one_kernel_a_filter_is_the_best_in_the_metric():
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(6, 1, 3, 3, generator=draw, dtype=torch.float64)  # depthwise: a Gram matrix each
    book = torch.randn(20, 9, generator=draw, dtype=torch.float64)
    root = torch.randn(6, 9, 9, generator=draw, dtype=torch.float64)
    gram = root @ root.mT
    gap = weight.reshape(6, 1, 9) - book[None]
    damped = gram + 0.01 * gram.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] * torch.eye(9)
    wanted = torch.einsum("gki,gij,gkj->gk", gap, damped, gap).argmin(1)
    assert torch.equal(choose_in_gram(weight, gram, book), wanted)


def test_encoding_keeps_most_of_the_accuracy(pool, tuned, digits):
    second = digits[1]
    judge = {"data": second.test_images, "labels": second.test_labels}
    whole = evaluate(tuned, **judge).accuracy
    found = {
        metric: evaluate(
            pool.rebuild(encode(pool, tuned, second.train_images, metric=metric, device="cpu", progress=False)), **judge
        ).accuracy
        for metric in ("gram", "weight")
    }
    blind = evaluate(pool.rebuild(encode(pool, tuned, metric="weight")), **judge).accuracy
    assert found["gram"] >= whole - 0.08 and found["gram"] >= found["weight"] - 0.03
    assert blind <= found["weight"] + 0.05


class Again(nn.Module):
    """A convolution that runs twice, with a batch norm of its own each time: it cannot be solved for."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.twice, self.last = (nn.Conv2d(1, 8, 3), *(nn.Conv2d(8, 8, 3, padding=1) for _ in range(2)))
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(4))
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, layer in zip(self.norms, (self.first, self.twice, self.twice, self.last), strict=True):
            x = norm(layer(x)).relu()
        return self.head(x.mean((2, 3)))


def test_what_cannot_be_solved_for_is_made_up_for_by_the_rest(digits):
    torch.manual_seed(0)
    model, first = Again(), digits[0]
    train(
        model,
        first.train_images,
        first.train_labels,
        classes=first.classes,
        epochs=12,
        lr=0.1,
        batch_size=20,
        device="cpu",
        progress=False,
    )
    pool = KernelPool.cluster([model], size=16)
    task = encode(pool, model, first.train_images, device="cpu", progress=False)
    right = [evaluate(m, first.test_images, first.test_labels).accuracy for m in (model.eval(), pool.rebuild(task))]
    assert right[0] > 0.9 and right[1] > right[0] - 0.1


def test_staying_changes_fewer_indices(pool, tuned, digits):
    images = digits[1].train_images
    shares = [
        encode(pool, tuned, images, metric=metric, stay=stay, device="cpu", progress=False).changed()
        for metric in ("gram", "weight")
        for stay in (0.0, 2.0)
    ]
    assert shares[1] < shares[0] and shares[3] < shares[2]


def test_a_base_chosen_by_its_responses(network, digits):
    first = digits[0]
    near = KernelPool.cluster([network], size=10)
    seen = KernelPool.cluster([network], size=10, data=first.train_images)
    assert near.hash == seen.hash and near.base.hash != seen.base.hash
    right = [evaluate(p.rebuild(p.base), first.test_images, first.test_labels).accuracy for p in (near, seen)]
    assert right[1] >= right[0]


def test_the_model_is_left_as_it_was(pool, tuned, digits):
    before = copy.deepcopy(tuned.state_dict())
    encode(pool, tuned, digits[1].train_images, device="cpu", progress=False)
    assert all(torch.equal(before[k], v) for k, v in tuned.state_dict().items())


def test_requests_that_cannot_be_right(pool, tuned, tied):
    with pytest.raises(RequestError, match="metric is 'looks'"):
        encode(pool, tuned, metric="looks")
    with pytest.raises(RequestError, match="stay is -1"):
        encode(pool, tuned, metric="weight", stay=-1)
    with pytest.raises(BadData, match="some hundred images"):
        encode(pool, tuned)
    with pytest.raises(BadModel, match="no layer 'fc'"):
        encode(pool, tied, metric="weight")


def test_a_data_set_is_taken_for_its_training_images(pool, tuned, digits):
    quick = {"stay": 1.0, "device": "cpu", "progress": False}
    one, two = (encode(pool, tuned, data, **quick) for data in (digits[1], digits[1].train_images))
    assert one.hash == two.hash and one.options == EncodeOptions(stay=1.0)
