"""Merge methods: identities, the papers' formulas by hand, and the same bytes in any order."""

from __future__ import annotations

import copy
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.algebra import methods, sparse
from brickwork.algebra.methods import TensorContext, get
from brickwork.errors import BadModel, RequestError, UnknownName
from brickwork.store import state_hash

get("linear")  # registers all
ALL = sorted(methods.REGISTRY)


def some(seed, count=3, shape=(6, 5), dtype=np.float64):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(dtype) for _ in range(count)]


def call(name, tensors, base, **options):
    found = get(name)
    place = TensorContext("w", 0)
    if found.survey is not None:
        vectors = [lambda every, t=t: iter([t - base]) for t in tensors]
        place = TensorContext("w", 0, found.survey(vectors, {**found.options, **options}))
    return found.function(tensors, base, place, **{**found.options, **options})


@pytest.mark.parametrize("name", ALL)
def test_every_method(name):
    """Shapes and types stay, inputs are left alone, the same call gives the same bytes, and it says where it is from."""
    found = get(name)
    count = found.models[1] or 3
    for dtype in (np.float32, np.float64):
        base, *tensors = some(1, count + 1, dtype=dtype)
        before = [t.copy() for t in (base, *tensors)]
        merged = call(name, tensors, base)
        assert merged.shape == base.shape and merged.dtype == dtype and np.isfinite(merged).all()
        assert all(np.array_equal(a, b) for a, b in zip(before, (base, *tensors), strict=True))
        assert np.array_equal(merged, call(name, tensors, base))
    assert found.paper.startswith("https://") and found.about


@pytest.mark.parametrize("name", ["linear", "slerp", "model_stock"])
def test_merging_equal_models_gives_that_model(name):
    base, a = some(2, 2)
    assert np.allclose(call(name, [a, a], base), a, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in ALL if get(n).needs_base])
def test_models_that_learned_nothing(name):
    (base,) = some(3, 1)
    assert np.allclose(call(name, [base, base], base), base, rtol=0, atol=1e-12)


def test_task_arithmetic_and_negation():
    base, a, b = some(4)
    assert np.allclose(
        call("task_arithmetic", [a, b], base, weights=[0.3, -0.5]), base + 0.3 * (a - base) - 0.5 * (b - base)
    )
    assert np.allclose(call("task_arithmetic", [a], base), a)


def test_slerp_keeps_the_length_of_unit_vectors():
    a, b = (x / np.linalg.norm(x) for x in some(5, 2))
    for t in (0.0, 0.25, 1.0):
        assert np.linalg.norm(call("slerp", [a, b], None, t=t)) == pytest.approx(1)
    assert np.allclose(call("slerp", [a, b], None, t=0.0), a)


def test_ties_by_hand():
    base = np.zeros(4)
    a, b = np.array([4.0, -3.0, 0.5, 1.0]), np.array([2.0, 5.0, -0.2, 0.1])
    # half of each stays: (4, −3) and (2, 5); signs elected: +, +; means of those that agree: 3 and 5
    assert np.allclose(call("ties", [a, b], base, density=0.5, trim="tensor"), [3, 5, 0, 0])
    assert np.allclose(call("ties", [a, b], base, density=0.5, trim="tensor", scale=2.0), [6, 10, 0, 0])
    assert np.allclose(call("ties", [a, b], base, density=1.0), [3, 5, 0.5, 0.55])


def test_ties_trims_over_the_whole_vector_or_every_tensor():
    zero = {"u": torch.zeros(4), "v": torch.zeros(4)}
    a = {"u": torch.tensor([9.0, 8.0, 7.0, 6.0]), "v": torch.tensor([1.0, 2.0, 3.0, 4.0])}
    whole = brickwork.merge([a], "ties", base=zero, density=0.5)
    each = brickwork.merge([a], "ties", base=zero, density=0.5, trim="tensor")
    assert whole["u"].tolist() == [9, 8, 7, 6] and whole["v"].tolist() == [0, 0, 0, 0]
    assert each["u"].tolist() == [9, 8, 0, 0] and each["v"].tolist() == [0, 0, 3, 4]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.floats(0.001, 1))
def test_the_global_threshold_is_exact(seed, parts, density):
    rng = np.random.default_rng(seed)
    vectors = [np.round(rng.normal(size=rng.integers(1, 50)), 1).astype(np.float32) for _ in range(parts)]
    everything = np.abs(np.concatenate(vectors))
    walk = lambda every: iter(vectors[::every])  # noqa: E731
    wanted = sparse.threshold(everything, density)
    assert sparse.global_threshold(walk, density) == wanted
    assert sparse.counted_threshold(walk, max(1, round(density * everything.size))) == wanted


@pytest.mark.parametrize("density", [0.001, 0.2, 0.5, 0.999, 1.0])
def test_the_global_threshold_of_many_numbers(density):
    """Large enough that the sample brackets it; and in an order that misleads the sample."""
    rng = np.random.default_rng(0)
    vectors = [rng.normal(size=5000).astype(np.float32) for _ in range(20)]
    misleading = [np.where(np.arange(5000) % 9 == 0, 0.0, v).astype(np.float32) for v in vectors]
    for parts in (vectors, misleading, [np.zeros(100, np.float32)]):
        everything = np.abs(np.concatenate(parts))
        assert sparse.global_threshold(lambda every, parts=parts: iter(parts[::every]), density) == sparse.threshold(
            everything, density
        )


def test_dare_keeps_the_mean_and_drops_the_share():
    base = np.zeros((200, 500))
    merged = call("dare", [np.ones((200, 500))], base, density=0.25)
    assert set(np.unique(merged)) == {0.0, 4.0} and merged.mean() == pytest.approx(1, abs=0.02)


def test_della_drops_small_entries_more_often():
    vector = np.tile(np.linspace(0.1, 1, 100), (2000, 1))
    stays = call("della", [vector], np.zeros_like(vector), density=0.5, window=0.4, elect="none") != 0
    rates = stays.mean(0)
    assert rates[:10].mean() == pytest.approx(0.32, abs=0.03) and rates[-10:].mean() == pytest.approx(0.68, abs=0.03)


def _ranked(vectors, density, window, chances):
    """DELLA and breadcrumbs as they were first written: everything is sorted, stably."""
    order = np.argsort(np.argsort(np.abs(vectors), axis=1, kind="stable"), axis=1, kind="stable")
    return np.clip(density + window * (order / max(1, vectors.shape[1] - 1) - 0.5), 1e-3, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(37, 4001), (300, 3, 3), (5,), (1, 7), (2**12, 129)])
def test_sorting_in_blocks_gives_the_same_bits(dtype, shape):
    """Ties included: differences of 16-bit weights have many."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=shape).astype(dtype)
    models = [base + (np.round(rng.normal(size=shape) * 8) / 64).astype(dtype) for _ in range(2)]
    context = TensorContext("w", 3)
    rows = shape[0] if len(shape) > 1 else 1
    kept = []
    for k, x in enumerate(models):
        vector = (x - base).reshape(rows, -1)
        chance = _ranked(vector, 0.5, 0.2, None).astype(np.float32)
        stays = context.uniform(k, vector.shape) < chance
        kept.append(np.where(stays, vector / chance.astype(dtype), dtype(0)).reshape(shape))
    found = get("della").function(models, base, context, elect="none")
    assert np.array_equal(found, base + (kept[0] + kept[1])) and found.dtype == dtype
    kept = []
    for x in models:
        vector = (x - base).ravel()
        top = round(0.05 * vector.size)
        chosen = np.argsort(-np.abs(vector), kind="stable")[top : top + max(1, round(0.7 * vector.size))]
        only = np.zeros_like(vector)
        only[chosen] = vector[chosen]
        kept.append(only.reshape(shape))
    found = get("breadcrumbs").function(models, base, context, density=0.7, outliers=0.05)
    assert np.array_equal(found, base + (kept[0] + kept[1]))


def test_the_memory_of_a_global_threshold_does_not_grow_with_the_vector():
    """It was half a byte per number: a sample of a piece kept all of the piece."""
    piece = np.random.default_rng(0).normal(size=2**16).astype(np.float32)
    tracemalloc.start()
    sparse.global_threshold(lambda every: (piece * (1 + 1e-3 * k) for k in range(0, 1000, every)), 0.2)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20e6  # 65 million numbers; 36 MB before


@pytest.mark.parametrize("widest", [1, sparse.WIDEST])
def test_the_global_threshold_of_numbers_that_are_much_alike(monkeypatch, widest):
    """Memory is for the values of a bracket, not for all numbers in it; a wide bracket is counted out."""
    monkeypatch.setattr(sparse, "WIDEST", widest)
    rng = np.random.default_rng(0)
    parts = [(np.round(rng.normal(size=5000) * 50) / 64).astype(np.float32) for _ in range(20)]
    for density in (0.01, 0.2, 0.5, 0.99):
        wanted = sparse.threshold(np.abs(np.concatenate(parts)), density)
        assert sparse.global_threshold(lambda every: iter(parts[::every]), density) == wanted


def tsv_by_definition(tensors, base):
    """Task singular vectors as the paper writes them, by SVDs in float64; directions without weight left out."""
    flat = [(x.astype(np.float64) - base).reshape(len(x), -1) for x in tensors]
    rank = max(1, min(flat[0].shape) // len(flat))
    parts = []
    for matrix in flat:
        u, s, v = np.linalg.svd(matrix, full_matrices=False)
        count = min(rank, int((s > 1e-5 * s[0]).sum()))
        parts.append((u[:, :count], s[:count], v[:count]))
    left = np.linalg.svd(np.concatenate([u for u, _, _ in parts], 1), full_matrices=False)
    right = np.linalg.svd(np.concatenate([v for _, _, v in parts]), full_matrices=False)
    values = np.concatenate([s for _, s, _ in parts])
    return base + ((left[0] @ left[2] * values) @ (right[0] @ right[2])).reshape(base.shape)


@pytest.mark.parametrize("shape", [(40, 96), (96, 40), (24, 5, 3, 3), (32, 32)])
@pytest.mark.parametrize("rank", [None, 3, 0])
@pytest.mark.parametrize("tasks", [2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tsv_without_svds_is_that_of_svds(shape, rank, tasks, dtype):
    """Eigenvectors of products stand for singular vectors. Low ranks, zeros, and tasks that share directions as well."""
    rng = np.random.default_rng(0)
    base = np.zeros(shape)  # or differences would be rounded, and what is noise has no directions
    common = 0.05 * rng.normal(size=shape) if rank is None else 0
    models = []
    for _ in range(tasks):
        flat = rng.normal(size=(shape[0], int(np.prod(shape[1:]))))
        if rank is not None:
            flat = flat[:, :rank] @ rng.normal(size=(rank, flat.shape[1]))
        models.append((common + 0.1 * flat.reshape(shape)).astype(dtype))
    result = call("tsv", models, base.astype(dtype))
    wanted = tsv_by_definition(models, base)
    assert result.dtype == dtype
    assert np.abs(result - wanted).max() <= 2e-6 * np.abs(wanted).max()
    assert result.tobytes() == call("tsv", models, base.astype(dtype)).tobytes()


def test_breadcrumbs_drops_both_ends():
    vector = np.arange(1.0, 11.0)
    assert call("breadcrumbs", [vector], np.zeros(10), density=0.5, outliers=0.2).tolist() == [
        0,
        0,
        0,
        4,
        5,
        6,
        7,
        8,
        0,
        0,
    ]


def test_random_methods_do_not_depend_on_the_order_of_tensors():
    names = [f"layer{k}.weight" for k in range(5)]
    zero, a, b = ({n: torch.randn(4, 3) for n in names} for _ in range(3))
    turn = lambda state: dict(reversed(list(state.items())))  # noqa: E731
    for name in ("dare", "della"):
        one = brickwork.merge([a, b], name, base=zero, seed=3)
        two = brickwork.merge([turn(a), turn(b)], name, base=turn(zero), seed=3)
        assert state_hash(one) == state_hash(two)
        assert state_hash(one) != state_hash(brickwork.merge([a, b], name, base=zero, seed=4))


def test_isotropic_values_and_orthogonal_tasks():
    base, a = np.zeros((6, 6)), np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    assert np.allclose(call("iso_c", [a], base), a)  # equal singular values already
    u, s, v = np.linalg.svd(np.random.default_rng(1).normal(size=(8, 6)), full_matrices=False)
    one, two = (u[:, :3] * s[:3]) @ v[:3], (u[:, 3:6] * s[3:6]) @ v[3:6]
    assert np.allclose(call("tsv", [one, two], np.zeros((8, 6))), one + two)  # tasks that do not meet just add up
    singular = np.linalg.svd(call("iso_c", [one, two], np.zeros((8, 6))), compute_uv=False)
    assert np.allclose(singular, singular[0])


def test_directions_of_their_own_are_given_to_the_tasks():
    rng = np.random.default_rng(3)
    one, two, base = rng.normal(size=(10, 14)), rng.normal(size=(10, 14)), np.zeros((10, 14))
    assert np.allclose(call("iso_cts", [one, two], base, common=1.0), call("iso_c", [one, two], base))
    mixed = call("iso_cts", [one, two], base)
    singular = np.linalg.svd(mixed, compute_uv=False)
    assert np.allclose(singular, singular[0]) and not np.allclose(mixed, call("iso_c", [one, two], base))
    u, _, v = np.linalg.svd(rng.normal(size=(10, 10)))
    strong, weak = (
        9 * u[:, :8] @ v[:8],
        u[:, 8:9] @ v[8:9],
    )  # the sum's last directions are noise, the weak task has its own
    last = u[:, 8] @ call("iso_cts", [strong, strong + weak], np.zeros((10, 10))) @ v[8]
    assert last > 1  # as strong as the others


def test_what_is_merged_differs_least_on_the_rows_of_each_task():
    rng = np.random.default_rng(4)

    def loss(merged, tasks):
        return sum(np.square((merged - t) @ t.T).sum() / np.square(t).sum() for t in tasks)

    for shape in ((6, 20), (20, 6)):  # fewer rows than inputs, and more
        base = np.zeros(shape)
        tasks = [rng.normal(size=shape) for _ in range(3)]
        assert np.allclose(call("wudi", tasks[:1], base), tasks[0])  # one network alone is itself
        best = call("wudi", tasks, base, ridge=1e-9)
        for _ in range(20):
            assert loss(best, tasks) <= loss(best + 1e-3 * rng.normal(size=shape), tasks)
        assert loss(best, tasks) < min(loss(sum(tasks), tasks), loss(sum(tasks) / 3, tasks))
    apart = [np.zeros((4, 8)), np.zeros((4, 8))]
    apart[0][:, :4], apart[1][:, 4:] = rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    assert np.allclose(
        call("wudi", apart, np.zeros((4, 8)), ridge=1e-9), sum(apart), atol=1e-5
    )  # inputs that do not meet


def nets(count, arch="resnet8"):
    return [zoo.build(arch, num_classes=4, seed=s).eval() for s in range(count)]


def test_networks_with_batch_norm():
    base, a, b = nets(3)
    with torch.no_grad():
        for net in (base, a, b):
            for buffer in net.buffers():
                buffer.copy_(torch.rand(buffer.shape) + 0.5 if buffer.is_floating_point() else torch.tensor(7))
    before = [state_hash(m) for m in (base, a, b)]
    merged = brickwork.merge([a, b], "task_arithmetic", base=base, weights=[2.0, 2.0])
    assert [state_hash(m) for m in (base, a, b)] == before
    means = {n: (t + dict(b.named_buffers())[n]) / 2 for n, t in a.named_buffers() if t.is_floating_point()}
    for name, buffer in merged.named_buffers():
        if buffer.is_floating_point():
            assert torch.allclose(buffer, means[name]) and (buffer > 0).all()
        else:
            assert buffer.dtype == torch.int64 and buffer == 7
    kept = brickwork.merge([a, b], "task_arithmetic", base=base, bn="keep")
    assert all(torch.equal(t, dict(base.named_buffers())[n]) for n, t in kept.named_buffers())
    assert merged(torch.randn(2, 3, 32, 32)).shape == (2, 4)


def test_half_precision_is_added_in_float32():
    rng = torch.Generator().manual_seed(0)
    zero, a, b = ({"w": torch.randn(1000, generator=rng).bfloat16()} for _ in range(3))
    merged = brickwork.merge([a, b], "task_arithmetic", base=zero, weights=[0.3141, 0.4142])["w"]
    exact = zero["w"].double() * 0.2717 + 0.3141 * a["w"].double() + 0.4142 * b["w"].double()
    assert merged.dtype == torch.bfloat16
    assert (merged == exact.bfloat16()).float().mean() > 0.999


def test_tied_weights_stay_tied():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    base, one, two = Tied(), Tied(), Tied()
    merged = brickwork.merge([one, two], "dare", base=base)
    assert torch.equal(merged.a.weight, merged.b.weight) and merged.a.weight is merged.b.weight


def test_layers_and_gradients():
    a, b = ({f"layer{k}.w": torch.full((2,), v) for k in range(3)} for v in (0.0, 10.0))
    merged = brickwork.merge(
        [a, b], layers=[("layer*", "linear", {"weights": {"from": [1, 0], "to": [0, 1]}})], weights=[0.5, 0.5]
    )
    assert [merged[f"layer{k}.w"][0].item() for k in range(3)] == [0, 5, 10]
    merged = brickwork.merge([a, b], layers=[("layer1*", "linear", {"weights": [1, 0]})])
    assert [merged[f"layer{k}.w"][0].item() for k in range(3)] == [5, 0, 5]


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("tis", {}, "did you mean 'ties'"),
        ("ties", {}, "ties needs a base"),
        ("slerp", {}, "slerp merges 2 models, not 3"),
        ("linear", {"weights": [1, 2]}, "2 weights for 3 models"),
        ("linear", {"weight": [1, 2, 3]}, "did you mean 'weights'"),
        ("linear", {"weights": [1, -1, 0], "normalize": "yes"}, "add up to 0"),
        ("linear", {"weights": "many"}, "they must be numbers"),
        ("dare", {"density": 0, "base": True}, "density is 0; it must be above 0"),
        ("ties", {"trim": "some", "base": True}, "trim is 'some'; it must be global or tensor"),
        ("breadcrumbs", {"density": 0.9, "outliers": 0.3, "base": True}, "more than everything"),
        ("linear", {"bn": "recalibrate"}, "bn is recalibrate, which measures statistics on images, and none are given"),
        ("linear", {"bn": "guess"}, "bn is 'guess'; it must be one of batch, recalibrate, linear, keep"),
        ("linear", {"seed": -1}, "seed is -1"),
    ],
)
def test_requests_that_are_wrong(method, options, message):
    models = [{"w": torch.ones(2)} for _ in range(3)]
    base = models[0] if options.pop("base", False) else None
    with pytest.raises((RequestError, UnknownName), match=message):
        brickwork.merge(models, method, base=base, **options)


def test_models_that_do_not_fit():
    a, b = nets(1)[0], zoo.build("lenet", num_classes=4, seed=0)
    with pytest.raises(BadModel, match=r"not of one architecture; they differ in .*; .*; .* and \d+ more"):
        brickwork.merge([a, b])
    other = zoo.build("resnet8", num_classes=6, seed=0)
    with pytest.raises(BadModel, match=r"fc\.weight: 4×\d+ and 6×"):
        brickwork.merge([a, other])
    kept = brickwork.merge([a, other], heads="keep")
    assert torch.equal(kept.fc.weight, a.fc.weight)
    broken = copy.deepcopy(a)
    broken.fc.weight.data[0, 0] = float("nan")
    with pytest.raises(BadModel, match=r"fc\.weight of model 1 has 1 of \d+ values that are NaN"):
        brickwork.merge([a, broken])
    with pytest.raises(RequestError, match="nothing to merge"):
        brickwork.merge([])
