"""The quick rules give what torch's own rules for the meta device give, and leave the rest to them."""

from __future__ import annotations

import pytest
import torch

from brickwork.blueprint.shapes import _RULES, quick

aten = torch.ops.aten


def meta(*shape, dtype=torch.float32):
    return torch.empty(*shape, device="meta", dtype=dtype)


DOUBLE, HALF = meta(6, dtype=torch.float64), meta(2, 6, dtype=torch.bfloat16)
INPUTS = {
    "plain": meta(2, 6, 4, 4),
    "channels last": meta(2, 6, 4, 4).to(memory_format=torch.channels_last),
    "every second": meta(2, 12, 4, 4)[:, ::2],
    "turned": meta(2, 4, 6).permute(0, 2, 1),
    "expanded": meta(1, 6, 4, 4).expand(2, 6, 4, 4),
    "double": meta(2, 6, dtype=torch.float64),
}
CONVOLUTION = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)


def facts(result):
    return [(x.shape, x.stride(), x.dtype, x.device.type) for x in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("func", [func for func in _RULES if func is not aten.convolution.default], ids=str)
def test_as_torch_says(func, kind):
    x = INPUTS[kind]
    if func is aten.native_batch_norm.default:
        vector = meta(6, dtype=x.dtype)
        args = (x, vector, vector, vector, vector, False, 0.1, 1e-5)
    elif func is aten.addmm.default:
        x = x[:, :, 0, 0] if x.dim() == 4 else x.reshape(x.shape[0], -1)
        args = (meta(5, dtype=x.dtype), x, meta(5, x.shape[1], dtype=x.dtype).t())
    elif func in (aten.add.Tensor, aten.add_.Tensor):
        args = (x, torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta"))
        if func is aten.add_.Tensor and kind == "expanded":
            pytest.skip("torch does not write into a tensor that lies on itself")
    else:
        args = (x,)
    found = quick(func, args)
    assert found is not None
    assert facts(found) == facts(func(*args))
    if str(func).partition(".")[2].partition(".")[0].endswith("_"):
        assert found is x


@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize("padding", [[0, 0], [2, 1]])
@pytest.mark.parametrize("dilation", [[1, 1], [2, 1]])
@pytest.mark.parametrize("stride", [[1, 1], [2, 3]])
def test_convolutions_as_torch_says(stride, padding, dilation, groups):
    x, weight = meta(2, 6, 9, 8), meta(12, 6 // groups, 3, 2)
    args = (x, weight, meta(12), stride, padding, dilation, False, [0, 0], groups)
    found = quick(aten.convolution.default, args)
    assert found is not None
    assert facts(found) == facts(aten.convolution.default(*args))


def test_without_weights_and_statistics():
    x = meta(2, 6, 4)
    args = (x, None, None, meta(6), meta(6), False, 0.1, 1e-5)
    assert facts(quick(aten.native_batch_norm.default, args)) == facts(aten.native_batch_norm.default(*args))


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (aten.native_batch_norm.default, (meta(2, 6, 4), None, None, None, None, True, 0.1, 1e-5)),
        (aten.native_batch_norm.default, (meta(2, 6, 4), meta(5), None, meta(6), meta(6), False, 0.1, 1e-5)),
        (aten.native_batch_norm.default, (meta(2, 6), None, None, DOUBLE, meta(6), False, 0.1, 1e-5)),
        (aten.native_batch_norm.default, (HALF, None, None, HALF[0], HALF[0], False, 0.1, 1e-5)),
        (aten.addmm.default, (meta(5), meta(2, 4), meta(3, 5))),
        (aten.addmm.default, (meta(4), meta(2, 3), meta(3, 5))),
        (aten.addmm.default, (meta(2, 5), meta(2, 3), meta(3, 5))),
        (aten.addmm.default, (meta(5), meta(2, 3), meta(3, 5, dtype=torch.float64))),
        (aten.relu.default, (meta(3, dtype=torch.int64),)),
        (aten.convolution.default, (meta(1, 2, 3, 3), meta(2, 2, 3, 3))),
        (aten.convolution.default, (meta(1, 2, 3, 3), meta(2, 3, 3, 3), *CONVOLUTION)),
        (aten.convolution.default, (meta(1, 2, 3, 3), meta(2, 2, 5, 5), *CONVOLUTION)),
        (aten.convolution.default, (INPUTS["channels last"], meta(2, 6, 3, 3), *CONVOLUTION)),
        (aten.convolution.default, (meta(1, 2, 3, 3), meta(2, 2, 3, 3, dtype=torch.float64), *CONVOLUTION)),
        (aten.add.Tensor, (meta(2, 6), meta(6))),
        (aten.add.Tensor, (meta(2, 6), DOUBLE.expand(2, 6))),
        (aten.add.Tensor, (meta(2, 6), 1.0)),
        (aten.add.Tensor, (meta(2, 6), meta(6, 2).t())),
    ],
    ids=[
        "training",
        "a weight too short",
        "another type of mean",
        "half precision",
        "inner sizes",
        "bias too short",
        "bias as matrix",
        "mixed types",
        "whole numbers",
        "no rule",
        "other channels",
        "kernel too large",
        "channels last",
        "mixed types of a kernel",
        "a smaller summand",
        "a summand of another type",
        "a number",
        "a summand in another order",
    ],
)
def test_the_rest_is_left_to_torch(func, args):
    assert quick(func, args) is None
