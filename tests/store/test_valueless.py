"""Networks built for their shapes: nothing drawn, the same shapes, and quick to come by."""

import subprocess
import sys

import pytest
import torch

import brickwork
from brickwork import zoo
from brickwork.store.valueless import valueless


@pytest.mark.parametrize("arch", ["lenet", "resnet8", "mobilenetv2", "vit_small"])
def test_shapes_and_types_are_those_of_the_real_network(arch):
    with valueless():
        bare = zoo.build(arch)
    real = zoo.build(arch, seed=0)
    assert all(value.is_meta for value in bare.state_dict().values())
    shapes = [{k: (v.shape, v.dtype) for k, v in m.state_dict().items()} for m in (bare, real)]
    assert shapes[0] == shapes[1]


def test_nothing_is_drawn_and_real_tensors_are_as_ever():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with valueless():
        torch.nn.Linear(4, 4)
        assert torch.equal(torch.get_rng_state(), before)
        inside = torch.empty(5, device="cpu").normal_()
    torch.manual_seed(3)
    assert torch.equal(inside, torch.empty(5).normal_())


def test_a_folder_is_read_without_torchs_compiler(tmp_path):
    """Drawing values for a network without values once imported all of torch._dynamo, for more than a second."""
    brickwork.save(zoo.build("resnet8", width=4, seed=0), tmp_path / "net")
    code = (
        "import sys, brickwork; brickwork.load(sys.argv[1]).fc.weight.sum()\nassert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "net")], check=True)
