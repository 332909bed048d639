"""`brickwork study`: the list, the smoke run, and requests that are wrong."""

from __future__ import annotations

import importlib.util
import json

import pytest

from brickwork.errors import UnknownName
from brickwork_lab import lab, studies
from brickwork_lab.commands import _fitting, _shown
from brickwork_lab.studies import new_classes
from brickwork_lab.studies.two_ways import HALF, SAME, THEIRS


def test_the_list_names_every_study(run):
    code, printed, _ = run("study", "--json")
    assert code == 0
    assert [s["name"] for s in json.loads(printed)["studies"]] == studies.names()


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """Trained once for all studies."""
    return str(tmp_path_factory.mktemp("networks"))


SMOKE = {
    "assemble": ["--pick", "A0,A4", "--pick", "all"],
    "compress": [],
    "cut-dependency": [],
    "disassemble": ["--pick", "0", "--pick", "2-4"],
    "distil": ["--pick", "A0-1,B3-4"],
    "increment": [],
    "joining-recipes": ["--pick", "A0-2,B3-4"],
    "lego-ablation": [],
    "new-classes": ["--pick", "9+1"],
    "transfer": [],
    "treat": [],
}


@pytest.mark.parametrize("name", SMOKE)
def test_smoke(name, networks, run, tmp_path):
    out = tmp_path / "rows.json"
    options = [*SMOKE[name], "--device", "cpu", "--out", str(out)]
    if studies.get(name).trains:
        options += ["--networks", networks]
    code, printed, complaint = run("study", name, "--smoke", "--json", *options)
    assert code == 0, complaint
    result = json.loads(printed)
    assert json.loads(out.read_text()) == result and result["complete"]
    assert {"name", "command", "hardware", "date", "rows"} <= result.keys()
    assert all({"what", "paper", "ours", "seed"} <= row.keys() for row in result["rows"])
    by_name = {row["what"]: row for row in result["rows"]}
    assert len(by_name) == len(result["rows"])
    if name == "assemble":
        joined = by_name["digits lenet all, ours, 50% of the multiply-adds"]
        assert joined["flops"] <= 0.5 and joined["ours"] >= joined["whole"] - 2
        assert by_name["digits lenet A0,A4, ours, 50% of the multiply-adds"]["united"] < 1
    if name == "disassemble":
        theirs, same, half = (by_name[f"digits lenet 2-4, {way}"] for way in (THEIRS, SAME, HALF))
        assert half["ours"] >= 98 and same["flops"] <= theirs["flops"]
        assert theirs["original"] <= theirs["whole"]  # among all classes, and among those of the part
        one = by_name["digits lenet 0, ours, 50% of the multiply-adds"]
        assert one["ours"] == 100 and 98 < one["auroc"] <= 100 and "auroc" in one["measure"]
    if name == "compress":
        small = by_name["digits lenet, within 0.5 points"]
        assert small["gone"] > 60 and small["ours"] >= small["whole"] - 2
    if name == "cut-dependency":
        before, _, ours, _ = result["rows"]
        assert ours["coefficient"] < 0.05 < before["coefficient"] and ours["ours"] >= before["ours"] - 2
        assert all(50 < row["auroc_digits:B"] <= 100 and row["aupr_digits:B"] <= 100 for row in result["rows"])
    if name == "new-classes":
        ways = [f"ours: {what}, bias, all base images" for what in ("logits", "a branch")]
        trained, branch = (by_name[f"digits lenet 9+1, {way}"] for way in ways)
        assert trained["ours"] > 92 and trained["new"] == 100 and trained["added"] == 10
        assert {"whole", "whole_base", "time_share", "difference"} <= trained.keys()
        assert branch["ours"] > trained["ours"] - 1 and branch["added"] > 100
        assert by_name[f"digits lenet 9+1, {ways[0]}, as many others"]["ours"] > 80
    if name == "increment":
        assert [row["classes"] for row in result["rows"]] == [5, 5, 5, 7, 7, 7, 9, 9, 9]
    if name == "transfer":
        nothing, matched = (row["ours"] for row in result["rows"][1:3])
        assert nothing < 30 < 90 < matched


def test_new_classes_as_printed(monkeypatch):
    monkeypatch.setitem(lab.SMOKE, "epochs", 3)
    every = new_classes._ways(slice(None), 2)
    assert new_classes.PRINTED in every and new_classes.PRINTED not in new_classes._ways(slice(None), 1)
    ours = f"ours: logits, {new_classes.JOINT}"
    monkeypatch.setattr(new_classes, "_ways", lambda *_: {way: every[way] for way in (new_classes.PRINTED, ours)})
    monkeypatch.setattr(new_classes, "_time_of_training", lambda *_: (1.0, 1.0))
    rows = studies.get("new-classes").run(full=False, device="cpu", progress=False, picks=("8+2",))
    printed, joint = rows
    assert (printed["added"], joint["added"]) == (16, 18)  # no bias
    assert printed["new"] > 85 and printed["ours"] < joint["ours"]  # told apart from each other, not from the known


def test_latency_smoke(run):
    code, printed, complaint = run("study", "latency", "--smoke", "--json", "--device", "cpu")
    assert code == 0, complaint
    assert all(row["part_ms"] > 0 and 0 < row["flops"] < 1 for row in json.loads(printed)["rows"])


def test_families_smoke(run):
    if importlib.util.find_spec("timm") is None:
        pytest.skip("needs the extra timm")
    code, printed, complaint = run("study", "timm-families", "--smoke", "--json", "--device", "cpu")
    assert code == 0, complaint
    rows = {row["what"]: row for row in json.loads(printed)["rows"]}
    assert all(row.get("refused") is None and 0 < row["ours"] < 100 for row in rows.values())
    assert all(row["repaired"] and row["loaded"] and row["onnx"] and "fault" not in row for row in rows.values())
    assert rows["timm: test_resnet"]["ours"] < 30 and rows["timm: test_resnet"]["left_whole"] == 0
    assert 0 < rows["timm: test_nfnet"]["left_whole"] < rows["timm: test_nfnet"]["spaces"]
    code, _, complaint = run("study", "timm-families", "--pick", "nonet")
    assert code == 2 and "no library has a family 'nonet'" in complaint


def test_a_table_leaves_out_what_is_the_same_everywhere_or_too_wide(run):
    rows = [
        {"what": w, "paper": None, "ours": 1.5, "flops": f, "batch": 2, "widths": {"a": 1}}
        for w, f in (("a", 1), ("b", None))
    ]
    lines = _shown(rows).splitlines()
    assert lines == ["what  paper  ours  flops", "a             1.5      1", "b             1.5", "", "batch 2"]
    drawn, left_out = _fitting(rows, ["what", "paper", "ours", "flops"], 18)
    assert left_out == ["flops"] and max(map(len, drawn.splitlines())) <= 18
    assert _fitting(rows, ["what", "ours"], 3)[1] == []  # the least that a row says is shown however wide it is


def test_an_option_a_study_does_not_have(run):
    code, _, complaint = run("study", "latency", "--smoke", "--pick", "A0")
    assert code == 2 and "study latency has no --pick" in complaint
    code, _, complaint = run("study", "assemble", "--smoke", "--pick", "A9")
    assert code == 2 and "A9" in complaint


@pytest.mark.parametrize("wrong", [["study", "asemble"], ["study", "assemble", "--smoke", "--full"]])
def test_wrong_requests(wrong, run):
    code, printed, complaint = run(*wrong)
    assert code == 2
    assert printed == ""
    assert "assemble" in complaint or "--smoke" in complaint


def test_an_unknown_study_is_refused_by_name():
    with pytest.raises(UnknownName, match="did you mean 'assemble'"):
        studies.get("asemble")
