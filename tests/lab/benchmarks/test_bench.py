"""`brickwork bench`: the listing, the shape of the answer, verdicts; no time is asserted."""

import importlib.util
import json
from functools import partial

import pytest
import torch

from brickwork.errors import JobFailed, MissingExtra, RequestError, UnknownName
from brickwork_lab import benchmarks
from brickwork_lab.benchmarks import constructs, measure, surgery
from brickwork_lab.benchmarks.registry import Outcome

HAVE_PEER = importlib.util.find_spec("torch_pruning") is not None
needs_peer = pytest.mark.skipif(not HAVE_PEER, reason="torch-pruning (the extra dev) is not installed")
TINY = {"arch": "lenet", "stem": "", "size": 16, "repeat": 1, "separate": False}


@pytest.fixture
def run(run):
    """Run `brickwork bench …` in this process: (exit code, stdout, stderr)."""
    return partial(run, "bench")


def test_bench_alone_lists_them(run):
    code, out, _ = run()
    assert code == 0 and "surgery" in out and "arch=resnet50" in out
    assert {"covlasso", "surgery"} <= {b["name"] for b in json.loads(run("--json")[1])["benchmarks"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["surgry"], "did you mean 'surgery'?"),
        (["surgery", "--arg", "repeats=2"], "did you mean 'repeat'?"),
        (["surgery", "--arg", "repeat=many"], "repeat of benchmark surgery must be int, not 'many'"),
    ],
)
def test_wrong_requests(run, arguments, message):
    code, out, err = run(*arguments)
    assert code == 2 and message in err and out == ""


@needs_peer
@pytest.mark.filterwarnings("ignore")
def test_surgery_on_a_tiny_network(run, monkeypatch):
    monkeypatch.setattr(surgery, "CONSTRUCTS", {"plain": constructs.CONSTRUCTS["plain"]})
    options = [f"--arg={k}={json.dumps(v) if k != 'stem' else v}" for k, v in TINY.items()]
    options = [o.replace('"', "") for o in options]
    code, out, err = run("surgery", *options, "--json")
    assert code == 0, err
    data = json.loads(out)
    assert set(data) == {"name", "rows", "ratios", "constructs"}
    assert [row["who"] for row in data["rows"]] == ["brickwork", "torch-pruning"]
    for row in data["rows"]:
        assert row["cpu_s"] > 0 and row["wall_s"] > 0 and row["peak_mb"] > 0
        assert row["error"] < 1e-10
    assert set(data["ratios"]) == {f"torch-pruning / brickwork: {c}" for c in ("cpu_s", "wall_s", "peak_mb")}
    assert data["constructs"][0]["brickwork"] == "exact"
    code, out, _ = run("surgery", *options)
    assert code == 0 and "peer ÷ ours" in out


def test_without_the_peer_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"\.\[dev\]"):
        surgery.surgery(**TINY)


def test_zero_repeats_are_refused():
    if HAVE_PEER:
        with pytest.raises(RequestError, match="repeat must be 1 or more, not 0"):
            surgery.surgery(repeat=0)


@needs_peer
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", constructs.CONSTRUCTS)
def test_ours_is_never_wrong_on_a_construct(name):
    row = surgery.judge(name)
    assert row["brickwork"] in ("exact", "refuses"), row
    assert row["torch-pruning"] in ("exact", "refuses", "crashes", "silently wrong"), row


def test_every_construct_runs_and_loses_channels():
    for name, build in constructs.CONSTRUCTS.items():
        made = build().double()(constructs.example(name))
        made = made[0] if isinstance(made, tuple) else made
        assert made.shape == (2, 5), name


def test_verdicts():
    x, whole = torch.ones(1, 3), torch.nn.Hardtanh(0, 0.1)
    same, other = torch.nn.Identity(), torch.nn.Hardtanh(0, 0.5)

    def fails():
        raise KeyError("conv1")

    def refuses():
        raise RequestError("no")

    assert surgery._verdict(refuses, x, whole) == ("refuses", "no")
    assert surgery._verdict(fails, x, whole) == ("crashes", "while cutting: KeyError: 'conv1'")
    assert surgery._verdict(lambda: (same, same), x, whole) == ("exact", "differs by 0.0e+00")
    assert surgery._verdict(lambda: (other, same), x, whole)[0] == "silently wrong"
    assert surgery._verdict(lambda: (torch.nn.Linear(5, 3), same), x, whole)[0] == "crashes"
    assert surgery._verdict(lambda: (same, same), x, same) == ("crashes", "nothing was removed")


def test_measuring_here_and_apart():
    here = measure.in_turn({"us": "brickwork_lab.benchmarks.measure:_busy"}, {"rounds": 10}, repeat=2, separate=False)
    apart = measure.in_turn({"us": "brickwork_lab.benchmarks.measure:_busy"}, {"rounds": 10}, repeat=1)
    for row in (*here, *apart):
        assert row["total"] == 45 and row["wall_s"] >= 0 and row["peak_mb"] > 1
    with pytest.raises(JobFailed, match="TypeError"):
        measure.apart("brickwork_lab.benchmarks.measure:_busy", {"turns": 3})


def test_contenders_take_turns(monkeypatch):
    order = []

    def note(contender, arguments):
        order.append(contender)
        return {"cpu_s": float(len(order)), "wall_s": 2.0, "peak_mb": 4.0}

    monkeypatch.setattr(measure, "apart", note)
    rows = measure.in_turn({"us": "a", "them": "b"}, {}, repeat=3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert [row["cpu_s"] for row in rows] == [4.0, 3.0]
    assert measure.ratios(rows, "us", ("cpu_s", "wall_s")) == {"them / us: cpu_s": 0.75, "them / us: wall_s": 1.0}


def test_the_registry():
    with pytest.raises(ValueError, match="two benchmarks"):
        benchmarks.benchmark("surgery", help="again")(lambda: Outcome([], {}))
    with pytest.raises(UnknownName, match="surgery"):
        benchmarks.find("surgeries")


@needs_peer
@pytest.mark.filterwarnings("ignore")
def test_disassemble_on_a_tiny_network(run):
    options = {"arch": "lenet", "images": 20, "repeat": 1, "separate": "false"}
    code, out, err = run("disassemble", *[f"--arg={k}={v}" for k, v in options.items()], "--json")
    assert code == 0, err
    rows = json.loads(out)["rows"]
    assert len(rows) == 3 and all(0 < row["parameters"] < 1 and row["latency_s"] > 0 for row in rows)


@needs_peer
@pytest.mark.parametrize(("option", "message"), [("keep=2.0", "keep must be"), ("images=0", "images must be")])
def test_disassemble_refuses(run, option, message):
    code, out, err = run("disassemble", "--arg", option)
    assert code == 2 and message in err and out == ""


def test_what_is_found_after_the_clock_stopped():
    cost = measure.measured(lambda: lambda: {"late": 1.0})
    assert cost["late"] == 1.0 and cost["cpu_s"] >= 0


def test_merge_on_tiny_files(run):
    options = {"layers": 1, "width": 8, "words": 11, "repeat": 1}
    code, out, err = run("merge", *[f"--arg={k}={v}" for k, v in options.items()], "--json")
    assert code == 0, err
    rows = {(r["who"], r["method"]): r for r in json.loads(out)["rows"]}
    assert set(rows) == {("brickwork", "linear"), ("brickwork", "ties"), ("cp", "copy")}
    assert all(row["cpu_s"] >= 0 and row["wall_s"] > 0 for row in rows.values())
    code, _, err = run("merge", "--arg", "peer=/nowhere")
    assert code == 2 and "there is no /nowhere/mergekit-yaml" in err


def test_sweep_on_a_tiny_network(run):
    options = {"arch": "lenet", "side": 2, "images": 20, "repeat": 1, "separate": "false"}
    code, out, err = run("sweep", *[f"--arg={k}={v}" for k, v in options.items()], "--device", "cpu", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert [(row["arch"], row["who"]) for row in found["rows"]] == [("lenet", "brickwork"), ("lenet", "plain loop")]
    assert "lenet: plain loop / brickwork: wall_s" in found["ratios"]


@pytest.mark.parametrize(
    ("option", "message"), [("side=0", "must be 1 or more"), ("arch=lenett", "did you mean 'lenet'")]
)
def test_sweep_refuses(run, option, message):
    code, out, err = run("sweep", "--arg", option)
    assert code == 2 and message in err and out == ""


def test_a_device_only_where_there_is_a_choice(run):
    code, _, err = run("merge", "--device", "cpu")
    assert code == 2 and "unknown option of benchmark merge 'device'" in err
