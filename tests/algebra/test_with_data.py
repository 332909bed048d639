"""Merging that looks at images, and re-basin: identities, and that it is worth it on two tasks."""

from __future__ import annotations

import copy
import inspect
import json
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import brickwork
from brickwork import data, zoo
from brickwork.algebra import merge, merge_on, rebasin, regmean, repair, with_data
from brickwork.algebra.data_methods import DATA_METHODS
from brickwork.errors import BadData, BadModel, RequestError, UnknownName
from brickwork.evaluation import evaluate
from brickwork.moments import Source, fold_batch_norm, match_responses
from brickwork.origin import Preprocessing, attach, origin_of
from brickwork.prediction import predict
from brickwork.store import state_hash
from brickwork.training import train

QUIET = {"progress": False}


def scrambled(seed):
    torch.manual_seed(seed)
    net = zoo.build("resnet8", num_classes=5, in_channels=1, width=4, seed=seed).double().eval()
    with torch.no_grad():
        for buffer in net.buffers():
            if buffer.is_floating_point():
                buffer.copy_(torch.rand_like(buffer) + 0.5)
    return net


X = torch.randn(60, 1, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("method", DATA_METHODS)
def test_a_network_merged_with_itself(method):
    """Every method of the table: it is the network again, nothing given is changed, and twice gives the same bytes."""
    net = repair(scrambled(0), torch.cat([X, X]))  # with the statistics that methods which take them anew will find
    before = state_hash(net)
    sets, options = [X, X.flip(0)], dict(QUIET)
    if DATA_METHODS[method].needs_labels:
        sets = [(x, net(x).argmax(1)) for x in sets]
    if DATA_METHODS[method].needs_base:
        options |= {"base": net, "steps": 3}
    merged = merge_on([net, net], sets, method, **options)
    with torch.no_grad():
        assert (merged(X) - net(X)).abs().max() <= 1e-6 * net(X).abs().max()
    assert state_hash(net) == before and not merged.training
    again = merge_on([net, net], sets, method, **options)
    assert state_hash(again) == state_hash(merged)
    told = origin_of(merged).provenance["merge"]
    assert told["method"] == method and told["images"] == [60, 60] and json.dumps(told)


@pytest.mark.parametrize("method", DATA_METHODS.values(), ids=lambda m: m.name)
def test_the_table_says_what_the_functions_take(method):
    taken = inspect.signature(method.function()).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        own = {n: p.default for n, p in taken.items() if p.default is not p.empty}
        assert ("heads" in own) == method.answers
        assert {n: v for n, v in own.items() if n != "heads"} == {n: o.default for n, o in method.options.items()}
    assert method.about and method.paper and all(o.is_right(o.default) for o in method.options.values())
    assert ("shares" in taken) == method.weighted


def test_networks_that_prepare_images_differently():
    """The merged one prepares them as the first does; what the second answers is asked for in its own way."""
    net = repair(scrambled(0).float(), 5 * X.float() + 1)
    other = copy.deepcopy(net)
    for model, mean, std in ((net, 0.3, 0.2), (other, 0.5, 0.25)):
        attach(model, normalised(model, mean, std))
    raw = np.random.default_rng(0).integers(0, 256, (80, 16, 16, 1), np.uint8)
    merged = merge_on([net, other], [raw, raw], "match", weights=[1e-6, 1.0], **QUIET)
    assert origin_of(merged).preprocessing.mean == (0.3,)
    wanted = predict(other, raw)
    plain = (predict(net, raw) - wanted).square().mean()
    assert (predict(merged, raw) - wanted).square().mean() < 0.05 * plain
    x = X.float()
    with pytest.raises(BadData, match="own images of source 0 are"):
        match_responses(net, [Source(net, x, own=x[:3])], **QUIET)


def normalised(model, mean, std):
    return replace(origin_of(model), preprocessing=Preprocessing((16, 16), 1, (mean,), (std,)))


def test_regmean_is_the_papers_formula():
    torch.manual_seed(0)
    a, b = (nn.Sequential(nn.Linear(4, 3, bias=False)).double() for _ in range(2))
    x, y = torch.randn(30, 4, dtype=torch.float64), torch.randn(50, 4, dtype=torch.float64)
    merged = merge_on([a, b], [x, y], "regmean", shrink=0.7, ridge=0.0, **QUIET)

    def gram(z):
        full = z.T @ z / len(z)
        return 0.7 * full + 0.3 * torch.diag(full.diagonal())

    wanted = torch.linalg.solve(gram(x) + gram(y), gram(x) @ a[0].weight.T + gram(y) @ b[0].weight.T).T
    assert (merged[0].weight - wanted).abs().max() <= 1e-10


def test_regmean_plus_takes_the_features_of_the_merged_network():
    torch.manual_seed(0)
    a, b = (nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3, bias=False)).double() for _ in range(2))
    x, y = torch.randn(30, 4, dtype=torch.float64), torch.randn(50, 4, dtype=torch.float64)
    merged = merge_on([a, b], [x, y], "regmean++", shrink=0.7, ridge=0.0, **QUIET)
    first = merge_on([a, b], [x, y], "regmean", shrink=0.7, ridge=0.0, **QUIET)[0]
    assert (merged[0].weight - first.weight).abs().max() <= 1e-10  # what arrives there is the same

    def gram(z):
        z = merged[1](merged[0](z))
        full = z.T @ z / len(z)
        return 0.7 * full + 0.3 * torch.diag(full.diagonal())

    with torch.no_grad():
        right = gram(x) @ a[2].weight.T + gram(y) @ b[2].weight.T
        wanted = torch.linalg.solve(gram(x) + gram(y), right).T
    assert (merged[2].weight - wanted).abs().max() <= 1e-10


def test_regmean_plus_holds_what_a_layer_reads_of_one_batch_at_a_time(monkeypatch):
    net, alive = nn.Sequential(nn.Linear(4, 3)), []
    rows = regmean._Features._rows

    def watched(self, path):
        for some in rows(self, path):
            copied = some.clone()
            alive.append(weakref.ref(copied))
            del some
            yield copied
            del copied
            assert sum(one() is not None for one in alive) <= 1

    monkeypatch.setattr(regmean._Features, "_rows", watched)
    merge_on([net, net], [torch.randn(900, 4)] * 2, "regmean++", **QUIET)
    assert len(alive) >= 8


def test_match_is_pulled_to_its_anchor():
    """A ridge that says everything leaves the anchor's weights: the folded mean, or the mean repaired and then folded."""
    torch.manual_seed(0)
    nets = [zoo.build("resnet8", num_classes=4, in_channels=1, width=4, seed=s).eval() for s in range(2)]
    sets = [torch.randn(40, 1, 16, 16) * (1 + k) for k in range(2)]
    folded = [fold_batch_norm(net, sets[0][:2]) for net in nets]
    repaired = fold_batch_norm(repair(merge(nets), torch.cat(sets)), sets[0][:2])
    for anchor, expected in (("folded", merge(folded)), ("recalibrated", repaired)):
        merged = merge_on(nets, sets, "match", ridge=1e9, anchor=anchor, **QUIET)
        for name, value in expected.named_parameters():
            if name.endswith("weight") and value.ndim == 4:
                assert (merged.get_parameter(name) - value).abs().max() < 1e-4 * value.abs().max(), (anchor, name)
    with pytest.raises(RequestError, match="anchor is 'mean'; it must be folded or recalibrated"):
        merge_on(nets, sets, "match", anchor="mean", **QUIET)


def test_fisher_of_trunks_is_that_of_the_whole_networks():
    torch.manual_seed(0)
    trunks = [nn.Sequential(nn.Linear(4, 6), nn.ReLU()) for _ in range(2)]
    head, x = nn.Linear(6, 3), torch.randn(60, 4)
    whole = merge_on([nn.Sequential(*t, head) for t in trunks], [x, x], "fisher", **QUIET)
    merged = merge_on(trunks, [x, x], "fisher", heads=[head, head], **QUIET)
    assert (merged[0].weight - whole[0].weight).abs().max() < 1e-6
    assert (merged[0].weight - merge_on(trunks, [x, x], "fisher", **QUIET)[0].weight).abs().max() > 1e-3


def test_fisher_keeps_nothing_of_the_images_it_has_seen():
    """A head's weights want gradients: the sums over images once held the activations of all of them, 20 GB at the end."""
    head = nn.Linear(4, 3)
    sums = with_data._information(nn.Linear(2, 4), head, torch.randn(5, 2), 0)
    assert head.weight.requires_grad and not any(each.requires_grad for each in sums.values())


def test_fisher_is_the_mean_where_all_matters_the_same():
    torch.manual_seed(0)
    a = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
    b = copy.deepcopy(a)
    with torch.no_grad():
        b[1].weight += 1e-9  # the same predictions, so the same importance
    x = torch.randn(40, 1, 2, 2, dtype=torch.float64)
    merged = merge_on([a, b], [x, x], "fisher", **QUIET)
    assert (merged[1].weight - (a[1].weight + b[1].weight) / 2).abs().max() <= 1e-12


def test_rebasin_undoes_a_permutation():
    net = scrambled(1)
    bp = brickwork.trace(net, X[:2])
    order = {n: torch.randperm(s).tolist() for n, s in bp.spaces.items() if n != "classes"}
    moved = bp.permute(net, order)
    back = rebasin(net, moved, X[:2])
    with torch.no_grad():
        assert (back(X) - moved(X)).abs().max() <= 1e-10
    assert all((v - back.state_dict()[n]).abs().max() <= 1e-12 for n, v in net.state_dict().items())


def test_two_tasks():
    """Two halves of the digits, each numbered 0 to 4, from one start: matching beats the mean of the weights."""
    common = data.load("digits", size=16, channels=1).preprocessing()
    halves = [data.load(f"digits:{h}", size=16, channels=1) for h in "AB"]
    nets = []
    for half in halves:
        net = zoo.build("resnet8", num_classes=5, in_channels=1, width=8, seed=0)
        train(
            net,
            half.train_images,
            half.train_labels,
            epochs=3,
            batch_size=32,
            lr=0.05,
            preprocessing=common,
            device="cpu",
            progress=False,
        )
        nets.append(net.eval())
    images = [half.train_images[:300] for half in halves]

    def worst(model):
        return min(evaluate(model, h.test_images, h.test_labels).accuracy for h in halves)

    plain = brickwork.merge(nets)
    repaired = repair(plain, torch.cat([torch.from_numpy(i) for i in images]))
    matched = merge_on(nets, images, "match", **QUIET)
    assert worst(matched) > worst(plain) + 0.1 and worst(repaired) >= worst(plain) - 0.05
    folded = fold_batch_norm(nets[0], torch.zeros(2, 1, 16, 16))
    assert {n: p.shape for n, p in matched.named_parameters()} == {n: p.shape for n, p in folded.named_parameters()}


def test_wrong_requests():
    net, x = nn.Sequential(nn.Linear(4, 3)), torch.randn(10, 4)
    small = nn.Sequential(nn.Linear(4, 2))
    for arguments, options, error, message in (
        (([net], [x], "mach"), {}, UnknownName, "did you mean 'match'"),
        (([net, net], [x]), {}, RequestError, "one set of images per model, in their order; there are 1 for 2 models"),
        (([net], [x]), {"weights": [0]}, RequestError, "all above 0"),
        (([net], [x]), {"base": net}, RequestError, "match takes no base"),
        (([net], []), {}, RequestError, "match needs data, unlabelled images of each model's task"),
        (([], []), {}, RequestError, "nothing to merge"),
        (([net], [x], "regmean"), {"shrink": 2}, RequestError, "shrink is 2; it must be a number from 0 to 1"),
        (([net], [x], "regmean"), {"ridge": True}, RequestError, "ridge is True"),
        (([net], [x], "fisher"), {"sed": 2}, RequestError, "did you mean 'seed'"),
        (([net], [x], "adamerging"), {}, RequestError, "adamerging needs a base"),
        (([net], [(x, x[:, 0])], "greedy_soup"), {"weights": [1]}, RequestError, "takes no weights"),
        (([net], [x], "greedy_soup"), {}, BadData, "set 0 has no labels"),
        (([net, small], [x, x]), {}, BadModel, "model 0 and model 1 are not of one architecture"),
        (([net], [x[:0]]), {}, BadData, "set 0 has no images"),
        (([net], [x / 0]), {}, BadData, "NaN or infinite"),
    ):
        with pytest.raises(error, match=message):
            merge_on(*arguments, **options, **QUIET)
    two = [scrambled(k).float() for k in range(2)]
    attach(two[0], normalised(two[0], 0.5, 0.5))
    attach(two[1], replace(origin_of(two[1]), preprocessing=Preprocessing((8, 8), 1, (0.5,), (0.5,))))
    with pytest.raises(BadModel, match="model 0 takes images of 16×16 with 1 channel and model 1 of 8×8"):
        merge_on(two, [np.zeros((4, 16, 16, 1), np.uint8)] * 2, **QUIET)


def test_match_chooses_its_ridge_and_fits_what_passes_rectifiers_again():
    """Two networks from two starts: nearer to both than by a fixed ridge and one fit, on images that it did not see."""
    torch.manual_seed(0)
    nets = [
        nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 3)) for _ in range(2)
    ]
    sets = [torch.randn(300, 8) + 2 * k for k in range(2)]
    new = [torch.randn(500, 8) + 2 * k for k in range(2)]

    def far(merged):
        with torch.no_grad():
            return sum(float((merged(x) - net(x)).square().mean()) for net, x in zip(nets, new, strict=True))

    before = far(merge_on(nets, sets, "match", ridge=1e-3, refits=0, **QUIET))
    one = far(merge_on(nets, sets, "match", ridge=1e-3, refits=1, **QUIET))
    assert far(merge_on(nets, sets, "match", **QUIET)) < one < before
