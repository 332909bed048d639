"""The embedded digits, and what every ImageData can do."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from brickwork import data
from brickwork.data.digits import _embedded
from brickwork.data.images import ImageData, hold_out
from brickwork.data.pixels import as_input, change_channels
from brickwork.errors import BadData, RequestError, UnknownName
from brickwork.origin import Preprocessing


@pytest.mark.parametrize("kept", ["where it is", "elsewhere"])
def test_the_digits_are_scikit_learns(kept, monkeypatch):
    from sklearn.datasets import load_digits  # here: its import is what others are spared

    if kept == "elsewhere":
        monkeypatch.setattr("brickwork.data.digits.importlib.util.find_spec", lambda name: None)
    theirs = load_digits()
    images, labels = _embedded()
    assert np.array_equal(images, theirs.images) and np.array_equal(labels, theirs.target)
    assert images.max() == 16 and labels.dtype == np.int64


def test_reading_the_digits_runs_none_of_scikit_learn():
    code = "import sys; from brickwork import data; data.load('digits'); print('sklearn' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout == "False\n", found.stderr


def test_digits_are_split_by_class_and_always_alike():
    first, second = data.load("digits", seed=1), data.load("digits", seed=2)
    assert np.array_equal(first.test_images, second.test_images)
    assert len(first.train_labels) + len(first.test_labels) == 1797
    assert first.classes == tuple("0123456789")
    assert np.bincount(first.test_labels).min() >= 34


def test_classes_are_renumbered_in_the_order_asked():
    whole, some = data.load("digits"), data.load("digits:7,2")
    assert some.classes == ("7", "2")
    assert np.array_equal(some.train_images[some.train_labels == 1], whole.train_images[whole.train_labels == 2])
    assert np.array_equal(some.test_images[some.test_labels == 0], whole.test_images[whole.test_labels == 7])


def test_amounts_are_seeded_and_the_same_in_any_selection():
    few = data.load("digits@4", seed=3)
    assert np.bincount(few.train_labels).tolist() == [4] * 10
    assert np.array_equal(few.train_images, data.load("digits@4", seed=3).train_images)
    assert not np.array_equal(few.train_images, data.load("digits@4", seed=4).train_images)
    half = data.load("digits:B@4", seed=3)
    assert np.array_equal(half.train_images, few.train_images[few.train_labels >= 5])
    assert len(few.test_labels) == len(data.load("digits").test_labels)


def test_an_amount_limits_the_split_asked_for():
    few = data.load("digits:A@3", split="test")
    assert np.bincount(few.test_labels).tolist() == [3] * 5
    assert len(few.train_labels) > 700


def test_too_large_an_amount_says_how_many_there_are():
    with pytest.raises(BadData, match=r"5000 train images a class asked for, '0' has 142"):
        data.load("digits@5000")


@pytest.mark.parametrize(("size", "channels"), [(8, 1), (16, 3), (32, 1)])
def test_sizes_and_channels_with_a_mask_of_the_ink(size, channels):
    digits = data.load("digits@2", size=size, channels=channels)
    assert digits.train_images.shape == (20, size, size, channels)
    assert digits.train_masks is not None and digits.train_masks.shape == (20, size, size)
    inside = digits.train_images[digits.train_masks == 1].mean()
    assert inside > 170 > 60 > digits.train_images[digits.train_masks == 0].mean()
    assert 0.1 < digits.train_masks.mean() < 0.5


@pytest.mark.parametrize("side", [8, 16, 32, 40])
def test_one_number_and_a_pair_of_it_are_the_same_size(side):
    one, pair = (data.load("digits@2", size=size, channels=1) for size in (side, (side, side)))
    for name in ("train_images", "test_images", "train_masks"):
        assert np.array_equal(getattr(one, name), getattr(pair, name))
    assert data.load("digits@2", size=(8, side), channels=1).shape == (8, side, 1)


def test_beyond_the_drawn_sizes_digits_are_scaled():
    assert data.load("digits@1", size=(40, 48)).shape == (40, 48, 3)


def test_tensors_have_zero_mean_and_unit_spread():
    digits = data.load("digits:A")
    images, labels = digits.tensors("train")
    assert images.shape[1:] == (3, 32, 32) and images.dtype == torch.float32
    assert abs(images.mean().item()) < 1e-3 and abs(images.std().item() - 1) < 1e-3
    assert labels.dtype == torch.int64
    foreign = Preprocessing(size=(8, 8), channels=1, mean=(0.0,), std=(1.0,))
    assert digits.tensors("test", foreign)[0].shape == (180, 1, 8, 8)


def test_unknown_data_set_offers_the_nearest():
    with pytest.raises(UnknownName, match=r"unknown data set 'digit'; did you mean 'digits'\?"):
        data.load("digit")


def test_unknown_digit_offers_the_known():
    with pytest.raises(UnknownName, match=r"unknown class 'seven'\. Known: 0, 1"):
        data.load("digits:seven")


@pytest.mark.parametrize("wrong", [{"split": "tset"}, {"size": 0}, {"channels": 2}])
def test_wrong_options_are_refused(wrong):
    with pytest.raises(RequestError, match="must be"):
        data.load("digits", **wrong)


def test_labels_that_do_not_fit_are_refused():
    images = np.zeros((2, 4, 4, 1), np.uint8)
    with pytest.raises(BadData, match="labels run from 0 to 3"):
        ImageData("x", ("a", "b"), images, np.array([0, 3]), images, np.array([0, 1]))
    with pytest.raises(BadData, match="uint8"):
        ImageData("x", ("a",), images.astype(float), np.array([0, 0]), images, np.array([0, 0]))


def test_hold_out_is_a_partition_by_class():
    labels = np.random.default_rng(0).integers(0, 7, 500)
    train, test = hold_out(labels)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(500))
    assert np.all(np.abs(np.bincount(labels[test]) / np.bincount(labels) - 0.2) < 0.02)


def test_floating_images_are_taken_as_they_are():
    images = torch.randn(2, 3, 4, 4)
    assert torch.equal(as_input(images, Preprocessing(channels=3, mean=(9.0,) * 3, std=(1.0,) * 3)), images)


def test_grey_to_rgb_and_back():
    grey = torch.randint(0, 256, (2, 1, 4, 4), dtype=torch.uint8)
    assert torch.equal(change_channels(change_channels(grey, 3), 1), grey)
    with pytest.raises(BadData, match="1 and 3 can be exchanged"):
        change_channels(grey, 4)
