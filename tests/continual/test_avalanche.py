"""Avalanche's benchmarks as scenarios: by their shape, and the real ones where it is installed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from brickwork.continual.avalanche import _pixels, from_avalanche
from brickwork.errors import BadData


def benchmark_of(scenario, dress):
    """What an Avalanche benchmark looks like, over the images of a scenario; labels are those of the whole set."""
    streams = {}
    for split in ("train", "test"):
        streams[f"{split}_stream"] = [
            SimpleNamespace(
                classes_in_this_experience=[int(c) for c in task.classes],
                dataset=[
                    (dress(image), int(task.classes[label]), number)
                    for image, label in zip(*task.split(split)[:2], strict=True)
                ],
            )
            for number, task in enumerate(scenario.tasks)
        ]
    return SimpleNamespace(**streams)


@pytest.mark.parametrize(
    "dress",
    [lambda x: x, lambda x: Image.fromarray(x[..., 0]), lambda x: torch.tensor(x).permute(2, 0, 1) / 255],
    ids=["arrays", "pictures", "tensors"],
)
def test_images_and_labels_arrive(scenario, dress):
    found = from_avalanche(benchmark_of(scenario, dress), name="digits")
    assert [t.name for t in found.tasks] == ["digits#0", "digits#1", "digits#2"]
    for task, wanted in zip(found.tasks, scenario.tasks, strict=True):
        assert task.classes == wanted.classes
        assert np.array_equal(task.train_images, wanted.train_images)
        assert np.array_equal(task.test_labels, wanted.test_labels)


def test_palettes_and_single_bits_are_read_as_what_they_show():
    colours = np.zeros((2, 2, 3), np.uint8)
    colours[0, 0], colours[1, 1] = (200, 10, 10), (0, 90, 255)
    picture = Image.fromarray(colours).convert("P", palette=Image.Palette.ADAPTIVE)
    assert np.array_equal(_pixels(picture), np.asarray(picture.convert("RGB")))
    bits = np.array([[True, False], [False, True]])
    for one in (Image.fromarray(bits), bits, torch.tensor(bits)[None]):
        assert _pixels(one)[..., 0].tolist() == [[255, 0], [0, 255]]
    whole = np.arange(4).reshape(1, 2, 2)
    assert np.array_equal(_pixels(torch.tensor(whole))[..., 0], whole[0])


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (Image.fromarray(np.full((2, 2), 1000, np.uint16)), "mode 'I;16'; it must be one of L, RGB"),
        (Image.new("CMYK", (2, 2)), "mode 'CMYK'"),
        (torch.full((1, 2, 2), 300), "int64 from 300 to 300; they must be whole numbers"),
        (np.full((2, 2, 1), -1), "from -1 to -1"),
        (torch.full((1, 2, 2), float("nan")), "not from 0 to 1"),
    ],
    ids=["16 bits", "cmyk", "above 255", "below 0", "nan"],
)
def test_pictures_that_would_be_misread_are_refused(image, said):
    with pytest.raises(BadData, match=said):
        _pixels(image)


def test_what_is_no_benchmark_is_refused(scenario):
    with pytest.raises(BadData, match="no Avalanche benchmark"):
        from_avalanche(scenario)
    good = benchmark_of(scenario, lambda x: x)
    with pytest.raises(BadData, match="3 experiences to train on and 2"):
        from_avalanche(SimpleNamespace(train_stream=good.train_stream, test_stream=good.test_stream[:2]))
    with pytest.raises(BadData, match="not from 0 to 1"):
        from_avalanche(benchmark_of(scenario, lambda x: torch.tensor(x).permute(2, 0, 1).float() - 3))
    good.train_stream[0].classes_in_this_experience = [4]
    with pytest.raises(BadData, match="class 5"):
        from_avalanche(good)


def test_a_real_benchmark(scenario):
    avalanche = pytest.importorskip("avalanche", reason="Avalanche is not installed")
    from avalanche.benchmarks.generators import tensors_benchmark

    def streams(split):
        pairs = [task.split(split)[:2] for task in scenario.tasks]
        return [(torch.tensor(x).permute(0, 3, 1, 2) / 255, torch.tensor(y)) for x, y in pairs]

    made = tensors_benchmark(streams("train"), streams("test"), task_labels=[0, 1, 2])
    assert avalanche is not None and len(from_avalanche(made)) == 3
