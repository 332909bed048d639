"""`brickwork info`: channel spaces, counts, and what a cut would remove."""

import json
import sys
from functools import partial

import pytest

import brickwork
from brickwork import zoo
from brickwork.errors import RequestError
from brickwork.model_options import InfoOptions


@pytest.fixture
def run(run):
    """Run `brickwork info …` in this process: (exit code, stdout, stderr)."""
    return partial(run, "info")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of the user's own, with a network that is refused and one that must keep some channels."""
    (tmp_path / "own_net_for_spaces.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Odd(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(4, 5)\n"
        "    def forward(self, x):\n        return self.a(x) if x.sum() >= 0 else -self.a(x)\n"
        "class Stuck(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)\n"
        "    def forward(self, x):\n        return self.b(x + self.a(x))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_net_for_spaces"
    sys.modules.pop("own_net_for_spaces", None)


def test_spaces_in_json(run):
    code, out, _ = run("resnet8", "--arg", "width=8", "--json")
    data = json.loads(out)
    bp = brickwork.trace(zoo.build("resnet8", width=8), zoo.example_input("resnet8"))
    assert code == 0
    assert {s["name"]: s["size"] for s in data["spaces"]} == bp.spaces
    assert set(data["spaces"][0]) == {"name", "size", "made_by", "read_by", "fixed", "why_fixed"}
    assert data["spaces"] == bp.to_dict()["spaces"]
    assert data["macs"] == bp.count().macs and data["activation_bytes"] == bp.count().activation_bytes
    assert "dry_run" not in data and "refused" not in data


@pytest.mark.parametrize("name", ["lenet", "resnet8", "inception_small", "mobilenetv2", "shuffle_small", "vit_small"])
def test_the_counters_agree(run, name):
    data = json.loads(run(name, "--json")[1])
    assert data["flops"] == 2 * data["macs"]


def test_spaces_as_a_table(run):
    code, out, _ = run("lenet")
    assert code == 0
    assert "conv1             6  conv1    conv2\n" in out
    assert "1,116,840 multiply-adds, 90,760 bytes of activations per example" in out


def test_what_must_stay_is_said_with_its_reason(run, own):
    code, out, _ = run(f"{own}:Stuck", "--input", "4")
    assert code == 0 and "must stay" in out
    space = json.loads(run(f"{own}:Stuck", "--input", "4", "--json")[1])["spaces"][0]
    assert space["fixed"] == 4 and space["why_fixed"][0] in out
    code, out, err = run(f"{own}:Stuck", "--input", "4", "--dry-run", f"{space['name']}=0-1")
    assert code == 2 and "must stay" in err and out == ""


def test_a_refused_trace_still_shows_the_rest(run, own):
    code, out, err = run(f"{own}:Odd", "--input", "4")
    assert code == 0 and err == ""
    assert "25 parameters" in out
    line = next(line for line in out.splitlines() if line.startswith("channel spaces: none"))
    assert "depends on the values" in line
    data = json.loads(run(f"{own}:Odd", "--input", "4", "--json")[1])
    assert data["spaces"] is None and "depends on the values" in data["refused"] and data["parameters"] == 25
    code, out, err = run(f"{own}:Odd", "--input", "4", "--dry-run", "classes=0")
    assert code == 2 and "depends on the values" in err and out == ""


def test_dry_run_shows_what_a_cut_would_remove(run):
    code, out, _ = run("lenet", "--dry-run", "conv1=0-3", "--dry-run", "classes=0,2")
    assert code == 0
    assert "space conv1: 4 of 6 channels stay" in out
    assert "conv2.weight  16×6×5×5  →  16×4×5×5" in out
    assert "fc1.weight" not in out
    assert "parameters: 44,726 → 43,094" in out
    assert "nothing was written" in out


def test_dry_run_is_the_cut(run, tmp_path, monkeypatch):
    model = zoo.build("mobilenetv2", num_classes=4, seed=0)
    folder = brickwork.save(model, tmp_path / "m")
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    bp = brickwork.trace(model, zoo.example_input(model))
    name = next(n for n, s in bp.spaces.items() if n != "classes" and not bp.space(n).fixed)
    small = bp.select(model, {name: [0, 1, 5]})
    code, out, _ = run(folder, "--dry-run", f"{name}=0-1,5", "--json")
    cut = json.loads(out)["dry_run"]
    assert code == 0
    assert cut["keep"] == {name: [0, 1, 5]}
    new = {n: list(p.shape) for n, p in small.named_parameters()}
    old = {n: list(p.shape) for n, p in model.named_parameters()}
    assert {t["name"]: t["after"] for t in cut["tensors"]} == {n: s for n, s in new.items() if s != old[n]}
    assert cut["parameters"] == [sum(p.numel() for p in m.parameters()) for m in (model, small)]
    again = brickwork.trace(small, zoo.example_input(model))
    assert cut["macs"][1] == again.count().macs
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("conv1=0-99", "index 6 is out of range for space 'conv1'; it has channels 0 to 5"),
        ("conv11=0", "did you mean 'conv1'?"),
        ("conv1=1,1", "given twice"),
        ("conv1=3-1", "runs backwards"),
        ("conv1=0-99999999", "longer than any space"),
        ("conv1=-1", "SPACE=INDICES"),
        ("conv1=", "SPACE=INDICES"),
        ("conv1", "SPACE=INDICES"),
        ("=3", "SPACE=INDICES"),
        ("conv1=1,,2", "SPACE=INDICES"),
    ],
)
def test_wrong_cuts(run, request_, message):
    code, out, err = run("lenet", "--dry-run", request_)
    assert code == 2 and message in err and out == "" and err.count("\n") == 1


def test_wrong_uses_of_dry_run(run):
    code, _, err = run("--dry-run", "conv1=0")
    assert code == 2 and "needs a model" in err
    code, _, err = run("lenet", "--dry-run", "conv1=0", "--dry-run", "conv1=1")
    assert code == 2 and "given twice" in err


def test_the_channels_of_a_dry_run():
    assert InfoOptions().keep() == {}
    assert InfoOptions(dry_run=["a.b=0 , 2-4", "c=7"]).keep() == {"a.b": [0, 2, 3, 4], "c": [7]}
    with pytest.raises(RequestError, match="SPACE=INDICES"):
        InfoOptions(dry_run=["a=1-"]).keep()


def test_a_brick_says_what_its_cut_said_and_no_line_is_long(run, tmp_path):
    digits = brickwork.data.load("digits:0-2@20", size=8, channels=1)
    net = zoo.build("lenet", num_classes=3, in_channels=1, seed=0)
    _ = brickwork.train(net, digits, epochs=1, device="cpu", progress=False)
    brick = brickwork.disassemble(net, ["0", "1"], digits, keep=0.5, progress=False)
    code, out, _ = run(brick.save(tmp_path / "brick"))
    lines = out.split("\nlayer ")[0].splitlines()
    facts = dict(line.split("  ", 1) for line in lines)
    facts = {name: value.strip() for name, value in facts.items()}
    assert code == 0 and max(map(len, lines)) < 200
    assert facts["arguments"] == "num_classes=3, in_channels=1" and facts["images"].startswith("size 8 8, channels 1")
    assert {name: facts[name] for name, _ in brick.rows()} == dict(brick.rows())
    assert facts["cut from"].startswith("train (epochs 1, ")
