"""Joint fine-tuning: what is trained changes, what is not stays bit for bit, and the net given is left as it is."""

from __future__ import annotations

import copy

import pytest
import torch

from brickwork import data, zoo
from brickwork.blueprint.splitting import split
from brickwork.errors import RequestError, UnknownName
from brickwork.training import train
from brickwork.transplant import Adapter, TransplantNet, load_net, save_net, tune

IMAGE = (1, 16, 16)


@pytest.fixture(scope="module")
def digits():
    return data.load("digits:0-2@40", size=16, channels=1)


@pytest.fixture(scope="module")
def net(digits):
    made = TransplantNet(IMAGE)
    for seed, (category, task) in enumerate((("dog", "dogs"), ("cat", "cats"), ("owl", "owls"))):
        model = zoo.build("lenet", num_classes=3, in_channels=1, seed=seed)
        train(
            model,
            digits.train_images,
            digits.train_labels,
            epochs=4,
            classes=digits.classes,
            device="cpu",
            progress=False,
        )
        made = made.add(split(model.eval(), "pool1"), category, task)
    return made.connect("cat", "dogs", Adapter(6, 6, seed=0)).eval()


def answers(net):
    x = torch.rand(6, *IMAGE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return {route: net(x, *route) for route in net.routes}


def test_a_route_gets_better_and_what_it_does_not_use_stays(net, digits):
    before, state = answers(net), copy.deepcopy(net.state_dict())
    found = tune(net, [("cat", "dogs", digits)], steps=80, lr=3e-3, progress=False)
    (note,) = found.note["routes"]
    assert note["after"]["accuracy"] > note["before"]["accuracy"] + 0.1
    assert sorted(map(tuple, found.note["changed"])) == [("cat", "cats"), ("cat", "dogs"), ("dog", "dogs")]
    after = answers(found.net)
    assert torch.equal(after["owl", "owls"], before["owl", "owls"])
    assert all(not torch.equal(after[route], before[route]) for route in map(tuple, found.note["changed"]))
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert all(torch.equal(value, before[route]) for route, value in answers(net).items())


@pytest.mark.parametrize(
    ("parts", "changed"),
    [(("adapters",), {("cat", "dogs")}), (("tasks",), {("cat", "dogs"), ("dog", "dogs")})],
    ids=["adapters", "tasks"],
)
def test_only_the_parts_asked_for_change(net, digits, parts, changed):
    before = answers(net)
    found = tune(net, [("cat", "dogs", digits)], parts=parts, steps=5, lr=1e-2, progress=False)
    after = answers(found.net)
    assert {route for route in before if not torch.equal(before[route], after[route])} == changed
    assert set(map(tuple, found.note["changed"])) == changed


def test_several_routes_at_once_and_the_same_twice(net, digits, tmp_path):
    routes = [("cat", "dogs", digits), ("dog", "dogs", digits)]
    one, two = (tune(net, routes, steps=12, lr=1e-3, progress=False).net for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(answers(one).values(), answers(two).values(), strict=True))
    save_net(one, tmp_path / "net")
    again = load_net(tmp_path / "net")
    assert all(torch.equal(v, answers(again)[route]) for route, v in answers(one).items())


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        ({"routes": []}, RequestError, "nothing to tune"),
        ({"routes": "owl dogs"}, RequestError, "does not reach"),
        ({"routes": "fox dogs"}, UnknownName, "fox"),
        ({"parts": ("heads",)}, RequestError, "heads"),
        ({"steps": 0}, RequestError, "steps is 0"),
        ({"lr": 1e30}, RequestError, "lr is 1e\\+30"),
        ({"lr": float("nan")}, RequestError, "lr is nan"),
        ({"routes": "owl owls", "parts": ("adapters",)}, RequestError, "nothing of the kind"),
    ],
    ids=["none", "unconnected", "unknown", "parts", "steps", "large", "nan", "no adapter"],
)
def test_what_is_refused(net, digits, change, error, word):
    routes = change.pop("routes", "cat dogs")
    given = [(*routes.split(), digits)] if routes else []
    with pytest.raises(error, match=word):
        tune(net, given, **{"steps": 2, "progress": False, **change})


def test_the_net_that_is_given_keeps_its_modes_and_gets_no_gradients(net, digits):
    net.train()
    category = net.category(next(iter(net.categories))).module
    category.eval()
    before = [(p.requires_grad, p.grad) for p in net.parameters()]
    route = next(route for route, adapter in net.routes.items() if adapter is not None)
    tune(net, [(*route, digits)], parts=["adapters"], steps=2, progress=False)
    assert [(p.requires_grad, p.grad) for p in net.parameters()] == before
    assert not category.training and net.task(route[1]).module.training
    net.eval()
