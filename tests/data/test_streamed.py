"""Images that are read when wanted: files, arrays on the disk, torch Datasets and DataLoaders, in every operation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
)

import brickwork
from brickwork import data
from brickwork.algebra import inputs
from brickwork.data import datasets, folders, streamed
from brickwork.data.datasets import from_dataset, images_of, pair_of_dataset
from brickwork.data.pixels import measure
from brickwork.data.streamed import StreamedImages, concatenated
from brickwork.dependencies.new_classes import add_classes
from brickwork.errors import BadData, BadFile
from brickwork.evaluation import evaluate
from brickwork.origin import Origin, Preprocessing, attach
from brickwork.training import train


@pytest.fixture
def streaming(monkeypatch):
    """Every image read when wanted, however few there are."""
    for module in (streamed, folders):
        monkeypatch.setattr(module, "HELD", 0)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """40 images a class, of mixed sizes, which colour tells apart."""
    folder, draw = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for label, name in enumerate(("blue", "green", "red")):
        (folder / name).mkdir()
        for k in range(40):
            pixels = draw.integers(0, 120, (12 + k % 5, 14 + k % 3, 3), dtype=np.uint8)
            pixels[..., 2 - label] += 100
            Image.fromarray(pixels).save(folder / name / f"{k:02d}.png")
    return folder


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))


class Pairs(Dataset):
    """Raw pictures and labels by number; counts what is read."""

    classes = ("blue", "green", "red")

    def __init__(self, images, labels):
        self.images, self.labels, self.read = images, labels, 0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, k):
        self.read += 1
        return Image.fromarray(self.images[k]), int(self.labels[k])


class Stream(IterableDataset):
    def __init__(self, images, labels):
        self.pairs = list(zip(images, labels, strict=True))

    def __iter__(self):
        return iter(self.pairs)


@pytest.fixture(scope="module")
def trained(pictures):
    torch.manual_seed(0)
    images = data.load(str(pictures), size=12)
    net = Net()
    train(net, images, epochs=15, lr=0.05, batch_size=16, optimizer="adam", progress=False)
    return net.eval(), images


def test_a_folder_read_when_wanted_is_the_same_as_one_in_memory(pictures, monkeypatch):
    whole = data.load(f"{pictures}:red,blue@20", size=(12, 10), channels=1)
    for module in (streamed, folders):
        monkeypatch.setattr(module, "HELD", 0)
    lazy = data.load(f"{pictures}:red,blue@20", size=(12, 10), channels=1)
    assert isinstance(whole.train_images, np.ndarray) and isinstance(lazy.train_images, StreamedImages)
    assert lazy.train_images.shape == whole.train_images.shape == (40, 12, 10, 1)
    for split in ("train", "test"):
        assert np.array_equal(np.asarray(lazy.split(split)[0]), whole.split(split)[0])
        assert np.array_equal(lazy.split(split)[1], whole.split(split)[1])
    assert lazy.preprocessing() == whole.preprocessing()
    assert np.array_equal(np.asarray(lazy.pooled().test_images), whole.pooled().test_images)
    smaller = [one.fit(size=6, channels=3) for one in (lazy, whole)]
    assert np.array_equal(np.asarray(smaller[0].test_images), smaller[1].test_images)


def test_only_a_batch_is_read_at_a_time(monkeypatch):
    sizes = []

    def read(index):
        sizes.append(len(index))
        return np.zeros((len(index), 8, 8, 3), np.uint8)

    monkeypatch.setattr(inputs, "HELD", 0)
    images = StreamedImages(read, np.arange(3000), (8, 8, 3))
    net = Net()
    attach(net, Origin(preprocessing=Preprocessing((8, 8), 3, (0.0,) * 3, (1.0,) * 3)))
    evaluate(net, images, np.zeros(3000, np.int64), batch_size=100)
    measure(images)
    brickwork.merge([net, net], "match", data=[images, images], progress=False)
    brickwork.merge([net, net], "rebasin", data=[images, images], progress=False)
    brickwork.disassemble(net, [0, 1], (images, np.arange(3000) % 3), keep=0.5, images=1000, progress=False)
    assert sum(sizes) > 9000 and max(sizes) <= 500


def test_a_reader_keeps_the_first_images_and_no_more_than_its_room(monkeypatch):
    asked = []

    def read(index):
        asked.extend(index.tolist())
        return index.astype(np.uint8)[:, None]

    monkeypatch.setattr(streamed, "HELD", 3)
    kept = streamed.keeping(read)
    for _ in range(2):
        assert kept(np.array([4, 0, 4, 7, 1])).ravel().tolist() == [4, 0, 4, 7, 1]
    assert asked == [4, 0, 7, 1, 1]


def test_concatenated_reads_from_both():
    a = StreamedImages(lambda index: index[:, None], np.arange(5), (1,), np.dtype(np.int64))
    both = concatenated([a, np.array([[10], [11]])])
    assert np.asarray(both[[6, 0, 5, 4]]).ravel().tolist() == [11, 0, 10, 4]
    assert [int(x[0]) for x in both] == [0, 1, 2, 3, 4, 10, 11] and both[1].tolist() == [1]


@pytest.mark.usefixtures("streaming")
def test_streamed_training_is_the_same_as_from_memory(pictures, trained):
    net, images = trained
    for augment in ("none", "crop+flip"):
        runs = []
        for given in (images, data.load(str(pictures), size=12)):
            torch.manual_seed(0)
            own = Net()
            train(own, given, epochs=2, lr=0.05, batch_size=16, augment=augment, progress=False)
            runs.append(own.state_dict())
        assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])
    assert evaluate(net, data.load(str(pictures), size=12)).to_dict() == evaluate(net, images).to_dict()


def test_an_npy_is_mapped_and_not_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "HELD", 0)
    draw = np.random.default_rng(0)
    images, labels = draw.integers(0, 256, (50, 6, 6), dtype=np.uint8), np.arange(50) % 2
    np.save(tmp_path / "x.npy", images)
    np.save(tmp_path / "y.npy", labels)
    lazy = data.load(f"{tmp_path}/x.npy+{tmp_path}/y.npy")
    assert isinstance(lazy.train_images, StreamedImages) and lazy.shape == (6, 6, 1)
    monkeypatch.undo()
    whole = data.load(f"{tmp_path}/x.npy+{tmp_path}/y.npy")
    assert isinstance(whole.train_images, np.ndarray)
    assert np.array_equal(np.asarray(lazy.train_images), whole.train_images)


def test_files_cut_short_or_damaged_inside_are_all_told(pictures, tmp_path, monkeypatch):
    for k in range(6):
        (tmp_path / "cat").mkdir(exist_ok=True)
        Image.fromarray(np.random.default_rng(k).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(
            tmp_path / "cat" / f"{k}.png"
        )
    good = (tmp_path / "cat" / "0.png").read_bytes()
    (tmp_path / "cat" / "1.png").write_bytes(good[: len(good) // 2])
    (tmp_path / "cat" / "2.png").write_bytes(b"nothing")
    monkeypatch.setattr(folders, "HELD", 0)
    with pytest.raises(BadFile, match=r"2 files .*1\.png.*2\.png.*skip_bad"):
        data.load(str(tmp_path))
    damaged = bytearray(good)
    damaged[len(good) // 3 : len(good) // 3 + 2000] = bytes(2000)
    (tmp_path / "cat" / "3.png").write_bytes(damaged)  # its head and its end are right
    for held in (0, 2**27):
        monkeypatch.setattr(folders, "HELD", held)
        with pytest.warns(UserWarning, match=r"3 files .*1\.png.*2\.png.*3\.png.*left out"):
            left = data.load(str(tmp_path), skip_bad=True)
        assert len(left.train_labels) + len(left.test_labels) == 3
    monkeypatch.setattr(folders, "HELD", 0)
    (tmp_path / "cat" / "1.png").unlink()
    (tmp_path / "cat" / "2.png").unlink()
    found = data.load(str(tmp_path))
    with pytest.raises(BadFile, match=r"1 file of .*3\.png is not an image"):
        np.asarray(found.pooled().test_images)


def test_a_class_of_which_nothing_can_be_read_is_refused(pictures, tmp_path):
    for name, content in (("cat", (pictures / "red" / "00.png").read_bytes()), ("dog", b"nothing")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.png").write_bytes(content)
    with pytest.warns(UserWarning, match="left out"), pytest.raises(BadFile, match="no image of 'dog'"):
        data.load(str(tmp_path), skip_bad=True)


@pytest.mark.parametrize(("array", "expected"), [(np.uint16(51400), 200), (np.uint16(65535), 255), (np.uint8(9), 9)])
def test_a_16_bit_png_is_scaled(tmp_path, array, expected):
    (tmp_path / "grey").mkdir()
    for k in range(2):
        Image.fromarray(np.full((4, 4), array)).save(tmp_path / "grey" / f"{k}.png")
    assert np.unique(data.load(str(tmp_path), channels=1).train_images).tolist() == [expected]


def test_pixels_without_a_known_scale_are_refused(tmp_path):
    (tmp_path / "float").mkdir()
    Image.fromarray(np.full((4, 4), 1000.0, np.float32)).save(tmp_path / "float" / "0.tiff")
    with pytest.raises(BadFile, match="from 1000 to 1000, and their scale is not known"):
        data.load(str(tmp_path))


def loaders(images, labels):
    """The same data in the ways torch code has it."""
    raw = Pairs(images, labels)
    channels_first = torch.from_numpy(images).permute(0, 3, 1, 2)
    return {
        "dataset": raw,
        "loader": DataLoader(raw, batch_size=7, shuffle=True, num_workers=0),
        "workers": DataLoader(raw, batch_size=7, num_workers=2),
        "subset": Subset(raw, range(len(raw))),
        "bytes": TensorDataset(channels_first, torch.from_numpy(labels)),
        "iterable": Stream(channels_first, labels),
        "iterable loader": DataLoader(Stream(channels_first, labels), batch_size=7),
        "own collate": DataLoader(
            raw, 7, collate_fn=lambda items: {"image": [i for i, _ in items], "label": [t for _, t in items]}
        ),
    }


WAYS = ("dataset", "loader", "workers", "subset", "bytes", "iterable", "iterable loader", "own collate")


@pytest.mark.parametrize("way", WAYS)
def test_a_dataset_gives_the_images_and_labels_of_its_arrays(trained, way):
    net, images = trained
    raw, labels = images.test_images, images.test_labels
    found = pair_of_dataset(loaders(raw, labels)[way])
    assert np.array_equal(np.asarray(found[0]), raw) and found[1].tolist() == labels.tolist()
    assert evaluate(net, loaders(raw, labels)[way]).to_dict() == evaluate(net, raw, labels).to_dict()


def prepared(images, net):
    from brickwork.prediction import input_of

    return input_of(net, images)


def test_floating_items_are_network_input(trained):
    net, images = trained
    given = TensorDataset(prepared(images.test_images, net), torch.from_numpy(images.test_labels))
    assert evaluate(net, DataLoader(given, 5)).accuracy == evaluate(net, images).accuracy


def test_labels_kept_as_targets_are_used_if_items_bear_them_out(trained):
    _, images = trained
    pairs = Pairs(images.test_images, images.test_labels)
    pairs.targets = images.test_labels.tolist()
    assert pair_of_dataset(pairs)[1].tolist() == images.test_labels.tolist() and pairs.read <= 5  # one of each class
    pairs.targets = (1 - images.test_labels).tolist()  # not what the items say
    assert pair_of_dataset(pairs)[1].tolist() == images.test_labels.tolist()
    pairs = Pairs(images.test_images[:6], np.array([0, 2, 1, 2, 1, 0]))
    pairs.targets = [0, 1, 2, 1, 2, 0]  # classes numbered anew in the items, the first and the last as before
    assert pair_of_dataset(pairs)[1].tolist() == [0, 2, 1, 2, 1, 0]


def test_a_loader_that_leaves_items_out_gives_those_it_gives():
    pairs = TensorDataset(torch.rand(10, 3, 4, 4), torch.arange(10))
    for sampler in (RandomSampler(pairs, num_samples=4), SequentialSampler(range(4))):
        images, labels = pair_of_dataset(DataLoader(pairs, sampler=sampler))
        assert len(images) == len(labels) == 4
        assert np.array_equal(np.asarray(images), pairs.tensors[0][torch.as_tensor(labels)])


def test_labels_beyond_the_names_of_the_data_are_refused():
    odd = Odd([(torch.zeros(3, 4, 4), 0), (torch.zeros(3, 4, 4), 2)])
    odd.classes = ["a", "b"]
    with pytest.raises(BadData, match="from 0 to 2; the data name 2 classes"):
        pair_of_dataset(odd, ("b", "a"))


def test_items_in_bfloat16_are_taken():
    ones = Subset(TensorDataset(torch.ones(3, 3, 4, 4, dtype=torch.bfloat16), torch.arange(3)), [0, 2])
    assert np.asarray(pair_of_dataset(ones)[0]).dtype == np.float32


def test_a_dataset_that_names_its_classes_goes_by_name(trained):
    net, images = trained
    order = np.array([2, 0, 1])  # of the model's classes, as the data set numbers them
    pairs = Pairs(images.test_images, np.argsort(order)[images.test_labels])
    pairs.classes = [images.classes[k] for k in order]
    assert evaluate(net, pairs).to_dict() == evaluate(net, images).to_dict()
    pairs.classes = ["blue", "green", "pink"]
    with pytest.raises(BadData, match="does not know 'pink'"):
        evaluate(net, pairs)


def same(one, two):
    return all(torch.equal(x, y) for x, y in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


def test_every_operation_takes_a_dataset(trained):
    net, images = trained
    raw, labels = images.train_images, images.train_labels
    pairs, arrays = DataLoader(Pairs(raw, labels), 8), (raw, labels)
    quiet = {"progress": False}

    a, b = (brickwork.disassemble(net, "red,blue", given, budget=0.7, **quiet) for given in (pairs, arrays))
    assert same(a.model, b.model) and a.accuracy_after == b.accuracy_after
    a, b = (brickwork.compress(net, given, budget=0.7, **quiet) for given in (pairs, arrays))
    assert same(a.model, b.model)
    assert brickwork.routes(net, pairs, **quiet).to_dict() == brickwork.routes(net, arrays, **quiet).to_dict()
    a, b = (brickwork.merge([net, net], "match", data=[given, given], **quiet) for given in (pairs, raw))
    assert all(
        torch.allclose(x, y, atol=1e-5) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    )
    soups = [brickwork.merge([net, net], "greedy_soup", data=[given], **quiet) for given in (pairs, arrays)]
    assert same(*soups)
    tables = [
        brickwork.sweep(net, net, data={"x": given}, alpha=[0.5], beta=[0.5]).table() for given in (pairs, arrays)
    ]
    assert tables[0] == tables[1]
    parts = [brickwork.disassemble(net, name, arrays, keep=0.7, **quiet) for name in ("red", "blue,green")]
    a, b = (brickwork.assemble(parts, calibrate="target", target=given) for given in (pairs, raw))
    assert same(a, b)
    a, b = (brickwork.adapt(net, given, given, **quiet) for given in (pairs, raw))
    assert same(a, b)
    student = Net()
    a, b = (brickwork.distil(student, net, given, epochs=1, **quiet).model for given in (pairs, raw))
    assert same(a, b)
    a, b = (brickwork.cancel(net, given, given, steps=2, **quiet).to_dict() for given in (pairs, arrays))
    assert a["terms"] == b["terms"]
    fresh = (raw, (labels + 1) % 3)
    new = [
        add_classes(net, fresh, classes=["x", "y", "z"], base_data=given, progress=False) for given in (pairs, images)
    ]
    assert same(*new)
    pool = brickwork.KernelPool.cluster([net], size=4)
    tasks = [
        brickwork.pool.learn(pool, *given, classes=Pairs.classes, epochs=1, **quiet) for given in ((pairs,), arrays)
    ]
    assert same(*map(pool.rebuild, tasks))
    assert same(*(pool.rebuild(brickwork.pool.encode(pool, net, given, **quiet)) for given in (pairs, raw)))


def test_training_on_a_dataset(trained):
    _, images = trained
    runs = []
    for given in (
        (images.train_images, images.train_labels),
        (DataLoader(Pairs(images.train_images, images.train_labels), 4), None),
    ):
        torch.manual_seed(0)
        net = Net()
        train(net, *given, epochs=2, lr=0.05, batch_size=16, progress=False)
        runs.append(net)
    assert same(*runs) and runs[1].brickwork_origin.classes == Pairs.classes
    with pytest.raises(BadData, match="brings its own labels"):
        train(net, Pairs(images.train_images, images.train_labels), images.train_labels, epochs=1)


def test_image_data_of_two_datasets(trained):
    net, images = trained
    sets = [Pairs(images.split(split)[0], images.split(split)[1]) for split in ("train", "test")]
    made = from_dataset(*sets, name="own")
    assert made.classes == Pairs.classes and evaluate(net, made).to_dict() == evaluate(net, images).to_dict()
    floats = TensorDataset(torch.rand(4, 3, 8, 8), torch.arange(4) % 2)
    with pytest.raises(BadData, match="leave its transform out"):
        from_dataset(floats, floats)


class Odd(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, k):
        return self.items[k]


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([], "there are no images in the data"),
        ([(torch.zeros(3, 4, 4), 0), (torch.zeros(3, 5, 4), 1)], "resize them to one size"),
        ([torch.zeros(3, 4, 4)] * 2, "have no label"),
        ([("cat.png", 0)], "an item's image is a str"),
        ([(torch.zeros(3, 4, 4, dtype=torch.int64), 0)], "an item's image is int64"),
        ([{"picture": 1, "label": 0}], "looked for as pixel_values or image"),
    ],
)
def test_a_dataset_that_cannot_be_used_is_refused_in_a_sentence(trained, items, said):
    with pytest.raises(BadData, match=said):
        images, _ = pair_of_dataset(Odd(items), ("a", "b"))
        np.asarray(images)


def test_images_alone_need_no_labels():
    assert images_of(Odd([torch.zeros(3, 4, 4)] * 2)).shape == (2, 3, 4, 4)
    assert datasets.images_of((1, 2)) == 1
