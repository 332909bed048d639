"""One protocol for results: what each of them has, whoever made it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import data, zoo
from brickwork.algebra import SweepResult
from brickwork.bricks import Routes
from brickwork.continual import ContinualResult, parse
from brickwork.dependencies import DependencyMap
from brickwork.errors import BadFile
from brickwork.options import Options
from brickwork.results import check_format
from brickwork.transplant import TransplantNet, split


def lenet(seed: int = 0) -> nn.Module:
    return zoo.build("lenet", num_classes=3, in_channels=1, seed=seed).eval()


@pytest.fixture(scope="module")
def digits():
    return data.load("digits:0-2@12", size=32, channels=1)


@pytest.fixture(scope="module")
def results(digits):
    pair = (digits.train_images, digits.train_labels)
    logits = np.random.default_rng(0).normal(size=(60, 4))
    net = TransplantNet((1, 32, 32)).add(split(lenet(), "pool1", image=(1, 32, 32)), "dog", "classify")
    return {
        "brick": brickwork.disassemble(
            lenet(), [0, 1], pair, keep=0.5, repair="none", attribution="taylor", progress=False
        ),
        "delta": brickwork.delta(lenet(1), lenet(0)),
        "routes": brickwork.routes(lenet(), pair, attribution="taylor", progress=False),
        "sweep": brickwork.sweep(lenet(), data={"x": pair}, alpha=[0.5, 1.0], progress=False),
        "map": DependencyMap.fit(logits, max_dependencies=2),
        "net": net.eval(),
        "pool": brickwork.KernelPool.cluster([lenet()], size=8),
        "continual": ContinualResult(
            "probe",
            ("a", "b"),
            np.array([[0.5, np.nan], [0.5, 0.7]]),
            (10, 12),
            (30, 42),
            1.5,
            None,
            parse("probe")["probe"],
            {"inputs": {"start": "0" * 64}},
        ),
    }


NAMES = ("brick", "delta", "routes", "sweep", "map", "net", "pool", "continual")


@pytest.mark.parametrize("name", NAMES)
def test_every_result_keeps_the_protocol(results, name):
    result = results[name]
    assert isinstance(result.options, Options | dict | None)
    assert result.provenance["inputs"], "what it was made from, by hash"
    assert all(len(value) == 64 for value in result.provenance["inputs"].values())
    json.dumps([result.to_dict(), result.provenance], allow_nan=True)
    shown = result._repr_html_()
    assert shown.count("<table>") == shown.count("</table>") == 1 and str(result)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_saved_comes_back(results, name, tmp_path):
    result = results[name]
    path = tmp_path / ("d.safetensors" if name == "delta" else "r")
    assert result.save(path) == path
    again = type(result).load(path)
    assert again.options == result.options and again.provenance == result.provenance
    assert json.dumps(again.to_dict(), sort_keys=True) == json.dumps(result.to_dict(), sort_keys=True)
    with pytest.raises(brickwork.errors.OutputExists):
        result.save(path)
    result.save(path, force=True)


@pytest.mark.parametrize(
    "kind", [Routes, SweepResult, DependencyMap, TransplantNet, ContinualResult, brickwork.Brick, brickwork.KernelPool]
)
def test_a_folder_of_something_else_is_refused(kind, tmp_path):
    with pytest.raises(BadFile):
        kind.load(tmp_path)


def test_formats(tmp_path):
    check_format("brickwork.map/1", "brickwork.map/1", tmp_path)
    check_format(1, "brickwork.map/1", tmp_path, older=(1,))
    with pytest.raises(BadFile, match=r"has format 'brickwork.map/2'; this Brickwork reads 'brickwork.map/1'"):
        check_format("brickwork.map/2", "brickwork.map/1", tmp_path)


def test_a_damaged_result_says_so(results, tmp_path):
    folder = results["sweep"].save(tmp_path / "s")
    (folder / "sweep.json").write_text('{"format": "brickwork.sweep/1", "rows": 3}')
    with pytest.raises(BadFile, match="damaged"):
        SweepResult.load(folder)


def test_a_loaded_net_answers_as_before(results, tmp_path):
    net = TransplantNet.load(results["net"].save(tmp_path / "n"))
    x = torch.rand(2, 1, 32, 32)
    assert torch.equal(net(x, "dog", "classify"), results["net"](x, "dog", "classify"))
