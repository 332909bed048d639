"""Recipes: all mistakes at once and before a tensor is read; a run that failed goes on after its last whole step."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
import torch
import yaml

import brickwork
from brickwork import cli, store, zoo
from brickwork.blueprint.splitting import split
from brickwork.errors import BadFile, BrickworkError, JobFailed, RequestError
from brickwork.transplant import TransplantNet, growth, load_net, recipe_run
from brickwork.transplant.folders import save_net
from brickwork.transplant.recipe import make_recipe, read_recipe
from brickwork.transplant.recipe_run import run_recipe

RECIPE = """
# brickwork transplant run r.yaml --out net
networks:
  dogs: {model: dog, at: pool1}
  cats: {model: cat, at: pool1}
grow:
  - {add: dogs, category: dog, task: classify}
  - {add: cats, category: cat, task: cats}
  - {add: dogs, task: more, learned_on: [cat, dog], data: "digits:0-2@5", steps: 3}
  - {connect: cat, task: classify, way: closed-form}
  - {connect: dog, task: cats, data: "digits:0-2", way: distill, images: 20, steps: 3, layers: 2, seed: 5}
seed: 1
"""


@pytest.fixture
def folder(tmp_path):
    for seed, name in enumerate(("dog", "cat")):
        brickwork.save(zoo.build("lenet", num_classes=3, seed=seed), tmp_path / name)
    (tmp_path / "r.yaml").write_text(RECIPE)
    return tmp_path


def test_a_recipe_runs(folder, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["transplant", "run", str(folder / "r.yaml"), "--out", str(folder / "net"), "--json"])
    out, err = capsys.readouterr()
    assert not caught.value.code, err
    data = json.loads(out)
    assert [route["task"] for route in data["routes"]] == ["classify", "cats", "more", "more", "classify", "cats"]
    assert data["steps"][3]["way"] == "closed-form" and data["steps"][4]["images"] == 20
    assert set(data["steps"][2]["learned"]) == {"cat", "dog"} and "step 5 of 5" in err
    assert not (folder / "net.partial").exists()
    net = load_net(folder / "net")
    for name, task in (("dog", "classify"), ("cat", "cats")):  # as they were: nothing was trained but what is new
        x = torch.rand(2, 3, 32, 32)
        assert torch.equal(net(x, name, task), brickwork.load(folder / name)(x))
    assert net.notes["dog", "cats"]["seed"] == 5
    more = make_recipe(
        {"start": "net", "networks": {"c": {"model": "cat", "at": "pool1"}}, "grow": [{"add": "c", "category": "cow"}]},
        folder,
    )
    again, _ = run_recipe(more, folder / "more")
    assert list(again.categories) == ["dog", "cat", "cow"] and len(again.routes) == 6


def test_a_run_that_fails_goes_on_where_it_was(folder, monkeypatch):
    straight = run_recipe(read_recipe(folder / "r.yaml"), folder / "straight", progress=False)[0]
    calls: list[str] = []
    real = growth.learn_adapter

    def fails_once(*args, **options):
        calls.append(options["options"].way)
        if calls == ["closed-form"]:
            raise JobFailed("the machine went away.")
        return real(*args, **options)

    monkeypatch.setattr(growth, "learn_adapter", fails_once)
    with pytest.raises(JobFailed, match=r"step 4 .*the machine went away\. The 3 before it are kept in .*net\.partial"):
        run_recipe(read_recipe(folder / "r.yaml"), folder / "net", progress=False)
    assert not (folder / "net").exists() and json.loads((folder / "net.partial/progress.json").read_text())["done"] == 3
    assert [p.name for p in (folder / "net.partial").glob("step-*")] == ["step-3"]

    monkeypatch.setattr(recipe_run, "add_learned_task", lambda *args, **options: pytest.fail("learned again"))
    said: list[str] = []
    resumed, notes = run_recipe(read_recipe(folder / "r.yaml"), folder / "net", progress=False, tell=said.append)
    assert calls == ["closed-form", "closed-form", "distill"] and "3 of 5 steps are done already" in said[0]
    assert len(notes) == 5 and not (folder / "net.partial").exists()
    x = torch.rand(2, 3, 32, 32)
    for route in straight.routes:
        assert torch.equal(straight(x, *route), resumed(x, *route)), route


def test_a_checkpoint_of_another_recipe_is_not_used(folder, monkeypatch):
    monkeypatch.setattr(growth, "learn_adapter", lambda *a, **k: (_ for _ in ()).throw(JobFailed("no.")))
    with pytest.raises(JobFailed):
        run_recipe(read_recipe(folder / "r.yaml"), folder / "net", progress=False)
    monkeypatch.undo()
    told = yaml.safe_load(RECIPE)
    said: list[str] = []
    told["grow"][3] = {"connect": "dog", "task": "cats", "way": "closed-form"}  # goes on differently: resumes
    del told["grow"][4]
    run_recipe(make_recipe(told, folder), folder / "one", checkpoint=folder / "net.partial", tell=said.append)
    assert "3 of 4 steps are done already" in said[0]
    with pytest.raises(RequestError, match="where the net is to be written"):
        run_recipe(make_recipe(told, folder), folder / "x", checkpoint=folder / "x")
    (folder / "photos").mkdir()
    (folder / "photos" / "cat.jpg").write_text("precious")
    with pytest.raises(RequestError, match="was not written by Brickwork"):
        run_recipe(make_recipe(told, folder), folder / "x", checkpoint=folder / "photos")


def test_every_mistake_is_told_at_once(folder, monkeypatch):
    monkeypatch.setattr(store, "load", lambda *args, **options: pytest.fail("a tensor was read"))
    told = {
        "seed": -1,
        "grows": [],
        "start": "nowhere",
        "networks": {
            "dogs": {"model": "dog", "at": "pool7"},
            "cats": {"model": "none", "att": "x"},
            "odd": 3,
            "good": {"model": "cat", "at": "pool1", "carry": "conv1"},
        },
        "grow": [
            {"add": "dogs", "category": "dog", "task": "classify"},
            {"add": "cat", "category": "dog", "task": "a/b"},
            {"add": "dogs", "category": "cow", "task": "t", "learned_on": ["sheep"], "steps": 3},
            {"connect": "dog", "task": "clasify", "way": "distil"},
            {"connect": "dog", "task": "classify", "lr": "fast", "data": "nosuch"},
            {"connect": "cow", "task": "classify", "way": "closed-form", "lr": 0.1},
            {"connect": ["dog"], "task": None, "force": "yes"},
            {"swap": "dog"},
            {"add": "dogs"},
        ],
    }
    with pytest.raises(RequestError) as caught:
        make_recipe(told, folder)
    text = str(caught.value)
    for part in (
        "did you mean 'grow'?",
        "seed is -1",
        "nowhere is no transplant net",
        "unknown layer 'pool7'",
        "did you mean 'at'?",
        "none does not exist",
        "network 'odd' is 3",
        "network 'good' carries 'conv1'",
        "step 2: unknown network 'cat'",
        "step 2: there is a category 'dog' already",
        "'a/b' is no name for a task",
        "learned_on and data are for a task",
        "step 3: unknown category 'sheep'",
        "steps is for a task that is learned",
        "step 4: unknown task 'clasify'",
        "did you mean 'distill'?",
        "lr is 'fast'",
        "unknown data set 'nosuch'",
        "step 6: lr is not used by closed-form",
        "unknown category \"['dog']\"",
        "give the task, one of ",
        "force is 'yes'",
        "step 8 says swap",
        "step 9: give the category, the task, or both, a name",
        "step 5: dog reaches classify already",
    ):
        assert part in text, (part, text)
    assert "\n" not in text


def test_what_is_no_recipe(folder):
    for text, message in (("- a", "is a list"), ("grow: 3", "grow is 3"), ("networks: 3\ngrow: []", "networks are 3")):
        (folder / "x.yaml").write_text(text)
        with pytest.raises(RequestError, match=message):
            read_recipe(folder / "x.yaml")
    (folder / "x.yaml").write_text("a: [")
    with pytest.raises(BadFile, match="is not YAML"):
        read_recipe(folder / "x.yaml")
    with pytest.raises(BadFile, match="does not exist"):
        read_recipe(folder / "y.yaml")
    told = yaml.safe_load(RECIPE)
    told["networks"]["idle"] = told["networks"]["dogs"]
    with pytest.raises(RequestError, match="network 'idle' is never added"):
        make_recipe(told, folder)


def test_a_model_folder_cannot_make_a_recipe_import_code(folder, monkeypatch, tmp_path):
    """The cut is tried on the architecture that a folder names; one that names code is not tried."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    config = folder / "dog" / "config.json"
    told = json.loads(config.read_text())
    told["arch"] = "trap:factory"
    config.write_text(json.dumps(told))
    recipe = folder / "trap.yaml"
    recipe.write_text("networks: {dogs: {model: dog, at: pool1}}\ngrow: [{add: dogs, category: dog, task: do}]\n")
    read = read_recipe(recipe)
    assert "trap" not in sys.modules
    with pytest.raises(BrickworkError, match="names code to import"):
        run_recipe(read, folder / "out", progress=False)
    assert "trap" not in sys.modules and not (folder / "out").exists()


def test_what_a_step_was_made_from_may_not_have_changed(tmp_path, monkeypatch):
    """Neither the net that it starts from nor the files of images."""
    brickwork.save(zoo.build("lenet", num_classes=2, seed=0), tmp_path / "dog")

    def start(seed):
        halves = split(zoo.build("lenet", num_classes=2, seed=seed), "pool1")
        save_net(TransplantNet((3, 32, 32)).add(halves, "s", "own"), tmp_path / "start", force=True)

    def pictures(seed):
        drawn = np.random.default_rng(seed)
        images, labels = drawn.integers(0, 255, (8, 32, 32, 3)).astype(np.uint8), np.arange(8) % 2
        np.savez(tmp_path / "set.npz", images=images, labels=labels)

    told = {
        "start": "start",
        "networks": {"dogs": {"model": "dog", "at": "pool1"}},
        "grow": [
            {"add": "dogs", "task": "new", "learned_on": ["s"], "data": "set.npz", "steps": 2},
            {"connect": "s", "task": "new", "way": "closed-form", "force": True},
        ],
    }
    start(5), pictures(0)
    for change in (lambda: start(6), lambda: pictures(1), lambda: None):
        monkeypatch.setattr(growth, "learn_adapter", lambda *a, **k: (_ for _ in ()).throw(JobFailed("no.")))
        with pytest.raises(JobFailed):
            run_recipe(make_recipe(told, tmp_path), tmp_path / "out", progress=False)
        monkeypatch.undo()
        change()
        said: list[str] = []
        net, _ = run_recipe(make_recipe(told, tmp_path), tmp_path / "out", progress=False, tell=said.append)
        x = torch.rand(2, 3, 32, 32)
        assert torch.equal(net(x, "s", "own"), load_net(tmp_path / "start")(x, "s", "own"))
        shutil.rmtree(tmp_path / "out")
    assert "1 of 2 steps are done already" in said[0]  # nothing had changed


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            {"add": "dogs", "task": "new", "data": "digits:0-2@5"},
            "data without learned_on; say on which categories' features",
        ),
        ({"connect": "dog"}, "give the task, one of classify"),
    ],
)
def test_what_is_left_out_is_asked_for(folder, entry, words):
    told = {
        "networks": {"dogs": {"model": "dog", "at": "pool1"}},
        "grow": [{"add": "dogs", "category": "dog", "task": "classify"}, entry],
    }
    with pytest.raises(RequestError, match=words):
        make_recipe(told, folder)
