"""Layers that run over places, once for each channel: as often as there are channels, which a cut changes."""

from __future__ import annotations

import pytest
import torch
from moment_nets import randomise
from torch import Tensor, nn

import brickwork
from brickwork.errors import RequestError
from brickwork.moments import Source, match_responses


class Mixer(nn.Module):
    """An MLP-Mixer of one block: over tokens for each channel, then over channels for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 12, 2, 2), nn.Linear(12, 4)
        self.tokens = nn.Sequential(nn.Linear(16, 9), nn.Tanh(), nn.Linear(9, 16))
        self.channels = nn.Sequential(nn.Linear(12, 18), nn.Tanh(), nn.Linear(18, 12))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).flatten(2)
        x = (x + self.tokens(x)).transpose(1, 2)
        return self.head((x + self.channels(x)).mean(1))


@pytest.fixture
def mixer():
    return randomise(Mixer()), torch.randn(60, 3, 8, 8, dtype=torch.float64)


def test_layers_over_tokens_stay_as_they_are_where_channels_were_cut(mixer):
    model, x = mixer
    bp = brickwork.trace(model, x[:2])
    kept = {"stem": list(range(9)), "channels.0": list(range(12))}
    cut = bp.select(model, kept)
    rows = {"stem": kept["stem"], "channels.0": kept["channels.0"], "channels.2": kept["stem"]}
    result = match_responses(cut, [Source(model, x, rows)], ridge=None, progress=False)
    assert [fit.layer for fit in result.fits] == ["stem", "channels.0", "channels.2", "head"]
    for k in (0, 2):
        assert torch.equal(result.model.tokens[k].weight, model.tokens[k].weight)
    with torch.no_grad():
        before, after = ((net(x) - model(x)).square().mean() for net in (cut, result.model))
    assert after < before
    with pytest.raises(RequestError, match=r"'tokens.0' cannot be matched; layers that can: stem, channels"):
        match_responses(cut, [Source(model, x, rows)], layers=["tokens.0"], progress=False)


def test_they_are_matched_where_all_channels_are_there(mixer):
    model, x = mixer
    result = match_responses(model, [Source(model, x)], progress=False)
    assert {"tokens.0", "tokens.2"} < {fit.layer for fit in result.fits}


def test_a_mixer_is_compressed(mixer):
    model, x = mixer
    brick = brickwork.compress(model, (x, torch.arange(60) % 4), budget=0.6, progress=False)
    assert brick.parameters <= 0.6 and len(brick.kept["stem"]) < 12
