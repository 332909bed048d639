"""Pools: with all kernels a network comes back exactly; what does not fit is refused by name."""

import copy
import importlib.util
from dataclasses import replace

import pytest
import torch
from torch import nn

from brickwork import zoo
from brickwork.errors import BadModel, RequestError, UnknownName
from brickwork.origin import Origin, attach
from brickwork.pools import KernelPool, PoolFolder, encode, learn
from brickwork.pools.arguments import same_arguments
from brickwork.pools.clusters import k_means, sums_by
from brickwork.pools.layers import find_layers, head_of, replace_head
from brickwork.pools.nearest import nearest
from brickwork.pools.norms import rounded_variance
from brickwork.pools.task import exact_in, rounded

EVERY = 10**6


@pytest.mark.parametrize(
    ("arch", "args", "group"),
    [
        ("lenet", {}, 1),
        ("resnet8", {"width": 4}, 1),
        ("mobilenetv2", {}, 1),
        ("vit_small", {"dim": 24, "depth": 1}, 1),
        ("vit_small", {"dim": 24, "depth": 1}, 3),
    ],
    ids=["lenet", "resnet8", "mobilenetv2", "vit", "vit-by-threes"],
)
def test_a_pool_of_all_kernels_reproduces_the_network(arch, args, group):
    model = zoo.build(arch, num_classes=4, seed=0, **args).double()
    pool = KernelPool.cluster([model], size=EVERY, group=group)
    back = pool.rebuild(pool.task_of(model, bits=32))
    for name, value in model.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(back.state_dict()[name], value), name
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    assert torch.equal(back(x), model(x))


@pytest.mark.parametrize(
    ("library", "arch", "args"),
    [
        ("timm", "timm:test_efficientnet", {}),
        ("transformers", "hf:resnet", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}),
    ],
    ids=["timm", "transformers"],
)
def test_networks_of_other_libraries_are_pooled(library, arch, args):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"needs {library}")
    model = zoo.build(arch, num_classes=3, seed=0, **args)
    pool = KernelPool.cluster([model], size=EVERY)
    x = torch.randn(2, 3, 64, 64)
    assert torch.equal(pool.rebuild(pool.task_of(model, bits=32))(x), model(x))


def test_tied_grouped_and_depthwise_layers(tied):
    pool = KernelPool.cluster([tied], size=EVERY)
    assert set(pool.layers) == {"depthwise", "grouped", "one"}  # the shared weight once
    back = pool.rebuild(pool.task_of(tied, bits=32))
    assert back.two.weight is back.one.weight
    x = torch.randn(2, 4, 5, 5)
    assert torch.equal(back(x), tied(x))


def test_norms_that_are_tied_in_the_pools_network_alone_are_refused_by_name(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)
    ).eval()
    untied = copy.deepcopy(model)
    model[3] = model[1]
    pool = KernelPool.cluster([model], size=EVERY)
    PoolFolder.create(tmp_path / "pool", pool)
    assert PoolFolder.open(tmp_path / "pool", arch=lambda: copy.deepcopy(model)).pool.tied == pool.tied
    pool.check(untied)  # two tensors of the same values are as good as one
    untied[3].weight.data.add_(1.0)
    with pytest.raises(BadModel, match=r"3\.weight and 1\.weight are one tensor in the pool's network and two"):
        pool.task_of(untied)
    KernelPool.cluster([untied], size=EVERY).check(model)  # the other way round nothing is lost


def test_the_network_is_left_as_it_was(network):
    before = copy.deepcopy(network.state_dict())
    KernelPool.cluster([network, network], size=8)
    assert all(torch.equal(before[k], v) for k, v in network.state_dict().items())


def test_the_same_seed_gives_the_same_pool(network):
    one, two = (KernelPool.cluster([network], size=16, seed=3) for _ in range(2))
    assert one.hash == two.hash and one.base.hash == two.base.hash
    assert one.hash != KernelPool.cluster([network], size=16, seed=4).hash


def test_a_pool_smaller_than_asked_says_so(network):
    pool = KernelPool.cluster([network], size=100)
    assert pool.short["conv1.0"] == 4  # one channel in, four out
    assert "conv4.0" not in pool.short and len(pool.layers["conv4.0"]) == 100


def test_several_networks_share_a_pool(network):
    other = zoo.build("resnet8", num_classes=5, in_channels=1, width=4, seed=1)
    pool = KernelPool.cluster([network, other], size=EVERY)
    x = torch.randn(2, 1, 8, 8)
    for model in (network, other):
        assert torch.equal(pool.rebuild(pool.task_of(model, bits=32))(x), model(x))


def test_grouped_scalars(network):
    model = nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 2))
    assert [s.length for s in find_layers(model, "4", group=4).values()] == [4, 2]  # 6 inputs: two at a time
    pool = KernelPool.cluster([model], size=5, group=4)
    assert pool.layers["0"].shape == (5, 4)
    pool.check(pool.rebuild(pool.base))


def test_layers_without_a_pool_are_refused_by_name(network, pool):
    wider = zoo.build("resnet8", num_classes=3, in_channels=1, width=8)
    with pytest.raises(BadModel, match=r"'conv1\.0' is 8×1×3×3 and the pool's is 4×1×3×3"):
        pool.check(wider)
    with pytest.raises(BadModel, match="no layer 'fc'"):
        pool.check(zoo.build("vgg16"))
    more = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    less = KernelPool.cluster([nn.Sequential(nn.Linear(4, 4), nn.Identity(), nn.Linear(4, 2))], size=4)
    with pytest.raises(BadModel, match=r"layer '1' \(4×4\) has no pool"):
        less.check(more)
    with pytest.raises(BadModel, match="has no layer '1'"):
        KernelPool.cluster([more], size=4).check(less.rebuild(less.base))


def test_a_network_of_the_same_shapes_built_with_other_arguments_is_refused():
    two, three = (zoo.build("vit_small", num_classes=2, dim=24, depth=1, heads=h, seed=0) for h in (2, 3))
    pool = KernelPool.cluster([two], size=4)
    said = r"built with heads=3, and the pool's was built with heads=2: another network"
    with pytest.raises(BadModel, match=said):
        encode(pool, three, metric="weight")
    with pytest.raises(BadModel, match=said):
        KernelPool.cluster([two, three], size=4)
    usual = zoo.build("vit_small", num_classes=5, dim=24, depth=1, seed=1)
    default = KernelPool.cluster([usual], size=4)
    default.check(zoo.build("vit_small", dim=24, depth=1, heads=zoo.build("vit_small").blocks[0].attn.heads))


def test_arguments_that_make_no_other_network_are_let_pass():
    mine = Origin(arch="my.module:net", args={"kinds": 5, "act": "relu", "dropout": 0.1})
    same_arguments(mine, replace(mine, args={"kinds": 3, "act": "relu", "dropout": 0.0}), (5, 3))
    same_arguments(mine, replace(mine, arch="my.module:other", args={"act": "gelu"}), (5, 5))
    with pytest.raises(BadModel, match=r"built without act, and the pool's was built with act='relu'"):
        same_arguments(mine, replace(mine, args={"kinds": 5}), (5, 5))
    with pytest.raises(BadModel, match=r"built with kinds=3, .* with kinds=5"):
        same_arguments(mine, replace(mine, args={**mine.args, "kinds": 3}), (5, 5))


def test_weights_that_are_computed_are_refused_by_name(network):
    for rule in (nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm):
        model = copy.deepcopy(network)
        rule(model.get_submodule("conv2.0"))
        with pytest.raises(BadModel, match=r"layer 'conv2\.0' is computed from others"):
            KernelPool.cluster([model], size=8)


def test_other_kinds_of_numbers_are_refused(network, pool, tmp_path):
    double = copy.deepcopy(network).double()
    for models, said in (
        ([copy.deepcopy(network).half()], "weights are float16"),
        ([copy.deepcopy(network).bfloat16()], "weights are bfloat16"),
        ([network, double], "weights are float32 and float64"),
    ):
        with pytest.raises(BadModel, match=said):
            KernelPool.cluster(models, size=8)
    with pytest.raises(BadModel, match="network is float64 and the pool's kernels are float32"):
        pool.task_of(double)
    with pytest.raises(RequestError, match="only a pool in float32"):
        PoolFolder.create(tmp_path / "pool", KernelPool.cluster([double], size=8))
    assert not (tmp_path / "pool").exists()


def test_a_task_of_another_pool_is_refused(network, pool):
    other = KernelPool.cluster([network], size=12)
    with pytest.raises(BadModel, match=f"pool {other.hash[:12]}"):
        pool.rebuild(other.base)


def test_requests_that_cannot_be_right(network):
    for options, said in (({"size": 0}, "size is 0"), ({"group": 0}, "group is 0")):
        with pytest.raises(RequestError, match=said):
            KernelPool.cluster([network], **options)
    with pytest.raises(RequestError, match="none was given"):
        KernelPool.cluster([])
    with pytest.raises(BadModel, match="nothing to pool"):
        KernelPool.cluster([nn.ReLU()])
    with pytest.raises(BadModel, match="only layer"):
        KernelPool.cluster([nn.Linear(2, 2)])
    with pytest.raises(UnknownName, match="conv9"):
        head_of(network, "conv9")
    broken = copy.deepcopy(network)
    broken.fc.weight.data[0, 0] = torch.nan
    with pytest.raises(BadModel, match=r"fc\.weight has 1 of"):
        KernelPool.cluster([broken])
    normed = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), nn.Linear(3, 2))
    with pytest.raises(BadModel, match="'0' is computed from others"):
        KernelPool.cluster([normed])


def test_new_heads():
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 5, 1, bias=False))
    replace_head(net, "1", 2, seed=0)
    first = net[1].weight.clone()
    assert net[1].weight.shape == (2, 4, 1, 1) and net[1].bias is None
    replace_head(net, "1", 2, seed=0)
    assert torch.equal(first, net[1].weight)


class Cosine(nn.Linear):
    """A head of a class of its own, with a value beside weight and bias."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, bias=False)
        self.scale = nn.Parameter(torch.tensor([10.0]))

    def forward(self, x):
        return self.scale * nn.functional.linear(nn.functional.normalize(x), nn.functional.normalize(self.weight))


def test_a_head_of_a_class_of_its_own_stays_one(tmp_path):
    torch.manual_seed(0)
    two, three = (nn.Sequential(nn.Flatten(), nn.Linear(4, 6), Cosine(6, n)) for n in (2, 3))
    three[2].scale.data.fill_(7.0)
    pool = KernelPool.cluster([two, three], size=EVERY)
    task, x = pool.task_of(three, bits=32), torch.randn(8, 1, 2, 2)
    folder = PoolFolder.create(tmp_path / "pool", pool)
    folder.add("three", task)
    for back in (pool.rebuild(task), folder.rebuild("three")):
        assert type(back[2]) is Cosine and back[2].out_features == 3
        assert torch.equal(back(x), three(x))
    plain, kept = nn.Sequential(nn.Linear(6, 2, bias=False)), nn.Sequential(Cosine(6, 2))
    for net in (plain, kept):
        replace_head(net, "0", 4, seed=0)
    assert torch.equal(kept[0].weight, plain[0].weight)  # drawn as ever
    learned = learn(pool, x, [0, 1, 2, 3] * 2, epochs=1, device="cpu", progress=False)
    assert type(pool.rebuild(learned)[2]) is Cosine


def test_a_head_with_more_for_each_class_is_refused_by_name():
    net = nn.Sequential(nn.Linear(4, 6), Cosine(6, 3))
    net[1].scale = nn.Parameter(torch.ones(3))
    with pytest.raises(BadModel, match=r"'1' is a Cosine, and scale is of its 3 classes: a new one for 2"):
        replace_head(net, "1", 2)
    before = net[1].weight
    replace_head(net, "1", 3, seed=0)
    assert type(net[1]) is Cosine and not torch.equal(net[1].weight, before)


def test_k_means_serves_vectors_better_than_a_draw():
    vectors = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0))
    centres = k_means(vectors, 20)
    assert len(centres) == 20

    def error(book):
        return (vectors - book[nearest(vectors, book)]).square().sum()

    assert error(centres) < 0.8 * error(vectors[:20])
    sums, counts = sums_by(vectors, nearest(vectors, centres), 20)
    assert counts.sum() == 2000 and torch.allclose(sums.sum(0), vectors.double().sum(0))


def test_k_means_of_few_and_of_repeated_vectors():
    vectors = torch.tensor([[1.0], [1.0], [2.0]])
    assert k_means(vectors, 5).tolist() == [[1.0], [2.0]]
    heap = torch.cat([torch.zeros(500, 2), torch.eye(2) * 9, -torch.eye(2)])
    assert len(k_means(heap, 4)) == 4  # a start inside the heap dies and is put elsewhere


def test_values_are_rounded_where_that_keeps_them():
    value = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    for bits, error in ((32, 0.0), (16, 2**-11), (12, 1.1 * 2**-7)):
        assert ((rounded(value, bits) - value).abs() <= error * value.abs() + 1e-7).all()
    tiny = torch.tensor([1e-9, 1.0])
    assert torch.equal(rounded(tiny, 16)[1:], tiny[1:])
    assert torch.equal(rounded(torch.tensor([7e4]), 16), torch.tensor([7e4]))
    assert rounded(torch.tensor([3]), 12).dtype == torch.int64
    with pytest.raises(RequestError, match="bits is 8"):
        rounded(value, 8)


@pytest.mark.parametrize("eps", [1e-5, 1e-8, 1e-12])
def test_tiny_variances_are_kept_where_they_count(eps, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, bias=False),
        nn.BatchNorm2d(2, eps=eps),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2, 2),
    ).eval()
    model[0].weight.data[1] *= 1e-4
    model[1].running_var.copy_(torch.tensor([1.0, 2e-8]))
    pool = KernelPool.cluster([model], size=EVERY)
    folder, task = PoolFolder.create(tmp_path / "pool", pool), pool.task_of(model)
    folder.add("x", task)
    images = torch.randn(8, 1, 9, 9)
    wanted = model(images)
    assert ((folder.rebuild("x")(images) - wanted).abs().max() / wanted.abs().max()) < 0.01
    assert bool(task.own["1.running_var"][1]) is (eps < 1e-5)  # ordinary norms cost what they did


def test_variances_of_ordinary_norms_take_16_or_12_bits():
    small = torch.logspace(-12, 2, 4000)
    for bits in (16, 12):
        assert torch.equal(rounded_variance(small, bits, 1e-5), rounded(small, bits))
        assert exact_in(rounded_variance(small, bits, 1e-5), bits)


class TwoHeads(nn.Module):
    """The head that makes the logits comes before one that only training uses."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.beside = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.body(x).relu())


def test_the_head_is_the_layer_with_as_many_outputs_as_there_are_classes():
    torch.manual_seed(0)
    model = TwoHeads().eval()
    assert KernelPool.cluster([model], size=4).head == "beside"  # nothing tells them apart
    attach(model, Origin(classes=("a", "b", "c")))
    pool = KernelPool.cluster([model], size=4)
    assert pool.head == "head" and "beside" in pool.shapes
    assert pool.rebuild(encode(pool, model, metric="weight"))(torch.zeros(1, 4)).shape == (1, 3)
    with pytest.raises(BadModel, match=r"'beside' has 2 outputs, and the network 3 class names; .*in head"):
        KernelPool.cluster([model], size=4, head="beside")
    twice = TwoHeads().eval()
    twice.beside = nn.Linear(6, 3)
    attach(twice, Origin(classes=("a", "b", "c")))
    assert [KernelPool.cluster([twice], size=4, head=name).head for name in (None, "head")] == ["beside", "head"]


def test_networks_of_two_architectures_make_no_pool():
    one, two = zoo.build("lenet", num_classes=2, seed=0), zoo.build("resnet8", num_classes=2, seed=0, width=4)
    with pytest.raises(BadModel, match=r"network 2 has no layer 'fc3', .* of one architecture: make a pool of each"):
        KernelPool.cluster([one, two], size=4)
