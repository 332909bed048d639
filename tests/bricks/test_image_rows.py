"""Scores go to the class of the image that a row belongs to, wherever a network keeps its images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import brickwork
from brickwork.bricks.scores import score_channels
from brickwork.errors import Unsupported


class Laid(nn.Module):
    """The same function with its images along different axes while the middle layer looks at them."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.first, self.middle, self.head = nn.Linear(6, 8), nn.Linear(8, 10), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:  # (images, places, 6)
        x = self.first(x).relu()
        images, places, width = x.shape
        if self.how == "windows":
            x = self.middle(x.reshape(images * 2, places // 2, width)).reshape(images, places, -1)
        elif self.how == "second axis":
            x = self.middle(x.transpose(0, 1)).transpose(0, 1)
        elif self.how == "transposed":  # as nn.MultiheadAttention does, and image after image again
            x = self.middle(x.transpose(0, 1).contiguous().transpose(0, 1).reshape(images * places, width))
            x = x.reshape(images, places, -1)
        elif self.how == "shuffled":
            x = x.reshape(images, 2, places // 2, width).transpose(0, 1).reshape(images * 2, places // 2, width)
            x = self.middle(x).reshape(2, images, places // 2, -1).transpose(0, 1).reshape(images, places, -1)
        else:
            x = self.middle(x)
        return self.head(x.relu().mean(1))


def scores_of(
    how: str, size: int, attribution: str = "taylor", traced: int = 2, images: int = 12
) -> dict[str, np.ndarray]:
    torch.manual_seed(0)
    net = Laid(how).double().eval()
    x, y = torch.randn(12, 4, 6, dtype=torch.float64)[:images], torch.arange(images) % 3
    bp = brickwork.trace(net, x[:traced])
    return score_channels(net, bp, x, y, attribution=attribution, batch_size=size, progress=False).scores


@pytest.mark.parametrize("size", [4, 5, 12])  # of 4: as many images as places
@pytest.mark.parametrize("how", ["windows", "second axis"])
@pytest.mark.parametrize("attribution", ["taylor", "contribution"])
def test_scores_do_not_depend_on_the_layout(attribution, how, size):
    plain, other = (scores_of(each, size, attribution) for each in ("plain", how))
    for name, table in plain.items():
        np.testing.assert_allclose(other[name], table, rtol=1e-12)


@pytest.mark.parametrize("how", ["windows", "second axis", "transposed"])
@pytest.mark.parametrize("attribution", ["taylor", "contribution"])
def test_an_image_that_is_alone_counts_once(attribution, how):
    """A forward copies memory for several images that it need not copy for one: other operations."""
    for options in ({"size": 11}, {"size": 1}, {"size": 5, "images": 1}, {"size": 1, "traced": 3}):
        size, images = options.pop("size"), options.get("images", 12)
        found = scores_of(how, size, attribution, **options)
        for name, table in scores_of("plain", 6, attribution, images=images).items():
            np.testing.assert_allclose(found[name], table, rtol=1e-12)


@pytest.mark.parametrize("traced", [1, 2, 6])
@pytest.mark.parametrize("attribution", ["taylor", "contribution"])
def test_rows_in_an_order_of_their_own_are_refused(attribution, traced):
    with pytest.raises(Unsupported, match="rows of several images"):
        scores_of("shuffled", 6, attribution, traced)


def test_what_images_do_not_reach_is_not_scored():
    class Positions(nn.Module):
        """A layer over a table of places, as relative positions are made; images add to what it says."""

        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(5, 2))
            self.places, self.first, self.head = nn.Linear(2, 7), nn.Linear(6, 7), nn.Linear(7, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head((self.first(x) + self.places(self.table).relu()).mean(1))

    net = Positions().eval()
    x = torch.randn(12, 5, 6)
    found = score_channels(net, brickwork.trace(net, x[:2]), x, torch.arange(12) % 3, progress=False)
    assert all(np.isfinite(table).all() for table in found.scores.values())


def test_a_forward_that_keeps_a_table_from_its_first_run():
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
            self.table: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if self.table is None:
                self.table = torch.arange(x.shape[1], dtype=x.dtype, device=x.device).cos()[:, None]
            return self.head((self.first(x) * self.table).relu().mean(1))

    torch.manual_seed(0)
    net, x = Keeps().eval(), torch.randn(12, 4, 6)
    bp = brickwork.trace(net, x[:2])
    net(x)  # from now on there are fewer operations
    found = score_channels(net, bp, x, torch.arange(12) % 3, batch_size=6, progress=False)
    assert found.scores["first"].sum() > 0
