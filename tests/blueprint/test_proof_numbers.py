"""What a proof on numbers draws shows a lost activation also behind a layer of a few channels."""

import pytest
import torch
from torch import nn

from brickwork.blueprint.prove import alike, proof_input, run, scrambled
from brickwork.errors import Unsupported


@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize("seed", range(5))
def test_a_lost_activation_is_seen(width, seed):
    net = nn.Sequential(nn.Linear(6, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 3))
    whole = scrambled(net, seed, torch.float64)
    without = nn.Sequential(whole[0], whole[1], whole[3])
    example, answer = proof_input(torch.zeros(2, 6), torch.float64, lambda x: run(whole, x, None), asked=[whole])
    assert len(example) == 16
    with pytest.raises(Unsupported, match="not exact"):
        alike(lambda: run(without, example, None), lambda: answer, "this network")


def test_a_network_of_one_batch_size_is_still_proved():
    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x.reshape(2, 6))

    net = Pair(6, 3).double()
    example, answer = proof_input(torch.zeros(2, 6), torch.float64, lambda x: run(net, x, None), asked=[net])
    assert len(example) == 2
    assert answer.shape == (2, 3)
