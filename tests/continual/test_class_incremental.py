"""Where the task of an image is not known: all classes compete; and the methods that are made for it."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from brickwork import continual
from brickwork.continual.bench import Bench
from brickwork.continual.options import ContinualOptions
from brickwork.continual.registry import make
from brickwork.continual.running import run_method
from brickwork.data.pixels import as_input
from brickwork.data.streamed import StreamedImages
from brickwork.errors import BadData, RequestError
from brickwork.moments import Moments, solve_ridge
from brickwork.moments.readout import read_features
from brickwork.origin import origin_of
from brickwork.prediction import predict
from brickwork.store.weights import read_safetensors

OPTIONS = {"epochs": 2, "batch_size": 16, "protocol": "class"}


@pytest.fixture(scope="module")
def ran(scenario, start, tmp_path_factory):
    def get(name, scenario=scenario, **more):
        folder, options = tmp_path_factory.mktemp("run"), ContinualOptions(**{**OPTIONS, **more})
        bench = Bench(scenario, start, folder, torch.device("cpu"), options)
        method = make(name)[1]
        return bench, method, run_method(name, method, bench)

    return get


@pytest.mark.parametrize("name", ["finetune", "sequential", "ncm"])
def test_classes_of_all_tasks_compete(ran, scenario, name):
    bench, method, result = ran(name)
    last = len(scenario) - 1
    networks = [method.network(bench, k, last) for k in range(last + 1)]
    for j, task in enumerate(scenario.tasks):
        logits = torch.cat([predict(net, task.test_images) for net in networks], 1)
        first = sum(len(t.classes) for t in scenario.tasks[:j])
        right = (logits.argmax(1).numpy() == task.test_labels + first).mean()
        assert result.matrix[last, j] == pytest.approx(right, abs=1e-12)
    assert result.among_all and "mean over the steps" in str(result)
    steps = [result.matrix[i, : i + 1].mean() for i in range(last + 1)]
    assert result.incremental_accuracy == pytest.approx(np.mean(steps))


def test_with_one_task_both_protocols_are_the_same(ran, scenario):
    one = continual.Scenario("one", scenario.tasks[:1])
    assert ran("ncm", one)[2].matrix[0, 0] == ran("ncm", one, protocol="task")[2].matrix[0, 0]


def test_the_nearest_mean_is_the_answer(ran, scenario, start):
    bench, method, _ = ran("ncm")
    net = method.network(bench, 1, 2)
    task, trunk = scenario.tasks[1], bench.trunk()
    train, test = (read_features(trunk, bench.head, x) for x in (task.train_images, task.test_images))
    means = torch.stack([train[torch.as_tensor(task.train_labels) == k].mean(0) for k in range(2)])
    assert torch.equal(predict(net, task.test_images).argmax(1), torch.cdist(test, means).argmin(1))


def test_sums_of_task_after_task_are_the_sums_of_all_at_once(ran, scenario):
    """The last layer of `ranpac` is ridge regression on all images, whatever the order in which they came."""
    bench, method, _ = ran("ranpac(width=40)")
    stored = read_safetensors(method.file(bench, 2))
    x = torch.cat([method.projected(bench, method.features(bench, task).float()) for task in scenario.tasks]).double()
    labels = torch.cat([torch.as_tensor(task.train_labels) + 2 * k for k, task in enumerate(scenario.tasks)])
    target = torch.nn.functional.one_hot(labels, 6).double()
    fit = solve_ridge(Moments.empty(40, 6).add(x, target), ridge=float(stored["ridge"]))
    for number in range(3):
        task = scenario.tasks[number]
        seen = method.projected(bench, read_features(bench.trunk(), bench.head, task.test_images).float()).double()
        wanted = (seen @ fit.weight + fit.bias)[:, 2 * number : 2 * number + 2]
        answers = predict(method.network(bench, number, 2), task.test_images).double()
        assert (answers - wanted).abs().max() < 1e-3  # the sums are stored in float32


def test_a_wider_projection_needs_no_training_and_beats_separate_networks(ran):
    assert ran("ranpac(width=200)")[2].average_accuracy > ran("finetune")[2].average_accuracy + 0.1


def test_replay_stores_some_images_of_every_class(ran, scenario):
    bench, method, result = ran("replay(stored=5)")
    stored = read_safetensors(method.file(bench, 2))
    assert stored["images"].shape == (30, 8, 8, 1) and stored["images"].dtype == torch.uint8
    assert torch.bincount(stored["labels"]).tolist() == [5] * 6
    assert result.curve[-1] == method.file(bench, 2).stat().st_size  # images count, too
    assert not method.file(bench, 1).exists()


def test_derpp_stores_what_was_answered_when_an_image_was_stored(ran, scenario):
    bench, method, _ = ran("derpp(stored=5)")
    stored = read_safetensors(method.file(bench, 2))
    assert stored["answers"].shape == (30, 6)
    last = slice(20, 30)  # of the task that was just learned: the network itself
    given = predict(method.whole(bench, 2), stored["images"][last])
    torch.testing.assert_close(stored["answers"][last], given, rtol=1e-5, atol=1e-5)
    unknown = torch.isnan(stored["answers"])
    assert unknown[:10, 2:].all() and unknown[10:20, 4:].all() and unknown.sum() == 10 * 4 + 10 * 2
    held, forgets = (ran(f"derpp(alpha={a}, beta={a})", epochs=8)[2].matrix[2, 0] for a in (1, 0))
    assert held > forgets + 0.3  # without its two terms the first task is gone


def test_without_their_penalty_both_are_the_same_plain_training(ran):
    states = [
        method.whole(bench, 2).state_dict() for bench, method, _ in map(ran, ("lwf(strength=0)", "ewc(strength=0)"))
    ]
    for name, value in states[0].items():
        torch.testing.assert_close(value, states[1][name])


def test_lwf_keeps_nearer_to_what_it_answered(ran, scenario):
    seen = scenario.tasks[1].train_images
    first = ran("lwf", continual.Scenario("one", scenario.tasks[:1]), epochs=4)
    before = predict(first[1].network(first[0], 0, 0), seen).softmax(1)
    far = {}
    for name in ("lwf(strength=0)", "lwf(strength=3)"):
        bench, method, _ = ran(name, continual.Scenario("two", scenario.tasks[:2]), epochs=4)
        far[name] = float((predict(method.network(bench, 0, 1), seen).softmax(1) - before).abs().mean())
    assert far["lwf(strength=3)"] < 0.5 * far["lwf(strength=0)"]


class Told(nn.Module):
    """Answers as transformers' networks do."""

    def __init__(self, classes=4):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU())
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        return {"logits": self.head(self.body(x))}


@pytest.mark.parametrize("name", ["derpp", "lwf", "ewc(seen=4)"])
def test_other_precisions_and_answers_by_name(scenario, tmp_path, name):
    two = continual.Scenario("two", scenario.tasks[:2])
    torch.manual_seed(0)
    told = {"epochs": 1, "device": "cpu", "progress": False, "protocol": "class"}
    assert continual.run(two, name, Told().double(), out=tmp_path, **told).results[name].matrix.shape == (2, 2)


def test_ewc_holds_what_mattered(ran, scenario):
    """The weights that mattered most to the first task move least; what is stored is the mean square of single gradients."""
    one = continual.Scenario("one", scenario.tasks[:1])
    bench, method, _ = ran("ewc(seen=3)", one)
    stored, net = read_safetensors(method.file(bench, 0)), method.whole(bench, 0)
    name, weight = next(iter(net.named_parameters()))
    task = scenario.tasks[0]
    some = np.sort(np.random.default_rng([bench.seed_of(0), 8]).permutation(len(task.train_labels))[:3])
    inputs = as_input(task.train_images[some], origin_of(net).preprocessing)
    wanted = 0
    for k in range(3):
        loss = nn.functional.cross_entropy(net(inputs[k : k + 1]), torch.tensor(task.train_labels[some[k : k + 1]]))
        wanted = wanted + torch.autograd.grad(loss, weight)[0].square() / 3
    torch.testing.assert_close(stored[f"fisher.{name}"], wanted, rtol=1e-4, atol=1e-9)
    bench, method, _ = ran("ewc", one)
    before = read_safetensors(method.file(bench, 0))
    moved = {}
    for strength in (0, 1e6):
        bench, method, _ = ran(f"ewc(strength={strength:g})", continual.Scenario("two", scenario.tasks[:2]))
        after = read_safetensors(method.file(bench, 1))
        far = (after[f"network.{name}"] - before[f"network.{name}"]).square()
        moved[strength] = float((before[f"fisher.{name}"] * far).sum())
    assert moved[1e6] < 0.2 * moved[0]


def test_a_journal_of_the_other_protocol_is_refused(scenario, start, tmp_path):
    one = {"methods": "ncm", "start": start, "out": tmp_path, "device": "cpu", "progress": False}
    assert "the task of an image is not known" in str(continual.run(scenario, **one, protocol="class"))
    with pytest.raises(RequestError, match="other protocol"):
        continual.run(scenario, **one, protocol="task")


def test_a_journal_of_before_there_was_a_protocol_was_judged_by_task(scenario, start, tmp_path):
    one = {"methods": "ncm", "start": start, "out": tmp_path, "device": "cpu", "progress": False}
    continual.run(scenario, **one)
    path = tmp_path / "ncm" / "journal.json"
    journal = json.loads(path.read_text())
    del journal["facts"]["protocol"]
    path.write_text(json.dumps(journal))
    with pytest.raises(RequestError, match="other protocol"):
        continual.run(scenario, **one, protocol="class")
    continual.run(scenario, **one)


@pytest.mark.parametrize("name", ["ncm", "ranpac(width=40)"])
def test_a_start_of_another_precision_is_taken(scenario, start, name):
    results = [
        continual.run(scenario, name, net, device="cpu", progress=False, protocol="class").results[name]
        for net in (start, copy.deepcopy(start).double())
    ]
    assert np.nanmax(np.abs(results[0].matrix - results[1].matrix)) < 0.05


def test_a_class_without_training_images_has_no_mean(scenario, start):
    task = scenario.tasks[0]
    own = task.train_labels != 1
    parts = {"train_images": task.train_images[own], "train_labels": task.train_labels[own], "train_masks": None}
    with pytest.raises(BadData, match=f"no training images of '{task.classes[1]}'"):
        continual.run(continual.Scenario("one", (replace(task, **parts),)), "ncm", start, device="cpu", progress=False)


def test_replay_takes_images_that_are_read_when_wanted(ran, scenario):
    def unread(images):
        return StreamedImages(lambda index: images[index], np.arange(len(images)), images.shape[1:])

    tasks = tuple(replace(t, train_images=unread(t.train_images), train_masks=None) for t in scenario.tasks[:2])
    read, kept = (ran("replay", continual.Scenario("two", some), epochs=1)[2] for some in (tasks, scenario.tasks[:2]))
    assert np.array_equal(read.matrix, kept.matrix, equal_nan=True)


class Tokens(nn.Module):
    """The head reads every place of an image, and the mean of its answers is the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(1, 12, 4, stride=2), nn.Linear(12, 4)

    def forward(self, x):
        return self.head(self.body(x).relu().flatten(2).mT).mean(1)


def test_random_features_are_of_the_same_mean_over_places_in_learning_and_answering(scenario, tmp_path):
    torch.manual_seed(0)
    bench = Bench(scenario, Tokens().eval(), tmp_path, torch.device("cpu"), ContinualOptions(**OPTIONS))
    _, method = make("ranpac(width=40)")
    run_method("ranpac", method, bench)
    task, layer = scenario.tasks[2], method.last_layer(bench, 2, slice(4, 6))
    wanted = layer(method.features(bench, task).float())
    found = predict(method.network(bench, 2, 2), task.train_images)
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)
