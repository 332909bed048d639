"""Modules for files of public networks: a file as it lies in public is taken, and what it holds can be cut exactly."""

import pytest
import torch

import brickwork
from brickwork.errors import BrickworkError
from brickwork_lab import public_networks


@pytest.mark.parametrize("name", ["public-resnet20-padded", "public-resnet56"])
def test_a_residual_network_from_its_file(tmp_path, name):
    make, file, prepared = public_networks.NETWORKS[name]
    torch.manual_seed(0)
    net = make()
    state = {f"module.{key}": value for key, value in net.state_dict().items() if "batches" not in key}
    if file.endswith(".th"):
        torch.save({"state_dict": state, "best_prec1": 91.73}, tmp_path / file)
    else:
        from safetensors.torch import save_file

        save_file(state, tmp_path / file)
    loaded = public_networks.load(name, tmp_path).double()
    assert loaded.brickwork_origin.preprocessing == prepared
    assert torch.equal(loaded.conv1.weight.float(), net.conv1.weight)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    bp = brickwork.trace(loaded, x)
    keep = {space: range(0, size, 2) for space, size in bp.spaces.items() if space != "classes"}
    keep = {space: sorted({*ids, *bp.space(space).fixed}) for space, ids in keep.items()}
    assert (bp.select(loaded, keep)(x) - bp.zero(loaded, keep)(x)).abs().max() < 1e-10


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(BrickworkError, match="fetch the public networks"):
        public_networks.load("public-resnet20-padded", tmp_path)
