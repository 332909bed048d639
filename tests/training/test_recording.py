"""A recorded step gives the gradients of the step as it is; where it cannot be recorded, it goes on, or says so."""

import pytest
import torch
from torch import nn

from brickwork import zoo
from brickwork.blueprint.splitting import split
from brickwork.training.recording import RecordedStep
from brickwork.transplant import Adapter, learn_adapter

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="a recording is made on a GPU")


def gradients_of(layer, x):
    loss = layer(x).square().mean()
    loss.backward()
    return [loss.detach()]


def losses(*, record, needed=True, steps=9, device="cpu"):
    """Of a layer that learns from batches that differ, and its weight in the end."""
    torch.manual_seed(0)
    layer = nn.Linear(4, 3).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), 0.5)
    recorded = RecordedStep(optimizer.zero_grad, record=record, needed=needed)
    found = []
    for k in range(steps):
        x = torch.rand(5, 4, generator=torch.Generator().manual_seed(k)).to(device)
        (loss,) = recorded(lambda batch: gradients_of(layer, batch), x)
        optimizer.step()
        found.append(float(loss))
    return found, layer.weight.detach().cpu()


@pytest.fixture
def unrecordable(monkeypatch):
    """A GPU that refuses to record."""

    def refuse(graph):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "graph", refuse)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    for name in ("synchronize", "current_stream", "set_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda device: None)


def test_what_cannot_be_recorded_goes_on_as_it_is(unrecordable):
    plain, weight = losses(record=False)
    fell_back, same = losses(record=True, needed=False)
    assert plain == fell_back
    assert torch.equal(weight, same)


def test_or_says_so_where_a_recording_was_asked_for(unrecordable):
    with pytest.raises(RuntimeError, match="capturing"):
        losses(record=True)


@needs_gpu
def test_a_replay_gives_the_gradients_of_the_step():
    plain, weight = losses(record=False, steps=20, device="cuda")
    replayed, same = losses(record=True, steps=20, device="cuda")
    assert plain == pytest.approx(replayed, rel=1e-5)
    assert (weight - same).abs().max() <= 1e-6


@needs_gpu
@pytest.mark.parametrize("way", ["direct-learn", "back-distill", "back-distill+distill", "jacobian", "distill"])
@pytest.mark.parametrize("dummy", ["second", "lowest"])
def test_an_adapter_learns_the_same_recorded(way, dummy, monkeypatch):
    torch.manual_seed(0)
    cuts = [split(zoo.build("lenet", num_classes=2, seed=s).eval().cuda(), "pool1") for s in (0, 1)]
    features = cuts[0].below(torch.rand(60, 3, 32, 32, device="cuda")).detach()
    labels = torch.arange(60, device="cuda") % 2
    options = {
        "way": way,
        "teacher": cuts[0].above,
        "features": features,
        "labels": labels,
        "steps": 40,
        "progress": False,
    }
    options |= {"dummy": dummy} if "back" in way else {}
    adapter = Adapter(6, 6, start="random", seed=2).cuda()
    recorded = learn_adapter(adapter, cuts[1].above, **options)
    monkeypatch.setattr(RecordedStep, "EAGER", 1000)
    plain = learn_adapter(adapter, cuts[1].above, **options)
    assert recorded.history[-1] == pytest.approx(plain.history[-1], rel=1e-2)
    for one, other in zip(recorded.adapter.parameters(), plain.adapter.parameters(), strict=True):
        assert (one - other).abs().max() <= 1e-3
