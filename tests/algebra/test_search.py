"""The search over the numbers of a merge: the strategy on functions with a known answer, and merges with one."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import zoo
from brickwork.algebra import MergeSearch, merge_on, repair, search_merge
from brickwork.algebra.data_methods import DATA_METHODS
from brickwork.algebra.evolution import Evolution
from brickwork.algebra.methods import registry
from brickwork.algebra.options import MergeSearchOptions
from brickwork.algebra.searching import searched
from brickwork.errors import BadData, RequestError, UnknownName
from brickwork.origin import origin_of
from brickwork.report.search import draw_search
from brickwork.store import state_hash

QUIET = {"progress": False}
X = torch.randn(400, 6, generator=torch.Generator().manual_seed(0))


def minimised(function, start, rounds, seed=0):
    search = Evolution(np.asarray(start), seed=seed)
    for _ in range(rounds):
        points = search.ask()
        assert points.min() >= 0 and points.max() <= 1
        search.tell(points, np.argsort([function(p) for p in points]))
    return search.mean


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_quadratic_is_solved(size, seed):
    """Turned and a hundred times as steep in one direction as in another; from a corner."""
    turn = np.linalg.qr(np.random.default_rng(size).normal(size=(size, size)))[0]
    steep = np.geomspace(1, 100, size)
    goal = np.linspace(0.3, 0.7, size)
    found = minimised(lambda p: (steep * (turn @ (p - goal)) ** 2).sum(), np.full(size, 0.95), 120, seed)
    assert abs(found - goal).max() <= 1e-4


def test_an_answer_on_the_edge_is_reached():
    assert minimised(lambda p: (p[0] - 1.5) ** 2 + (p[1] - 0.4) ** 2, [0.5, 0.5], 60) == pytest.approx(
        [1, 0.4], abs=1e-2
    )


def test_the_same_seed_asks_for_the_same():
    first, again, other = (Evolution(np.array([0.5, 0.5]), seed=s).ask() for s in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


@pytest.fixture(scope="module")
def models():
    """a is right, b is another, base lies so that base + 0.5·(a − base)·2 is a again."""
    torch.manual_seed(0)
    a, b, base = (nn.Linear(6, 4) for _ in range(3))
    return a, b, base


def labelled(model):
    with torch.no_grad():
        return X, model(X).argmax(1)


def test_weights_of_a_mean_go_to_the_network_that_is_right(models):
    a, b, _ = models
    hashes = state_hash(a), state_hash(b)
    found = search_merge([a, b], [labelled(a)], search={"weights": (0.01, 0.9)}, tries=80, seed=3, **QUIET)
    high, low = found.best.values["weights"]
    assert high > 8 * low and found.best.accuracy[0] > max(0.95, found.tried[0].accuracy[0] + 0.05)
    assert found.tried[0].values == {"weights": (0.5, 0.5)} and len(found.tried) == 80
    assert len({tuple(p.values["weights"]) for p in found.tried}) == 80  # none twice
    wanted = brickwork.merge([a, b], weights=[high, low])
    assert state_hash(found.model) == state_hash(wanted) and (state_hash(a), state_hash(b)) == hashes
    again = brickwork.merge([a, b], data=[labelled(a)], search={"weights": "0.01:0.9"}, tries=80, seed=3)
    assert state_hash(again) == state_hash(found.model)
    told = origin_of(again).provenance["merge"]
    assert told["images"] == [400] and len(told["tried"]) == 80 and told["seed"] == 3 and json.dumps(told)
    assert MergeSearch.from_dict(json.loads(json.dumps(told))).tried == found.tried


def test_several_numbers_at_once_and_a_scale_that_is_a_logarithm(models):
    a, b, base = models
    found = search_merge(
        [a, b], [labelled(a)], "ties", base=base, search={"density": (0.01, 1), "scale": (0.1, 2)}, tries=25, **QUIET
    )
    first, best = found.tried[0], found.best
    assert first.values == {"density": 0.2, "scale": 1.0} and best.score("mean") >= first.score("mean")
    low = [p.values["density"] for p in found.tried]
    assert sum(d < 0.1 for d in low) > 3  # of a range from 0.01 to 1 the lower decade is half
    wanted = brickwork.merge([a, b], "ties", base=base, **best.values)
    assert state_hash(found.model) == state_hash(wanted)


def test_the_worst_set_can_be_what_counts(models):
    a, b, _ = models
    sets = [labelled(a), labelled(b), labelled(b)]
    worst = search_merge([a, b], sets, search={"weights": (0, 1)}, tries=60, score="worst", **QUIET)
    mean = search_merge([a, b], sets, search={"weights": (0, 1)}, tries=60, **QUIET)
    assert min(worst.best.accuracy) > min(mean.best.accuracy) and np.mean(mean.best.accuracy) > np.mean(
        worst.best.accuracy
    )


def test_batch_norms_are_measured_and_responses_repaired_for_every_try():
    x = torch.randn(60, 1, 16, 16)
    nets = [zoo.build("resnet8", num_classes=3, in_channels=1, width=4, seed=k).eval() for k in range(2)]
    y = repair(nets[0], x)(x).argmax(1)
    found = search_merge(nets, [(x, y)], search={"weights": (0, 1)}, tries=4, **QUIET)
    wanted = merge_on(nets, [x], "linear", weights=list(found.best.values["weights"]), **QUIET)
    assert state_hash(found.model) == state_hash(wanted)
    lenets = [zoo.build("lenet", num_classes=3, in_channels=1, seed=k).eval() for k in range(2)]
    found = search_merge(lenets, [(x, y)], search={"weights": (0, 1)}, tries=4, repair=True, **QUIET)
    wanted = merge_on(lenets, [x], "linear", weights=list(found.best.values["weights"]), repair=True, **QUIET)
    assert state_hash(found.model) == state_hash(wanted)


def test_numbers_of_methods_that_look_at_images(models):
    a, b, _ = models
    sets = [labelled(a), labelled(b)]
    found = search_merge([a, b], sets, "regmean", search={"shrink": (0, 1), "weights": (0.1, 10)}, tries=6, **QUIET)
    assert found.tried[0].values == {"shrink": 0.9, "weights": (1.0, 1.0)}
    best = {n: list(v) if isinstance(v, tuple) else v for n, v in found.best.values.items()}
    assert state_hash(found.model) == state_hash(merge_on([a, b], [x for x, _ in sets], "regmean", **best, **QUIET))


@pytest.mark.parametrize("method", [*registry(), *DATA_METHODS])
def test_every_number_of_every_method_is_known_by_its_name(method):
    known = searched(method)
    assert ("weights" in known) == (
        method in ("linear", "task_arithmetic", "ties", "dare", "della", "breadcrumbs")
        or (method in DATA_METHODS and DATA_METHODS[method].weighted)
    )
    assert all(isinstance(name, str) for name in known)


def test_it_draws_and_tells(models):
    a, b, _ = models
    found = search_merge([a, b], [labelled(a)], search={"weights": (0, 1)}, tries=12, **QUIET)
    assert [best for _, best in found.curve()] == sorted(best for _, best in found.curve())
    axes = found.plot()
    assert len(axes.lines) == 2 and list(axes.lines[0].get_ydata()) == [now for now, _ in found.curve()]
    assert "linear after 12 tries" in str(found) and found._repr_html_().count("<tr>") == 13
    drawing = draw_search(found, [400])
    assert len(drawing.rows) == 12 and "400 labelled images" in drawing.svg() and "After 12 tries" in drawing.about


def test_wrong_requests(models):
    a, b, base = models
    good, sets = {"weights": (0, 1)}, [labelled(a)]
    short = [(X, torch.arange(400) % 9)]
    for arguments, options, error, message in (
        (([a, b], sets), {}, RequestError, "search is missing"),
        (([a, b], []), {"search": good}, RequestError, "needs labelled images"),
        (([a, b], [X]), {"search": good}, BadData, "set 0 has no labels"),
        (([a, b], short), {"search": good}, BadData, "labels of set 0 run from 0 to 8, and the models give"),
        (([a, b], sets), {"search": {}}, RequestError, "names no number"),
        (([a, b], sets), {"search": {"weights": (1, 0)}}, RequestError, "must be two numbers, the lower first"),
        (([a, b], sets), {"search": {"weights": "0-1"}}, RequestError, "must be two numbers, the lower first"),
        (([a, b], sets), {"search": {"weight": (0, 1)}}, UnknownName, "did you mean 'weights'"),
        (([a, b], sets, "ties"), {"search": {"trim": (0, 1)}, "base": base}, UnknownName, "number of ties to look for"),
        (([a, b], sets, "ties"), {"search": {"density": (0.1, 1)}}, RequestError, "ties needs a base"),
        (([a, b], sets, "ties"), {"search": {"density": (0.1, 2)}, "base": base}, RequestError, "density is 2"),
        (([a, b], sets, "match"), {"search": {"ridge": (-1, 1)}}, RequestError, "one set of images per model"),
        (([a, b], sets * 2, "match"), {"search": {"ridge": (-1, 1)}}, RequestError, "ridge is -1"),
        (([a, b], sets, "greedy_soup"), {"search": good}, RequestError, "chooses on labelled images by itself"),
        (([a, b], sets), {"search": good, "weights": [1, 1]}, RequestError, "weights is given and looked for"),
        (([a, b], sets), {"search": good, "tries": 0}, RequestError, "tries is 0"),
        (([a, b], sets), {"search": good, "heads": "keep"}, RequestError, "heads is keep and not used by a search"),
        (([a, b], sets, "rebasin"), {"search": good, "bn": "keep"}, RequestError, "bn is not used by rebasin"),
    ):
        with pytest.raises(error, match=message):
            search_merge(*arguments, **options, **QUIET)
    with pytest.raises(RequestError, match="tries is not used without search"):
        brickwork.merge([a, b], tries=3)
    with pytest.raises(RequestError, match="layers are not used by a search"):
        brickwork.merge([a, b], data=sets, search=good, layers=[("*", "linear", {})])
    assert MergeSearchOptions(search={"density": "0.1:1"}).ranges == {"density": (0.1, 1.0)}


def test_what_a_search_could_not_use_is_refused_before_it():
    nets = [nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).eval() for _ in range(2)]
    data = [(X, nets[0](X).argmax(1))]
    with pytest.raises(RequestError, match="weights from -1 on; repair needs them 0 or more"):
        search_merge(nets, data, search={"weights": (-1, 1)}, repair=True, tries=2, **QUIET)
    with pytest.raises(RequestError, match="bn is recalibrate, and the networks have no batch norm"):
        search_merge(nets, data, search={"weights": (0, 1)}, bn="recalibrate", tries=2, **QUIET)
