"""What routes share, on digits; the public network needs a file that is not here."""

from __future__ import annotations

import pytest

from brickwork.errors import RequestError, UnknownName
from brickwork_lab import studies
from brickwork_lab.studies.pictures import draw_heat


@pytest.fixture(scope="module")
def rows():
    found = list(studies.get("route-sharing").run(full=False, device="cpu", progress=False))
    return {row["what"]: row for row in found}


def test_every_layer_has_what_two_classes_share(rows):
    shared = {what.split(": ")[0]: row for what, row in rows.items() if "shared by" in what}
    assert list(shared) == [f"lenet, {layer}" for layer in ("conv1", "conv2", "fc1", "fc2", "classes")]
    assert shared["lenet, classes"]["ours"] == shared["lenet, classes"]["at_most"] == 0
    assert all(row["ours"] <= row["at_most"] <= 100 for row in shared.values())
    assert all(row["paper"] is None for row in rows.values())  # its numbers are of other images


def test_channels_of_a_layer_are_counted_once(rows):
    for layer in ("conv2", "fc2"):
        row = rows[f"lenet, {layer}: channels on the route of one class alone"]
        assert sum(row[name] for name in ("ours", "two", "more", "none")) == pytest.approx(100, abs=0.05)
        assert 0 < row["half_of_score"] < 50 and 0 < row["per_class"] < 100


def test_other_networks_are_refused_and_a_missing_file_is_named(tmp_path):
    with pytest.raises(UnknownName, match="'vgg17'"):
        list(studies.get("route-sharing").run(full=False, device="cpu", progress=False, archs=("vgg17",)))
    with pytest.raises(RequestError, match="vgg16_cifar10"):
        study = studies.get("route-sharing")
        list(study.run(full=False, device="cpu", progress=False, archs=("public-vgg16",), networks=str(tmp_path)))


def test_a_heat_map_has_a_line_for_every_class():
    drawing = draw_heat("Two", "", {"net, fc: x": {"cat": "aj", "dog": "ja"}})
    assert {"cat", "dog", "net, fc"} <= {mark.text for mark in drawing.marks if hasattr(mark, "text")}
