"""Folders, arrays, named .npz files and Hugging Face data sets."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from brickwork import data
from brickwork.data.images import IGNORE
from brickwork.errors import BadData, BadFile, RequestError


def paint(folder, name, *, count=5, size=(10, 10), value=0):
    (folder / name).mkdir(parents=True)
    for i in range(count):
        Image.new("RGB", size, (value, i, 0)).save(folder / name / f"{i}.png")


def test_image_folder(tmp_path):
    paint(tmp_path, "cat", value=10)
    paint(tmp_path, "dog", value=200)
    (tmp_path / "cat" / ".DS_Store").write_bytes(b"junk")
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"junk")
    found = data.load(f"{tmp_path}:dog,cat")
    assert found.classes == ("dog", "cat")
    assert (len(found.train_labels), len(found.test_labels)) == (8, 2)
    assert np.all(found.train_images[found.train_labels == 0][..., 0] == 200)


def test_image_folder_with_train_and_test(tmp_path):
    paint(tmp_path / "train", "cat")
    paint(tmp_path / "train", "dog")
    paint(tmp_path / "test", "dog", count=3, size=(20, 20))
    found = data.load(str(tmp_path))
    assert found.train_images.shape == (10, 10, 10, 3)
    assert found.test_images.shape == (3, 10, 10, 3)
    assert found.test_labels.tolist() == [1, 1, 1]
    paint(tmp_path / "test", "owl")
    with pytest.raises(BadData, match="owl"):
        data.load(str(tmp_path))


def test_a_folder_of_images_alone_is_one_class(tmp_path):
    paint(tmp_path, "cat")
    found = data.load(str(tmp_path / "cat"))
    assert found.classes == ("cat",) and len(found.train_labels) and len(found.test_labels)
    assert len(found.train_labels) + len(found.test_labels) == len(list((tmp_path / "cat").iterdir()))


@pytest.mark.parametrize("inside", [[], ["cat"]])
def test_an_empty_image_folder_is_refused(tmp_path, inside):
    for name in inside:
        (tmp_path / name).mkdir()
    with pytest.raises(BadData, match="holds no images; expected one sub-folder a class"):
        data.load(str(tmp_path))


@pytest.mark.parametrize("content", [b"not an image", b"", b"\x89PNG\r\n\x1a\n cut off"])
def test_a_non_image_among_images_is_named(tmp_path, content):
    paint(tmp_path, "cat")
    (tmp_path / "cat" / "notes.png").write_bytes(content)
    with pytest.raises(BadFile, match=r"cat/notes\.png is not an image"):
        data.load(str(tmp_path))


def test_a_truncated_image_is_named(tmp_path):
    paint(tmp_path, "cat", size=(64, 64))
    whole = (tmp_path / "cat" / "0.png").read_bytes()
    (tmp_path / "cat" / "0.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadFile, match=r"cat/0\.png is not an image"):
        data.load(str(tmp_path))


def test_images_of_different_sizes_need_one(tmp_path):
    paint(tmp_path, "cat")
    paint(tmp_path, "dog", size=(30, 20))
    with pytest.raises(BadData, match="give one size for all"):
        data.load(str(tmp_path))
    assert data.load(str(tmp_path), size=12).shape == (12, 12, 3)
    assert data.load(str(tmp_path), size=12, channels=1).shape == (12, 12, 1)


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(BadFile, match="does not exist"):
        data.load(str(tmp_path / "nowhere"))
    with pytest.raises(BadFile, match=r"y\.npy does not exist"):
        np.save(tmp_path / "x.npy", np.zeros(1))
        data.load(f"{tmp_path}/x.npy+{tmp_path}/y.npy")


def arrays(count=20):
    source = np.random.default_rng(0)
    return source.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8), np.arange(count) % 2


def test_npy_pair(tmp_path):
    images, labels = arrays()
    np.save(tmp_path / "x.npy", images)
    np.save(tmp_path / "y.npy", labels)
    found = data.load(f"{tmp_path}/x.npy+{tmp_path}/y.npy:1@3")
    assert found.classes == ("1",) and len(found.train_labels) == 3
    with pytest.raises(BadFile, match="come as a pair"):
        data.load(f"{tmp_path}/x.npy")


def test_npz_file_and_named_set(tmp_path, monkeypatch):
    images, labels = arrays()
    parts = {"train_images": images, "train_labels": labels, "test_images": images[:4], "test_labels": labels[:4]}
    np.savez(tmp_path / "beasts.npz", classes=np.array(["cat", "dog"]), **parts)
    np.savez(tmp_path / "pile.npz", images=images[..., 0], labels=labels)
    monkeypatch.setenv("BRICKWORK_DATA", str(tmp_path))
    assert data.load("beasts:dog").classes == ("dog",)
    assert data.load(f"{tmp_path}/beasts.npz@2").train_images.shape == (4, 8, 8, 3)
    assert data.load("pile").shape == (8, 8, 1)
    monkeypatch.delenv("BRICKWORK_DATA")
    assert data.load("beasts", root=tmp_path).classes == ("cat", "dog")


def test_pet_trimaps_become_animal_background_and_ignored(tmp_path):
    images, labels = arrays(4)
    masks = np.full((4, 8, 8), 2, np.uint8)
    masks[:, 2:6, 2:6], masks[:, 0] = 1, 3
    parts = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
    np.savez(tmp_path / "pets.npz", train_masks=masks, test_masks=masks, classes=np.array(["a", "b"]), **parts)
    found = data.load("pets", root=tmp_path)
    assert found.mask_classes == ("background", "animal")
    assert found.train_masks is not None
    assert set(found.train_masks[:, 0].ravel()) == {IGNORE} and found.train_masks[0, 3, 3] == 1
    assert data.load("pets", root=tmp_path, size=16).train_masks.shape == (4, 16, 16)


def test_a_pickle_in_an_npz_is_never_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    trap = np.empty(1, object)
    trap[0] = Trap()
    np.savez(tmp_path / "trap.npz", images=trap, labels=np.zeros(1, int))
    with pytest.raises(BadFile, match=r"cannot be read as an \.npz of plain arrays"):
        data.load(f"{tmp_path}/trap.npz")
    assert not (tmp_path / "sprung").exists()


def test_broken_and_incomplete_npz_files(tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and nothing more")
    np.savez(tmp_path / "half.npz", train_images=np.zeros((1, 2, 2, 1), np.uint8))
    with pytest.raises(BadFile, match="cannot be read"):
        data.load(f"{tmp_path}/broken.npz")
    with pytest.raises(BadFile, match="missing: train_labels, test_images, test_labels"):
        data.load(f"{tmp_path}/half.npz")


def test_labels_must_be_whole_numbers(tmp_path):
    images, labels = arrays()
    np.savez(tmp_path / "pile.npz", images=images, labels=labels / 2)
    with pytest.raises(BadData, match="one whole number an image"):
        data.load(f"{tmp_path}/pile.npz")


def test_hugging_face_data_set_on_disk(tmp_path):
    datasets = pytest.importorskip("datasets", reason="needs the extra hf")
    images, labels = arrays()
    features = datasets.Features({"img": datasets.Image(), "kind": datasets.ClassLabel(names=["cat", "dog"])})
    rows = {"img": [Image.fromarray(i) for i in images], "kind": labels.tolist()}
    whole = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": whole, "test": whole.select(range(6))}).save_to_disk(tmp_path / "both")
    whole.save_to_disk(tmp_path / "one")
    both = data.load(f"hfds:{tmp_path}/both:dog,cat")
    assert both.classes == ("dog", "cat") and len(both.test_labels) == 6
    assert np.array_equal(both.train_images, images)
    assert np.array_equal(both.train_labels, 1 - labels)
    assert len(data.load(f"hfds:{tmp_path}/one@3").train_labels) == 6
    whole.rename_column("kind", "x").remove_columns("x").save_to_disk(tmp_path / "bare")
    with pytest.raises(BadData, match="ClassLabel column"):
        data.load(f"hfds:{tmp_path}/bare")


def test_a_missing_extra_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(RequestError, match=r"\.\[hf\]"):
        data.load("hfds:beans")


def test_a_file_is_no_folder_of_images_and_a_folder_no_npz(tmp_path):
    (tmp_path / "notes.txt").write_text("cats")
    (tmp_path / "set.npz").mkdir()
    with pytest.raises(BadFile, match=r"notes\.txt is a file; expected a folder of images"):
        data.load(str(tmp_path / "notes.txt"))
    with pytest.raises(BadFile, match=r"set\.npz is a folder; expected a folder of images, an \.npz"):
        data.load(str(tmp_path / "set.npz"))
