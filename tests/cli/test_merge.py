"""`brickwork merge` with data: every method of the table, the folder it writes, and what is refused before reading."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import torch

import brickwork
from brickwork import data, store, zoo
from brickwork.algebra import merge_on
from brickwork.algebra.data_methods import DATA_METHODS
from brickwork.algebra.methods import registry
from brickwork.cli.merging import METHODS
from brickwork.errors import RequestError
from brickwork.moments import reestimate_batch_norm
from brickwork.origin import attach, origin_of
from brickwork.prediction import predict


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Untrained networks that know the halves of the digits by name, with statistics that fit."""
    where = tmp_path_factory.mktemp("nets")
    for seed, (name, half) in enumerate({"zero": "A", "a": "A", "b": "B"}.items()):
        images = data.load(f"digits:{half}@10", size=16, channels=1)
        net = zoo.build("resnet8", num_classes=5, in_channels=1, width=4, seed=seed)
        net = reestimate_batch_norm(net, [images.tensors("train")[0]])
        prepared = data.load("digits", size=16, channels=1).preprocessing()
        attach(net, replace(origin_of(net), classes=images.classes, preprocessing=prepared))
        brickwork.save(net.eval(), where / name)
    return where


SETS = ["--data", "digits:A@10", "--data", "digits:B@10", "--device", "cpu"]
MORE = {"adamerging": ["--arg", "steps=3"]}


@pytest.mark.parametrize("method", DATA_METHODS)
def test_every_method_writes_a_model_folder(method, folders, tmp_path, run):
    base = ["--base", folders / "zero"] if DATA_METHODS[method].needs_base else []
    more = [*base, *MORE.get(method, []), "--seed", 2, "--images", 30]
    code, out, err = run(
        "merge", folders / "a", folders / "b", "--method", method, *SETS, *more, "--out", tmp_path / "m", "--json"
    )
    assert code == 0, err
    report = json.loads(out)
    assert report["images"] == [30, 30] and report["data"] == ["digits:A@10", "digits:B@10"]
    assert all(0 <= value <= 1 for value in report["test_accuracy"].values())
    config = store.read_config(tmp_path / "m")
    hashes = [store.read_config(folders / name).weights.state_hash for name in "ab"]
    assert list(config.provenance["models"].values()) == hashes
    assert config.provenance["merge"]["method"] == method and config.provenance["seed"] == 2
    assert method in (tmp_path / "m" / "README.md").read_text()
    assert brickwork.load(tmp_path / "m")(torch.zeros(1, 1, 16, 16)).shape == (1, 5)


def test_python_gives_the_same(folders, tmp_path, run):
    code, out, err = run("merge", folders / "a", folders / "b", "--method", "match", *SETS, "--out", tmp_path / "m")
    assert code == 0 and "digits:B@10" in out and "saved in" in out, err
    nets = [brickwork.load(folders / name) for name in "ab"]
    images = [data.load(f"digits:{half}@10", size=16, channels=1).train_images for half in "AB"]
    wanted = merge_on(nets, images, progress=False)
    assert store.state_hash(brickwork.load(tmp_path / "m")) == store.state_hash(wanted)


def test_a_soup_says_what_is_in_it(folders, tmp_path, run):
    code, out, err = run(
        "merge",
        folders / "a",
        folders / "a",
        folders / "b",
        "--method",
        "greedy-soup",
        "--data",
        "digits:A@20",
        "--out",
        tmp_path / "m",
    )
    assert code == 0 and re.search(r"of 3 used: .*; accuracy \d", out), out + err
    assert "the merged network has the names of" in err and "0, 1, 2, 3, 4 stand for 5, 6, 7, 8, 9 of" in err
    code, out, err = run(
        "merge",
        folders / "a",
        folders / "a",
        "--method",
        "greedy_soup",
        "--data",
        "digits:3,1@5",
        "--split",
        "test",
        "--out",
        tmp_path / "n",
        "--json",
    )
    assert code == 0 and "call their outputs" not in err, err
    found = json.loads(out)
    assert found["images"] == [10] and found["split"] == "test"
    net, few = brickwork.load(folders / "a"), data.load("digits:3,1@5", size=16, channels=1, split="test")
    named = torch.tensor([3, 1])[torch.from_numpy(few.test_labels)]  # by name, not by number
    right = (predict(net, few.test_images).argmax(1) == named).double().mean()
    assert found["accuracy"] == pytest.approx(right.item(), abs=1e-6)


def test_the_list_of_methods(run):
    code, out, _ = run("merge", "--json")
    methods = {m["name"]: m for m in json.loads(out)["methods"]}
    assert code == 0 and list(methods) == [*registry(), *DATA_METHODS]
    assert methods["ties"]["base"] and not methods["ties"]["data"] and methods["greedy_soup"]["labels"]
    assert "adamerging" in run("merge")[1] and "base, data" in run("merge")[1]
    starred = dict(re.findall(r"([\w+]+)(\*?)(?=[,;.])", METHODS.replace("on model folders: ", "")))
    needs = {n: m["base"] for n, m in methods.items()}
    assert {n: bool(star) for n, star in starred.items() if n in methods} == needs


def test_what_is_refused_before_anything_is_read(folders, tmp_path, run):
    a, b, x = folders / "a", folders / "b", ["--out", tmp_path / "x"]
    (tmp_path / "r.yaml").write_text("models: [a, b]\nmethod: match\n")
    one = ["--data", "digits:A"]
    for wrong, message in (
        ([a, b, "--method", "match"], "match needs --data, unlabelled images of each model's task, once per model"),
        ([a, b, "--method", "greedy_soup"], "greedy_soup needs --data, labelled images"),
        ([a, b, "--method", "match", *one], "there are 1 for 2 models"),
        ([a, b, "--method", "adamerging", *one], "adamerging needs a base"),
        ([a, b, "--method", "match", *SETS, "--base", b], "match takes no base"),
        ([a, b, "--method", "match", *SETS, "--arg", "rigde=1"], "did you mean 'ridge'"),
        ([a, b, "--method", "match", *SETS, "--arg", "ridge=x"], "ridge is 'x'; it must be a number from 0 up"),
        ([a, b, "--method", "match", *SETS, "--weight", "1"], "weights are [1.0]; there must be 2, all above 0"),
        ([a, b, "--method", "match", *SETS, "--bn", "keep"], "--bn is not used by --method match"),
        ([a, b, "--method", "greedy_soup", *SETS, "--bn", "keep"], "which looks at images; give --arg bn=…"),
        ([a, b, "--method", "fisher", *SETS, "--arg", "seed=1"], "give --seed instead of --arg seed"),
        ([a, b, "--method", "match", *SETS, "--images", "0"], "--images is '0'; it must be 1 or more"),
        ([a, b, "--method", "macth", *SETS], "did you mean 'match'"),
        (
            [a, b, *one, "--heads", "keep"],
            "--heads is not used by --method linear, which looks at weights, with images",
        ),
        ([a, b, "--bn", "batch"], "--bn is batch, which measures statistics on images, and none are given"),
        ([a, b, "--images", "3"], "--images is not used by --method linear"),
        ([a, b, "--images", "2000"], "--images is not used by --method linear"),  # its default, and typed
        ([tmp_path / "r.yaml", "--bn", "linear"], "a recipe says --bn itself; write it there"),
        ([tmp_path / "r.yaml"], "match looks at images; give them as data, which a recipe.yaml has none of"),
        ([tmp_path / "r.yaml", *one], "--data is not used by a recipe"),
        ([a, tmp_path / "no", "--method", "match", *SETS], "does not exist"),
        ([a, b / "model.safetensors", "--method", "match", *SETS], "is a file; a model folder holds"),
        ([a, b, "--method", "match", *one, "--data", "digts"], "did you mean 'digits'"),
        ([a, b, "--method", "greedy_soup", "--data", "digits"], "are neither those of a model"),
        (["--method", "match"], "there is nothing to merge"),
        ([a, "--method", "match", *one], "is that model; give two or more."),
    ):
        code, out, err = run("merge", *wrong, *x)
        assert code == 2 and message in err and out == "" and not (tmp_path / "x").exists(), err
    assert "--out is missing" in run("merge", a)[2]
    code, _, err = run("merge", a, b, "--method", "match", *SETS, "--out", a, "--force")
    assert code == 2 and "is one of the models to merge" in err


def test_each_kind_of_method_names_the_other():
    net = torch.nn.Linear(2, 2)
    with pytest.raises(RequestError, match="match looks at images"):
        brickwork.merge([net], "match")
    for call in (merge_on, lambda nets, data, method: brickwork.merge(nets, method, data=data)):
        with pytest.raises(RequestError, match="data is not used by method linear, which looks at weights alone where"):
            call([net], [torch.zeros(2, 2)], "linear")


def test_images_are_for_the_batch_norms_of_a_merge_by_weights(folders, tmp_path, run):
    """The same weights, and statistics that are those of the merged network's own activations."""
    pair = [folders / "a", folders / "b"]
    sets = ["--data", "digits:A@60", "--data", "digits:B@60", "--device", "cpu"]  # more than one batch
    requests = {"plain": [], "new": sets, "batch": [*sets, "--bn", "batch"], "same": [*sets, "--bn", "linear"]}
    for name, asked in requests.items():
        code, _, err = run("merge", *pair, *asked, "--out", tmp_path / name)
        assert code == 0, err
    state = {name: brickwork.load(tmp_path / name).state_dict() for name in requests}
    changed = {k for k, v in state["new"].items() if not torch.equal(v, state["plain"][k])}
    assert changed == {k for k in state["plain"] if k.endswith(("running_mean", "running_var"))}
    assert all(torch.equal(v, state["plain"][k]) for k, v in state["same"].items())
    assert any(not torch.equal(v, state["new"][k]) for k, v in state["batch"].items())
    merged = brickwork.merge([brickwork.load(p) for p in pair], "linear", data=[torch.rand(50, 1, 16, 16)])
    assert torch.equal(merged.state_dict()["fc.weight"], state["plain"]["fc.weight"])


def test_python_merges_on_images_with_the_options_that_the_method_has():
    nets, images = [torch.nn.Sequential(torch.nn.Linear(4, 3)) for _ in range(2)], [torch.randn(40, 4)] * 2
    one, two, three = (
        brickwork.merge(nets, "fisher", data=images, progress=False, seed=seed)[0].weight for seed in (1, 1, 2)
    )
    assert torch.equal(one, two) and not torch.equal(one, three)  # of Fisher weights, the answers are drawn
    for name, value in {"bn": "keep", "heads": "keep", "seed": 1, "layers": [("*", "ties", {})]}.items():
        with pytest.raises(RequestError, match=f"{name} is not used by match, which looks at images"):
            brickwork.merge(nets, "match", data=images, progress=False, **{name: value})


def test_networks_that_do_not_fit_are_called_by_their_folders(folders, tmp_path, run):
    other = zoo.build("resnet8", num_classes=5, in_channels=1, width=8, seed=0)
    attach(other, replace(origin_of(other), preprocessing=origin_of(brickwork.load(folders / "a")).preprocessing))
    brickwork.save(other.eval(), tmp_path / "wide")
    for more in ([], ["--method", "match", *SETS]):
        code, _, err = run("merge", folders / "a", tmp_path / "wide", *more, "--out", tmp_path / "m")
        assert code == 2 and f"{folders / 'a'} and {tmp_path / 'wide'} are not of one architecture" in err
        assert not (tmp_path / "m").exists()


def test_repair_of_networks_without_batch_norm(folders, tmp_path, run):
    for seed, name in enumerate("ab"):
        net = zoo.build("lenet", num_classes=5, in_channels=1, seed=seed)
        half = data.load(f"digits:{'AB'[seed]}@10", size=16, channels=1)
        attach(net, replace(origin_of(net), classes=half.classes, preprocessing=half.preprocessing()))
        brickwork.save(net.eval(), tmp_path / name)
    nets = [tmp_path / "a", tmp_path / "b"]
    code, out, err = run("merge", *nets, *SETS, "--repair", "--out", tmp_path / "m", "--json")
    assert code == 0 and json.loads(out)["repair"] is True, err
    loaded = [brickwork.load(folder) for folder in nets]
    sets = [data.load(f"digits:{half}@10", size=16, channels=1).train_images for half in "AB"]
    wanted = brickwork.merge(loaded, data=sets, repair=True)
    assert store.state_hash(brickwork.load(tmp_path / "m")) == store.state_hash(wanted)
    (tmp_path / "r.yaml").write_text("models: [a, b]\nrepair: true\n")
    soup = ["--method", "greedy_soup", "--repair", *SETS]
    for wrong, message in (
        ([*nets, "--repair"], "--repair measures responses on images, and none are given; give some (--data)"),
        ([tmp_path / "r.yaml"], "measures responses on images"),
        ([*nets, *soup], "--repair is not used by --method greedy_soup"),
        ([*nets, *SETS, "--arg", "repair=true"], "give --repair instead of --arg repair"),
        ([folders / "a", folders / "b", *SETS, "--repair"], "is for networks without batch norm"),
    ):
        code, _, err = run("merge", *wrong, "--out", tmp_path / "x")
        assert code != 0 and message in err.replace("\n", " "), err


def test_a_search_chooses_on_half_of_the_test_images(folders, tmp_path, run):
    nets = [folders / "a", folders / "b"]
    search = ["--search", "weights=0:1", "--tries", 6, "--seed", 1, "--split", "test", "--curve", tmp_path / "c.svg"]
    code, out, err = run("merge", *nets, *SETS, *search, "--out", tmp_path / "m", "--json")
    assert code == 0, err
    report = json.loads(out)
    halves = [data.load(f"digits:{half}@10", seed=1, split="test", size=16, channels=1) for half in "AB"]
    used, judged = zip(*(data.images.hold_out(half.test_labels, 0.5) for half in halves), strict=True)
    assert report["images"] == [len(part) for part in used] and len(report["tried"]) == 6
    net = brickwork.load(tmp_path / "m")
    for half, part, accuracy in zip(halves, judged, report["test_accuracy"].values(), strict=True):
        right = predict(net, half.test_images[part]).argmax(1).numpy() == half.test_labels[part]
        assert accuracy == pytest.approx(right.mean())
    loaded = [brickwork.load(folder) for folder in nets]
    sets = [(half.test_images[part], half.test_labels[part]) for half, part in zip(halves, used, strict=True)]
    wanted = brickwork.merge(loaded, data=sets, search={"weights": (0, 1)}, tries=6, seed=1)
    assert store.state_hash(net) == store.state_hash(wanted)
    assert "<svg" in (tmp_path / "c.svg").read_text() and report["curve"] == str(tmp_path / "c.svg")
    assert store.read_config(tmp_path / "m").provenance["merge"]["best"] == report["best"]
    few = ["--search", "weights=0:1", "--tries", 2]
    for split, judge in (("train", "accuracy on the test images: "), ("test", "the test images that did not choose: ")):
        code, out, err = run("merge", *nets, *SETS, *few, "--split", split, "--out", tmp_path / split)
        assert code == 0 and "linear after 2 tries: " in out and judge in out, out + err


def test_a_wrong_search_is_refused_before_anything_is_read(folders, tmp_path, run):
    a, b = folders / "a", folders / "b"
    (tmp_path / "r.yaml").write_text("models: [a, b]\n")
    good = ["--search", "weights=0:1"]
    for wrong, message in (
        ([a, b, *good], "--search compares merges on labelled images, and none are given; give some (--data)"),
        ([a, b, *SETS, "--tries", "3"], "--tries is not used without --search"),
        ([a, b, *SETS, "--curve", tmp_path / "c.svg"], "--curve is the picture of a search, and there is none"),
        ([a, b, *SETS, "--search", "weights=1"], "it must be two numbers, the lower first, as in weights=0.1:1"),
        ([a, b, *SETS, "--search", "wieghts=0:1"], "did you mean 'weights'"),
        ([a, b, *SETS, *good, "--weight", "1", "--weight", "1"], "weights is given and looked for (--search)"),
        ([a, b, *SETS, *good, "--method", "ties"], "ties needs a base"),
        ([a, b, *SETS, *good, "--method", "greedy_soup"], "chooses on labelled images by itself"),
        ([a, b, *SETS, *good, "--curve", tmp_path / "c.txt"], "c.txt"),
        ([tmp_path / "r.yaml", *good], "is not used by a recipe"),
    ):
        code, _, err = run("merge", *wrong, "--out", tmp_path / "x")
        assert code == 2 and message in err.replace("\n", " "), err
    assert not (tmp_path / "x").exists() and not (tmp_path / "c.svg").exists()
