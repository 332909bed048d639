"""New classes from a trained branch: the base is untouched, the folder comes back, what cannot be branched is refused."""

import copy
import importlib.util
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import data, zoo
from brickwork.blueprint.splitting import split
from brickwork.dependencies.branching import branched_classes, branching_place
from brickwork.dependencies.new_classes import add_classes
from brickwork.errors import BadData, BadModel, RequestError
from brickwork.evaluation import evaluate_data
from brickwork.origin import Preprocessing, attach, origin_of
from brickwork.prediction import predict
from brickwork.training import train


def digits(spec):
    return data.load(spec, size=16, channels=1)


@pytest.fixture(scope="module")
def base():
    """A resnet8, which has batch norms, that knows 0 to 7."""
    images = digits("digits:0-7@60")
    model = zoo.build("resnet8", num_classes=8, in_channels=1, width=8, seed=0)
    train(
        model,
        images.train_images,
        images.train_labels,
        classes=images.classes,
        epochs=8,
        batch_size=16,
        lr=5e-3,
        optimizer="adamw",
        device="cpu",
        progress=False,
    )
    return model.eval()


@pytest.fixture(scope="module")
def grown(base):
    return add_classes(base, digits("digits:8-9@80"), base_data=digits("digits:0-7@60"), on="branch")


def test_the_known_logits_stay_to_the_bit_and_the_new_classes_are_learned(base, grown):
    images = digits("digits").test_images
    assert torch.equal(predict(grown, images)[:, :8], predict(base, images))
    assert evaluate_data(grown, digits("digits")).accuracy > 0.9
    assert evaluate_data(grown, digits("digits:8-9")).accuracy > 0.85
    assert {k: v for k, v in grown.state_dict().items() if k.startswith("model.")}.keys() == {
        f"model.{k}" for k in base.state_dict()
    }
    assert all(torch.equal(v, grown.state_dict()[f"model.{k}"]) for k, v in base.state_dict().items())
    assert all(p.requires_grad for p in grown.parameters())


def test_a_folder_brings_it_back_and_it_grows_again(grown, tmp_path):
    images = digits("digits").test_images
    again = brickwork.load(brickwork.save(grown, tmp_path / "ten"))
    assert torch.equal(predict(again, images), predict(grown, images))
    assert origin_of(again).classes == tuple("0123456789") and origin_of(again).preprocessing is not None
    more = (digits("digits:0-1@5").train_images, digits("digits:0-1@5").train_labels)
    twelve = add_classes(again, more, classes=["a", "b"])
    assert torch.equal(predict(twelve, images)[:, :10], predict(grown, images))


def test_the_base_is_never_in_training_mode(base, grown):
    net = copy.deepcopy(grown).train()
    assert net.branch.training and not net.model.training
    before = copy.deepcopy(net.model.state_dict())
    net(torch.randn(4, 1, 16, 16))
    assert all(torch.equal(v, before[k]) for k, v in net.model.state_dict().items())
    assert not base.training and not any(m._forward_hooks for m in base.modules())


def test_the_same_seed_gives_the_same_bytes(base, grown):
    again = add_classes(base, digits("digits:8-9@80"), base_data=digits("digits:0-7@60"), on="branch")
    assert all(torch.equal(v, again.state_dict()[k]) for k, v in grown.state_dict().items())


def test_where_a_network_is_branched():
    expected = {"resnet18": "layer3", "vgg16": "features.31", "vit_small": "blocks.4", "lenet": "conv1"}
    for arch, at in expected.items():
        net = zoo.build(arch, num_classes=3, seed=0).eval()
        head = {"resnet18": "fc", "vgg16": "classifier.6", "vit_small": "head", "lenet": "fc3"}[arch]
        assert branching_place(net, torch.randn(2, 3, 32, 32), head) == at
    flat = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3)).eval()
    with pytest.raises(BadModel, match="nothing but 3 can learn"):
        branching_place(flat, torch.randn(2, 1, 8, 8), "3")


class WithOptions(nn.Module):
    """Takes more than images, none of which is needed."""

    def __init__(self):
        super().__init__()
        self.conv, self.block, self.head = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3), nn.Linear(2, 3)

    def forward(self, x, mask=None, causal=False, scale=2.0):
        x = self.conv(x)
        x = x if mask is None else x * mask
        x = self.block(x) * scale
        return self.head(x.mean((2, 3)) if not causal else x[:, :, 0, 0])


def test_arguments_that_may_be_left_out_do_not_stand_in_the_way():
    torch.manual_seed(0)
    net, x = WithOptions().double().eval(), torch.randn(2, 1, 8, 8, dtype=torch.float64)
    halves = split(net, "conv")
    assert torch.equal(halves(x), net(x))
    grown = branched_classes(net, "conv", "head", 2)
    with torch.no_grad():
        grown.branch.net.head.weight.normal_()
    assert torch.equal(grown(x)[:, :3], net(x)) and grown(x)[:, 3:].abs().max() > 0


def test_timms_vision_transformer_and_mobilenet():
    if importlib.util.find_spec("timm") is None:  # asked, not imported: it wants a torchvision that the zoo prepares
        pytest.skip("needs the extra timm")
    sizes = {"img_size": 32, "depth": 4, "embed_dim": 24, "num_heads": 2}
    vit = zoo.build("timm:vit_tiny_patch16_224", num_classes=3, **sizes).eval()
    x = torch.randn(2, 3, 32, 32)
    at = branching_place(vit, x, "head")
    assert torch.equal(branched_classes(vit, at, "head", 2).eval()(x)[:, :3], vit(x))
    images = np.random.default_rng(0).integers(0, 255, (8, 32, 32, 3), np.uint8)
    small = zoo.build("timm:mobilenetv3_small_050", num_classes=3).eval()
    new = (images, np.arange(8) % 2)
    assert predict(add_classes(small, new, on="features"), images).shape == (8, 5)
    known = (images, np.arange(8) % 3)
    with pytest.raises(BadModel, match=r"'classifier' is timm.*not a plain nn\.Linear.*on='features'"):
        add_classes(small, new, base_data=known, on="branch")


def test_bad_input(base):
    new, known = digits("digits:8-9@5"), digits("digits:0-7@5")
    with pytest.raises(RequestError, match=r"a branch is trained on known classes too; give base_data, images of them"):
        add_classes(base, new, on="branch")
    with pytest.raises(RequestError, match="epochs is for on branch"):
        add_classes(base, new, base_data=known, epochs=1)
    with pytest.raises(RequestError, match="epochs is -1; it must be 1 or more"):
        add_classes(base, new, base_data=known, on="branch", epochs=-1)
    with pytest.raises(RequestError, match="on is 'leaves'; it must be one of logits, features, depths, branch"):
        add_classes(base, new, on="leaves")


def small():
    return zoo.build("resnet8", num_classes=4, in_channels=1, width=4, seed=0).eval()


def raw(count, side=16, seed=0):
    return np.random.default_rng(seed).integers(0, 255, (count, side, side, 1), np.uint8)


NEW, KNOWN, ONCE = ((raw(20), np.arange(20) % 2), (raw(40, seed=1), np.arange(40) % 4), {"epochs": 1, "batch_size": 20})


def test_all_of_a_branch_learns_though_the_network_is_frozen():
    free, frozen = small(), small().requires_grad_(False)
    both = [add_classes(net, NEW, base_data=KNOWN, on="branch", **ONCE) for net in (free, frozen)]
    assert all(torch.equal(v, both[1].state_dict()[k]) for k, v in both[0].state_dict().items())
    assert not any(p.requires_grad for p in both[1].model.parameters())
    assert not any(p.requires_grad for p in frozen.parameters())


def test_a_branch_is_trained_on_what_the_network_reads():
    """Without preprocessing that is pixels from 0 to 1, and not what mean and spread of these images would make of them."""
    grown = add_classes(small(), NEW, base_data=KNOWN, on="branch", **ONCE)
    floats = [(torch.as_tensor(x).permute(0, 3, 1, 2) / 255, y) for x, y in (NEW, KNOWN)]
    same = add_classes(small(), floats[0], base_data=floats[1], on="branch", **ONCE)
    mixed = add_classes(small(), NEW, base_data=floats[1], on="branch", **ONCE)
    for other in (same, mixed):
        assert torch.allclose(predict(other, NEW[0]), predict(grown, NEW[0]), atol=1e-4)
        assert origin_of(other).preprocessing is None
    assert origin_of(grown).preprocessing is None


def test_images_of_other_sizes_are_brought_to_the_networks():
    net = small()
    attach(net, replace(origin_of(net), preprocessing=Preprocessing((16, 16), 1, (0.5,), (0.5,))))
    larger = np.repeat(np.repeat(KNOWN[0], 2, 1), 2, 2)
    assert predict(add_classes(net, NEW, base_data=(larger, KNOWN[1]), on="branch", **ONCE), NEW[0]).shape == (20, 6)
    with pytest.raises(BadData, match=r"known classes are \(32, 32, 1\) and of new ones \(16, 16, 1\)"):
        add_classes(small(), NEW, base_data=(larger, KNOWN[1]), on="branch", **ONCE)


def test_labels_that_are_no_classes_are_refused():
    """Base labels above the known classes would otherwise teach the new ones."""
    wrong = {
        "known classes run from 0 to 5; they must be numbers 0 to 3": (NEW[1], np.arange(40) % 6),
        "40 images of known classes and labels of shape": (NEW[1], np.arange(39) % 4),
        "no image of new class 1": (np.zeros(20, int), KNOWN[1]),
        "new classes run from -1": (np.arange(20) % 2 - 1, KNOWN[1]),
        "20 images of new classes and labels of shape .*float": (np.arange(20) % 2 * 1.0, KNOWN[1]),
    }
    for said, (new, known) in wrong.items():
        with pytest.raises(BadData, match=said):
            add_classes(small(), (NEW[0], new), base_data=(KNOWN[0], known), classes=["a", "b"], on="branch", **ONCE)


def test_labels_in_bytes_count_beyond_255():
    net = zoo.build("resnet8", num_classes=254, in_channels=1, width=4, seed=0).eval()
    labels = np.arange(20) % 3
    grown = [
        add_classes(net, (NEW[0], labels.astype(kind)), base_data=KNOWN, on="branch", **ONCE)
        for kind in (np.int64, np.uint8)
    ]
    assert torch.equal(predict(grown[0], NEW[0]), predict(grown[1], NEW[0]))


def test_what_a_branch_does_not_take_is_refused():
    for name in ("device", "rate"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            add_classes(small(), NEW, base_data=KNOWN, on="branch", **{name: 1})
    for option in ({"how": "ridge"}, {"strength": 0.1}):
        with pytest.raises(RequestError, match="a branch is trained as a network is; leave how and strength out"):
            add_classes(small(), NEW, base_data=KNOWN, on="branch", **option)
    with pytest.raises(BadData, match="there are no images of known classes"):
        add_classes(small(), NEW, base_data=(raw(0), np.arange(0)), on="branch")


def test_a_part_of_new_classes_alone_is_refused_in_words_of_classes(grown):
    with pytest.raises(
        RequestError,
        match=r"classes that model\.fc\.weight makes, which are the model's outputs 0, 1, 2, 3, 4, 5, 6, 7",
    ):
        brickwork.disassemble(grown, ["8"], digits("digits@20"), keep=0.5, progress=False)


def test_a_network_of_another_precision_grows_by_a_fit_and_is_told_why_not_by_a_branch(base):
    net, new, known = copy.deepcopy(base).double(), digits("digits:8-9@5"), digits("digits:0-7@5")
    assert add_classes(net, new, base_data=known, on="depths").more.weight.dtype == torch.float64
    with pytest.raises(BadModel, match=r"is torch\.float64; a branch is trained in float32, so take model\.float\(\)"):
        add_classes(net, new, base_data=known, on="branch")
