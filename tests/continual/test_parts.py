"""The pieces under the methods: exact where nothing was learned, bits there and back, owners that never change."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brickwork import continual, zoo
from brickwork.continual.bench import Bench
from brickwork.continual.computed import compute
from brickwork.continual.files import pack, unpack, write_tensors
from brickwork.continual.frozen import Probed
from brickwork.continual.low_rank import Change
from brickwork.continual.masks import Mask
from brickwork.continual.networks import flat, head_of, kernels_of, load_flat, small_of, with_head
from brickwork.continual.options import ContinualOptions
from brickwork.continual.packnet import PackNet
from brickwork.continual.quantised import Rounded, coded, decoded
from brickwork.continual.readout import readout
from brickwork.continual.registry import make
from brickwork.errors import BadFile, BadModel, RequestError, UnknownName
from brickwork.moments.readout import read_features
from brickwork.origin import Origin, attach, origin_of
from brickwork.store.weights import read_safetensors


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 16), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_bits_there_and_back(bits, count, seed):
    values = torch.randint(0, 2**bits, (count,), generator=torch.Generator().manual_seed(seed))
    stored = pack(values, bits)
    assert len(stored) == -(-bits * count // 8) and torch.equal(unpack(stored, bits, count), values)
    with pytest.raises(BadFile, match="were expected"):
        unpack(torch.cat([stored, stored[:0].new_zeros(1)]), bits, count)


@pytest.mark.parametrize("bits", [2, 4, 8, 9])
def test_rounding_is_at_most_half_a_step(bits):
    weight = torch.randn(6, 5, 3, 3, generator=torch.Generator().manual_seed(bits), dtype=torch.float64)
    codes, scale = coded(weight, bits)
    assert codes.min() >= 0 and codes.max() <= 2**bits - 2
    assert ((decoded(codes, scale, bits) - weight).abs() <= scale.reshape(-1, 1, 1, 1) * (0.5 + 1e-5)).all()
    weight.requires_grad_()
    Rounded(bits)(weight).sum().backward()
    assert torch.equal(weight.grad, torch.ones_like(weight))  # straight through
    zero = torch.zeros(2, 3)
    assert torch.equal(decoded(*coded(zero, bits), bits), zero)


def test_what_has_not_learned_changes_nothing():
    weight = torch.randn(4, 3, 3, 3, dtype=torch.float64)
    assert torch.equal(Mask(weight)(weight), weight)
    assert torch.equal(Change(weight, 2, torch.Generator().manual_seed(0))(weight), weight)
    full = Change(weight, 99)  # a rank of all is any change
    assert full.a.shape == (4, 27) and full.b.shape == (4, 4)


@pytest.mark.parametrize("arch", ["lenet", "resnet18", "vgg16", "mobilenetv2"])
def test_kernels_head_and_the_rest_are_all_of_a_network(arch):
    model = zoo.build(arch, num_classes=4, seed=0)
    big = sum(layer.weight.numel() for layer in kernels_of(model).values())
    small = small_of(model)
    head = sum(p.numel() for p in model.get_submodule(head_of(model)).parameters())
    floats = sum(t.numel() for t in model.state_dict().values() if t.is_floating_point())
    assert big + head + sum(t.numel() for t in small.values()) == floats
    assert big > 0.9 * floats or arch == "lenet"
    other = zoo.build(arch, num_classes=4, seed=1)
    with torch.no_grad():
        load_flat(small_of(other), flat(small))
    for name, value in small_of(other).items():
        assert torch.equal(value, small[name].half().to(value.dtype))
    if small:
        with pytest.raises(BadModel, match="another network"):
            load_flat(small_of(other), flat(small)[:-1])


def test_a_new_head_leaves_the_rest_and_the_record_true():
    model = zoo.build("lenet", num_classes=10, seed=0)
    new = with_head(model, ["a", "b"], seed=1)
    assert origin_of(new).args["num_classes"] == 2 and origin_of(new).classes == ("a", "b")
    assert new.fc3.out_features == 2 and model.fc3.out_features == 10
    assert torch.equal(new.fc3.weight, with_head(model, ["c", "d"], seed=1).fc3.weight)
    assert torch.equal(new.fc2.weight, model.fc2.weight)


def test_a_head_too_large_for_half_precision_is_kept(scenario, tmp_path, monkeypatch):
    torch.manual_seed(0)
    start = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, stride=2), torch.nn.Flatten(), torch.nn.Linear(36, 2))

    def grow(model, number, **how):
        head = model.head if isinstance(model, Probed) else model[2]
        with torch.no_grad():
            head.weight.fill_(1e5)
        return model

    for name in ("probe", "bn-head"):
        method = make(name)[1]
        bench = Bench(scenario, start, tmp_path / name, torch.device("cpu"))
        monkeypatch.setattr(bench, "fit", grow)
        bench.folder.mkdir()
        method.begin(bench)
        method.learn(bench, 0)
        stored = read_safetensors(bench.task_path(0))
        assert stored["head.weight"].dtype == torch.float32 and stored["head.bias"].dtype == torch.float16
        assert (method.network(bench, 0, 0)[2].weight == 1e5).all()


class Scaled(torch.nn.Linear):
    """A head of a class of its own."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.scale = torch.nn.Parameter(torch.tensor(3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * super().forward(x)


def test_a_head_of_a_class_of_its_own_is_kept_by_every_method(scenario, tmp_path):
    torch.manual_seed(0)
    start = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, stride=2), torch.nn.Flatten(), Scaled(36, 5))
    assert type(with_head(start, ["a", "b"], seed=1)[2]) is Scaled
    for name in ("probe", "joint", "sequential", "bn-head"):
        method = make(name)[1]
        bench = Bench(scenario, start, tmp_path / name, torch.device("cpu"), ContinualOptions(epochs=1))
        bench.folder.mkdir()
        method.begin(bench)
        for number in range(len(scenario)):
            method.learn(bench, number)
        back = method.network(bench, 0, len(scenario) - 1)
        assert type(back[2]) is Scaled and back[2].out_features == 2 and back[2].scale.item() != 3.0, name


class Beside(torch.nn.Module):
    """A second head, registered behind the one that gives the logits, with as many outputs as a task has classes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc, self.aux = torch.nn.Conv2d(1, 4, 3), torch.nn.Linear(4, 5), torch.nn.Linear(4, 2)
        attach(self, Origin(classes=tuple("abcde")))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        v = self.conv(x).relu().mean((2, 3))
        return {"logits": self.fc(v), "aux": self.aux(v)}


def test_the_head_is_found_once_on_the_start(scenario, tmp_path):
    torch.manual_seed(0)
    model = Beside()
    new = with_head(model, ["a", "b"], seed=1)
    assert head_of(model) == head_of(new) == head_of(with_head(new, ["c"], seed=2)) == "fc"
    assert set(kernels_of(new)) == {"conv", "aux"} and new.fc.out_features == 2
    assert torch.equal(new.aux.weight, model.aux.weight)
    found = continual.run(scenario, "probe,sequential", model, out=tmp_path, epochs=1, device="cpu", progress=False)
    assert set(found.results) == {"probe", "sequential"}
    for place in ("probe/task-000", "sequential/task-002"):
        head = read_safetensors(tmp_path / f"{place}.safetensors")["head.weight"]
        assert not torch.equal(head.float(), model.aux.weight.detach()), place
    stored = read_safetensors(tmp_path / "sequential" / "network-after-002.safetensors")
    assert "aux.weight" in stored and "fc.weight" not in stored


def test_a_probe_trains_on_what_the_network_sees_in_evaluation(start):
    model = with_head(start, ["a", "b"], seed=0)
    images = torch.rand(7, 1, 8, 8)
    wanted = model.eval()(images)
    probed = Probed(copy.deepcopy(model)).train()
    found = probed(images)
    assert torch.equal(found, wanted) and not probed.trunk.training and probed.training
    found.sum().backward()
    assert [n for n, p in probed.named_parameters() if p.grad is not None] == ["head.weight", "head.bias"]


def test_features_and_the_readout(start, scenario):
    task = scenario.tasks[0]
    x = read_features(start, head_of(start), task.test_images)
    head = start.get_submodule(head_of(start))
    assert x.shape == (len(task.test_labels), head.in_features) and x.dtype == torch.float64
    assert readout(start, task, torch.device("cpu")) > 0.75
    assert not any(module._forward_pre_hooks for module in start.modules())


def test_weights_have_one_owner_and_keep_their_value(scenario, start, tmp_path):
    method = PackNet(prune=0.5)
    bench = Bench(
        scenario, copy.deepcopy(start), tmp_path, torch.device("cpu"), ContinualOptions(epochs=2, batch_size=16)
    )
    method.begin(bench)
    seen = []
    for number in range(3):
        method.learn(bench, number)
        seen.append(method._packed(bench, number))
    for (kernels, owners), (later, heirs) in pairwise(seen):
        for name, owner in owners.items():
            taken = owner > 0
            assert torch.equal(heirs[name][taken], owner[taken])
            assert torch.equal(later[name][taken], kernels[name][taken])
    kernels, owners = seen[0]
    for name, owner in owners.items():
        assert int((owner == 1).sum()) == round(0.5 * owner.numel())
        assert (kernels[name][owner == 0] == 0).all()  # what was set free is 0
    assert all((owner > 0).all() for owner in seen[2][1].values())  # the last task keeps all that is left
    equal = PackNet(prune="equal")
    bench.folder = tmp_path / "equal"
    bench.folder.mkdir()
    for number in range(2):
        equal.learn(bench, number)
    _, owners = equal._packed(bench, 1)
    for owner in owners.values():
        shares = [float((owner == k).double().mean()) for k in range(3)]
        assert shares == pytest.approx([1 / 3] * 3, abs=2 / owner.numel() + 1e-9)


def test_files_are_the_same_bytes_and_damage_is_told(tmp_path):
    tensors = {"b": torch.arange(5.0), "a": torch.zeros(2, dtype=torch.uint8)}
    for name in ("x", "y"):
        write_tensors(tmp_path / name, tensors)
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()
    assert torch.equal(read_safetensors(tmp_path / "x")["b"], tensors["b"])
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:-4])
    with pytest.raises(BadFile, match="damaged or cut short"):
        read_safetensors(tmp_path / "x")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("lorra", "did you mean 'lora'"),
        ("lora(rnk=2)", "option of lora 'rnk'"),
        ("lora(rank=0)", "rank is 0"),
        ("quantised(bits=1)", "bits is 1"),
        ("finetune(lr=-1)", "lr is -1"),
        ("packnet(prune=2.0)", "prune is 2.0"),
        ("lora(rank)", "NAME=VALUE"),
        ("lora(rank=2,rank=3)", "given twice"),
        ("lo ra", "not a method"),
        ("finetune(epochs=0)", "epochs is 0"),
        ("quantised(aware=1)", "aware is 1"),
        ("pool(fold=yes)", "fold is 'yes'; it must be true or false"),
        ("pool(start=best, budget=0)", "budget is 0"),
        ("pool(start=last)", "start is 'last'"),
        ("pool(start=3)", "start is 3; it must be one of pretrained, previous"),
    ],
    ids=[
        "name",
        "option",
        "rank",
        "bits",
        "lr",
        "prune",
        "form",
        "twice",
        "word",
        "epochs",
        "aware",
        "fold",
        "budget",
        "start",
        "word start",
    ],
)
def test_wrong_methods_are_refused(text, match):
    with pytest.raises(RequestError, match=match):
        make(text)


def test_methods_by_name():
    found = continual.parse(["lora(rank=8)", "finetune", PackNet(prune="equal")])
    assert list(found) == ["lora(rank=8)", "finetune", "packnet(prune=equal)"]
    assert continual.parse("packnet(prune=equal)")["packnet(prune=equal)"] == PackNet(prune="equal")
    for name in ("quantised(aware=False)", "pool(start=best, budget=9000, fold=True)"):
        assert list(continual.parse(name)) == [name]  # a name can be typed again
    for wrong, match in (("probe,probe", "asked for twice"), (" , ", "no methods")):
        with pytest.raises(RequestError, match=match):
            continual.parse(wrong)
    with pytest.raises(UnknownName):
        continual.parse("probe,prob")


class Answers(torch.nn.Module):
    """Two layers of one weight, and an answer that is not a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)
        self.two.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.head(self.two(self.one(x).relu()))}


def test_a_probe_of_a_network_that_answers_with_a_dict():
    model, x = Answers(), torch.randn(2, 6)
    assert torch.equal(Probed(copy.deepcopy(model))(x), model(x)["logits"])


def test_kernels_that_are_shared_are_not_changed_twice():
    with pytest.raises(BadModel, match="layers one and two share a weight"):
        compute(Answers(), lambda name, layer: Mask(layer.weight))


@pytest.mark.parametrize("name", ["lora", "ksm", "quantised", "packnet", "bitdelta"])
def test_a_layer_under_two_names_is_refused_by_name(name, scenario):
    start = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1),
        torch.nn.Conv2d(4, 4, 3, stride=4),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 2),
    )
    start.again = start[1]
    with pytest.raises(BadModel, match="1 and again are one layer"):
        continual.run(scenario, name, start, epochs=1, device="cpu", progress=False)


def test_a_soup_of_networks_in_float64(start, scenario, tmp_path):
    bench = Bench(scenario, copy.deepcopy(start).double(), tmp_path, torch.device("cpu"), ContinualOptions(epochs=1))
    model = bench.fit_soup(0, 2, lr=0.01)
    assert next(model.parameters()).dtype == torch.float64


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pool(size=12.5)", "size is 12.5; it must be a whole number"),
        ("pool(refresh=1.5)", "refresh is 1.5; it must be a whole number"),
        ("finetune(epochs=1.5)", "epochs is 1.5"),
        ("lora(rank=true)", "rank is True; it must be a whole number"),
        ("pool(commitment=much)", "commitment is 'much'; it must be a number"),
        ("pool(fold=1)", "fold is 1; it must be true or false"),
    ],
)
def test_options_of_another_kind_are_refused(text, said):
    with pytest.raises(RequestError, match=said):
        make(text)
