"""Nothing wrong is returned: each nasty model is handled exactly or refused by a BrickworkError."""

from __future__ import annotations

import pytest
import torch
from checks import TOLERANCE, call, check_permute, difference, draw_keep, fill, randomise, restricted
from nasty import NASTY

import brickwork
from brickwork.errors import BrickworkError

#: bugs of join that are known


@pytest.fixture
def traced(request):
    make, example = NASTY[request.param]
    model = randomise(make())
    try:
        return brickwork.trace(model, example), model, example
    except BrickworkError as error:
        pytest.skip(f"refused: {error}"[:120])


@pytest.mark.parametrize("traced", NASTY, indirect=True)
def test_select(traced):
    bp, model, example = traced
    x = fill(example, 1)
    for seed in range(8):
        keep = draw_keep(bp, seed)
        try:
            small = bp.select(model, keep)
        except BrickworkError:
            continue
        wanted = restricted(bp, keep, call(bp.zero(model, keep), x))
        assert difference(call(small, x), wanted) <= TOLERANCE, keep


@pytest.mark.parametrize("traced", NASTY, indirect=True)
def test_permute(traced):
    _, model, example = traced
    check_permute(model, example, range(3), may_refuse=True)


@pytest.mark.parametrize("name", NASTY)
def test_join(name):
    make, example = NASTY[name]
    models, x = [randomise(make(), k) for k in range(2)], fill(example, 3)
    wanted = torch.cat([call(m, x) for m in models], 1)
    for how in ("blocks", "auto", "branches"):
        try:
            joined = brickwork.join(models, example, how=how)
        except BrickworkError:
            assert how == "blocks" or _untraceable(models[0], example)
            continue
        assert difference(call(joined, x), wanted) <= TOLERANCE, how


def _untraceable(model, example) -> bool:
    try:
        brickwork.trace(model, example)
    except BrickworkError:
        return True
    return False
