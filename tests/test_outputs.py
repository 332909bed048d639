"""What compares classes refuses a network of one output: accuracies, entropies and distillation would be made up."""

import pytest
import torch
from torch import nn

import brickwork
from brickwork.algebra import greedy_soup, merge_on
from brickwork.errors import BadModel
from brickwork.outputs import in_rows

IMAGES, LABELS = torch.rand(20, 3, 4, 4), torch.zeros(20, dtype=torch.int64)
QUIET = {"progress": False}


def one():
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 1)).requires_grad_(True)


@pytest.mark.parametrize(
    "ask",
    [
        lambda net: brickwork.sweep(net, one(), data={"x": (IMAGES, LABELS)}, alpha=[0.0, 1.0], **QUIET),
        lambda net: greedy_soup([net, one()], [(IMAGES, LABELS)], **QUIET),
        lambda net: merge_on([net, one()], [IMAGES, IMAGES], "adamerging", base=one(), **QUIET),
        lambda net: brickwork.distil(one(), net, IMAGES, epochs=1, **QUIET),
    ],
    ids=["sweep", "greedy soup", "adamerging", "distil"],
)
def test_one_output_is_no_class_among_others(ask):
    with pytest.raises(BadModel, match="the model has one output, and what is asked for compares classes"):
        ask(one())


@pytest.mark.parametrize("method", ["linear", "match", "regmean", "rebasin"])
def test_what_compares_no_classes_merges_networks_of_one_output(method):
    net = one()
    how = {} if method == "linear" else {"data": [IMAGES, IMAGES]}
    merged = brickwork.merge([net, net], method, **how)
    torch.testing.assert_close(merged(IMAGES), net(IMAGES), rtol=1e-3, atol=1e-3)
    ended = nn.Sequential(net, nn.Flatten(0))
    assert in_rows(brickwork.merge([ended, ended], method, **how)(IMAGES)).shape == (20, 1)


@pytest.mark.parametrize("method", ["linear", "match", "regmean"])
@pytest.mark.parametrize("end", [nn.Softmax(1), nn.LogSoftmax(1), nn.Sigmoid()])
def test_networks_with_an_end_of_their_own_are_merged(method, end):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 3), end)
    how = {} if method == "linear" else {"data": [IMAGES, IMAGES]}
    torch.testing.assert_close(brickwork.merge([net, net], method, **how)(IMAGES), net(IMAGES), rtol=1e-3, atol=1e-3)
