"""Adapter folders that say something else than a product B·A, or nonsense, are refused in a sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from brickwork import lora
from brickwork.errors import BadFile, BadModel
from brickwork.lora.adapter import Adapter


def adapter(folder, rank=1, value=1.0, **config):
    folder.mkdir()
    said = {"peft_type": "LORA", "r": rank, "lora_alpha": 1, **config}
    (folder / "adapter_config.json").write_text(json.dumps(said))
    factors = {"A": np.full((rank, 3), value, np.float32), "B": np.ones((2, rank), np.float32)}
    save_file(
        {f"base_model.model.q.lora_{name}.weight": x for name, x in factors.items()},
        folder / "adapter_model.safetensors",
    )
    return folder


@pytest.mark.parametrize("begun", ["pissa", "pissa_niter_16", "OLoRA", "corda", "loftq", "lora_ga"])
def test_factors_that_begin_with_a_part_of_the_base_are_refused(tmp_path, begun):
    """peft takes that part out of the base again; base + B·A would hold it twice."""
    with pytest.raises(BadFile, match="takes from the base's weights"):
        Adapter.load(adapter(tmp_path / "a", init_lora_weights=begun))


@pytest.mark.parametrize("begun", [True, False, "gaussian", "eva"])
def test_other_beginnings_are_plain(tmp_path, begun):
    assert Adapter.load(adapter(tmp_path / "a", init_lora_weights=begun)).change("q").sum() == 6


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"rank": 0}, "r from 1"),
        ({"lora_alpha": float("nan")}, "both must be numbers"),
        ({"rank_pattern": {"(": 2}}, "does not say r and lora_alpha"),
        ({"alpha_pattern": ["q"]}, "does not say r and lora_alpha"),
        ({"value": float("nan")}, "holds NaN"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(tmp_path, odd, said):
    with pytest.raises(BadFile, match=said):
        Adapter.load(adapter(tmp_path / "a", **odd))


def test_no_difference_of_what_is_no_number_is_extracted(tmp_path):
    for name, value in (("base", 0.0), ("tuned", np.nan)):
        (tmp_path / name).mkdir()
        save_file({"q.weight": np.full((2, 3), value, np.float32)}, tmp_path / name / "model.safetensors")
    with pytest.raises(BadModel, match=r"q\.weight .* NaN"):
        lora.extract(tmp_path / "tuned", tmp_path / "base", tmp_path / "out", progress=False)
