"""`brickwork pool` from the command line: tasks come and go, wrong requests write nothing."""

import json

import pytest
import torch

import brickwork
from brickwork import cli, data, zoo
from brickwork.errors import RequestError
from brickwork.pools import PoolFolder
from brickwork.training import train

QUICK = ["--epochs", "2", "--batch-size", "20", "--device", "cpu"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """first: a network of three digits; tuned: on three others; pool: from the first, with task `b`."""
    root = tmp_path_factory.mktemp("pools")
    first, second = (data.load(spec, size=8, channels=1) for spec in ("digits:0-2@30", "digits:3-5@30"))
    model = zoo.build("resnet8", num_classes=3, in_channels=1, width=4, seed=0)
    for name, images in (("first", first), ("tuned", second)):
        train(
            model,
            images.train_images,
            images.train_labels,
            classes=images.classes,
            epochs=3,
            lr=0.1,
            batch_size=20,
            device="cpu",
            progress=False,
        )
        brickwork.save(model, root / name)
    for call in (
        ["cluster", "first", "--out", "pool", "--size", "24"],
        ["learn", "pool", "--name", "b", "--data", "digits:3-5@30", "--lr", "0.1", *QUICK],
    ):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as caught:
            patch.chdir(root)
            cli.main(["pool", *call])
        assert not caught.value.code
    return root


@pytest.fixture
def run(run, root, monkeypatch):
    """Run `brickwork pool …` among the folders: (exit code, what it said on stdout or stderr)."""
    monkeypatch.chdir(root)

    def call(*arguments):
        code, out, err = run("pool", *arguments)
        return code, err if code else out

    return call


def test_a_task_from_learning_to_a_model_folder(run, root, tmp_path):
    code, said = run("eval", "pool", "--name", "b", "--data", "digits:3-5", "--json", "--device", "cpu")
    judged = json.loads(said)
    assert code == 0 and judged["images"] > 0
    code, _ = run("rebuild", "pool", "--name", "b", "--out", tmp_path / "b")
    assert code == 0
    x = torch.randn(3, 1, 8, 8)
    folder = PoolFolder.open(root / "pool")
    assert torch.equal(brickwork.load(tmp_path / "b")(x), folder.rebuild("b")(x))
    assert judged["bytes"] == folder.bytes("b")


def test_encode_start_budget_and_remove(run, root):
    code, said = run(
        "encode", "pool", "--name", "c", "--model", "tuned", "--data", "digits:3-5@30", "--json", "--device", "cpu"
    )
    report = json.loads(said)
    assert code == 0 and report["test_accuracy"] > 0.6 and report["relative_to"] in ("base", None)
    code, said = run(
        "learn",
        "pool",
        "--name",
        "d",
        "--data",
        "digits:3-5@30",
        "--start",
        "best",
        "--budget",
        "3K",
        "--bits",
        "12",
        "--fold",
        "--json",
        *QUICK,
    )
    assert code == 0 and json.loads(said)["bytes"] <= 3000
    assert run("rm", "pool", "--name", "d")[0] == 0 and run("rm", "pool", "--name", "c")[0] == 0
    code, said = run("info", "pool", "--json")
    told = json.loads(said)
    assert code == 0 and [task["name"] for task in told["tasks"]] == ["b"]
    assert told["total_bytes"] == told["bytes"] + told["tasks"][0]["bytes"]
    assert "changed" in run("info", "pool", "--name", "b")[1]


def test_what_changed_is_told_against_the_task_that_is_named(run, root, tmp_path):
    """The file of `e` is relative to another task than the one it started from: a chain would be too long."""
    pool = tmp_path / "pool"
    assert run("cluster", "first", "--out", pool, "--size", "24")[0] == 0
    reports = {}
    for name, start, seed in (("c", "base", 0), ("d", "c", 1), ("e", "d", 2)):
        call = ["learn", pool, "--name", name, "--start", start, "--seed", seed, "--data", "digits:3-5@30"]
        code, said = run(*map(str, call), "--lr", "0.1" if name == "d" else "0.001", "--stay", "0.1", "--json", *QUICK)
        assert code == 0
        reports[name] = json.loads(said)
    assert reports["d"]["relative_to"] == "c" and reports["e"]["relative_to"] != "d"
    folder = PoolFolder.open(pool)
    for name, report in reports.items():
        task, other = folder.task(name), report["relative_to"]
        wanted = None if other is None else task.changed(folder.task(other))
        assert report["changed"] == wanted, name


def test_the_best_start_is_drawn_with_the_seed_that_is_given(run, monkeypatch):
    seen = {}

    def ranked(pool, tasks, images, labels, **options):
        seen.update(options)
        raise RequestError("ranked")

    monkeypatch.setattr("brickwork.pools.rank_starts", ranked)
    call = ("learn", "pool", "--name", "x", "--data", "digits:3-5@30", "--start", "best", "--seed", "7", *QUICK)
    assert "ranked" in run(*call)[1] and seen["seed"] == 7


def test_a_pool_grows_and_gives_back(run, root, tmp_path):
    """From one network and few kernels: tasks bring what is missing, and earlier ones stay as they are."""
    pool = tmp_path / "pool"
    assert run("cluster", "first", "--out", pool, "--size", "6")[0] == 0
    code, said = run("learn", pool, "--name", "b", "--data", "digits:3-5@30", "--json", *QUICK)
    first = json.loads(said)
    assert code == 0 and first["pool_grew"] == {"kernels": 0, "bytes": 0}
    x = torch.randn(2, 1, 8, 8)
    logits, data = PoolFolder.open(pool).rebuild("b")(x), (pool / "tasks" / "b.task").read_bytes()
    code, said = run(
        "learn",
        pool,
        "--name",
        "c",
        "--data",
        "digits:3-5@30",
        "--grow",
        "8",
        "--grow-bytes",
        "0.9K",
        "--free",
        "0.5",
        "--json",
        *QUICK,
    )
    second = json.loads(said)
    assert code == 0 and second["free"] == 0.5
    assert second["pool_grew"]["kernels"] > 0 and 0 < second["pool_grew"]["bytes"] <= 900
    code, said = run(
        "encode", pool, "--name", "d", "--model", "tuned", "--data", "digits:3-5@30", "--grow", "4", "--device", "cpu"
    )
    assert code == 0 and "the pool grew by" in said
    told = json.loads(run("info", pool, "--json")[1])
    assert [growth["tasks"] for growth in told["grown"]][1] == ["d"] and "c" in told["grown"][0]["tasks"]
    assert told["bytes"] == sum(p.stat().st_size for p in pool.glob("*.*") if p.name != ".lock")
    assert told["total_bytes"] == told["bytes"] + sum(task["bytes"] for task in told["tasks"])
    assert "grown by" in run("info", pool)[1]
    assert (pool / "tasks" / "b.task").read_bytes() == data
    assert torch.equal(PoolFolder.open(pool).rebuild("b")(x), logits)
    code, said = run("rm", pool, "--name", "d", "--trim", "--json")
    assert code == 0 and json.loads(said)["trimmed_bytes"] == told["grown"][1]["bytes"]
    assert len(PoolFolder.open(pool).pool.grown) == 1 and run("show", pool, "--out", tmp_path / "page.html")[0] == 0


@pytest.mark.parametrize(
    ("head", "said"),
    [("last", "unknown layer 'last'"), ("conv4.0", "'conv4.0' has 32 outputs, and the network 3 class names")],
)
def test_a_head_that_is_none_is_refused(run, tmp_path, head, said):
    code, told = run("cluster", "first", "--out", str(tmp_path / "pool"), "--head", head)
    assert code == 2 and said in told and not (tmp_path / "pool").exists()


def test_pretrain_and_small_pools_say_so(run, root, tmp_path, capsys):
    code, said = run(
        "pretrain", "first", "--data", "digits:0-2@30", "--out", tmp_path / "pool", "--size", "50", "--json", *QUICK
    )
    report = json.loads(said)
    assert code == 0 and report["made"] == "pretrain" and report["short"]["conv1.0"] == 4
    assert PoolFolder.open(tmp_path / "pool").tasks == []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (["learn", "pool", "--name", "z"], "--data is missing"),
        (["learn", "pool", "--data", "digits"], "--name is missing"),
        (["learn", "pool", "--name", "b", "--data", "digits"], "exists already"),
        (["learn", "pool", "--name", "z", "--data", "digits", "--start", "bb"], "unknown start 'bb'"),
        (["learn", "pool", "--name", "z", "--data", "digits", "--stay", "-1"], "--stay is '-1'; it must be 0 or more"),
        (["learn", "pool", "--name", "z", "--data", "digits", "--budget", "much"], "--budget: a size is 'much'"),
        (["learn", "pool", "--name", "z", "--data", "digits", "--size", "4"], "no such option '--size'"),
        (["learn", "pool", "--name", "z", "--data", "digits", "--grow", "0"], "--grow is '0'; it must be 1 or more"),
        (
            ["learn", "pool", "--name", "z", "--data", "digits", "--grow-bytes", "2K"],
            "--grow-bytes is 2000, and --grow, kernels per layer at most, is not given",
        ),
        (
            ["learn", "pool", "--name", "z", "--data", "digits", "--grow", "4", "--grow-bytes", "x"],
            "--grow-bytes: a size is 'x'",
        ),
        (
            ["learn", "pool", "--name", "z", "--data", "digits", "--free", "1"],
            "--free is '1'; it must be 0 or more and below 1",
        ),
        (["eval", "pool", "--name", "b", "--data", "digits", "--grow", "4"], "no such option '--grow'"),
        (["learn", "nowhere", "--name", "z", "--data", "digits"], "no pool.json"),
        (["encode", "pool", "--name", "z", "--model", "first"], "--metric gram needs --data"),
        (["encode", "pool", "--name", "z", "--data", "digits"], "--model is missing"),
        (["eval", "pool", "--name", "z", "--data", "digits"], "unknown task 'z'"),
        (["eval", "pool", "--name", "b", "--data", "digits"], "does not know"),
        (["cluster", "first"], "--out is missing"),
        (["cluster", "first", "--out", "pool"], "exists already"),
        (["cluster", "first", "--out", "new", "--size", "0"], "--size is '0'"),
        (["pretrain", "first", "tuned", "--data", "digits", "--out", "new"], "unexpected extra argument (tuned)"),
        (["pretrain", "first", "--out", "new"], "--data is missing"),
        (["rm", "pool", "--name", "z"], "unknown task 'z'"),
        (["rebuild", "pool", "--name", "b", "--out", "first"], "exists already"),
    ],
    ids=lambda value: "-".join(value).replace("/", "") if isinstance(value, list) else "",
)
def test_wrong_requests_write_nothing(run, root, call, said):
    before = sorted(str(p) for p in root.rglob("*"))
    code, message = run(*call, *(["--device", "cpu"] if call[0] in ("learn", "eval") else []))
    assert code == 2 and said in message, message
    assert sorted(str(p) for p in root.rglob("*")) == before
