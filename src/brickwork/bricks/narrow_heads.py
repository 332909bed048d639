"""Attention heads that become narrower where channels go that can be rebuilt: their dimensions are turned, and the last go."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from brickwork.blueprint.open_heads import layers_before, open_attentions, open_heads
from brickwork.blueprint.plan import Blueprint, trace
from brickwork.bricks.answers import Answers
from brickwork.bricks.depth import layers_in_order
from brickwork.bricks.options import DisassembleOptions
from brickwork.bricks.rebuild import Curve, curve_of
from brickwork.bricks.subject import Subject
from brickwork.devices import number_of
from brickwork.moments.batches import ImageBatches, fitting
from brickwork.moments.heads import turn_heads
from brickwork.moments.processes import agreed
from brickwork.outputs import logits_of

#: of the largest logit, what rounding may change where heads are turned; ViTs of 6 and 12 blocks: 1e-14 in float64, 1e-6 in
#: float32, 1e-2 in bfloat16, 2e-3 in float16
BOUNDS = {torch.float64: 1e-6, torch.float32: 1e-3}
BOUND = 0.1
COMPARED = 16  # images on which the turned network is compared with the one given


def turns_heads(options: DisassembleOptions) -> bool:
    """Whether heads are opened and their dimensions turned.

    Not for choices by a score, which heads go whole for, nor for plain cuts: these have the network's own weights, so that
    several of them can be united, and heads are turned for each part anew.
    """
    return options.chosen_by == "rebuild" and options.repair == "match" and not options.uniform


def with_open_heads(subject: Subject, options: DisassembleOptions) -> Subject:
    """The same network with its heads open and turned, where they are known; by what it answers, where that changes, as given."""
    if not turns_heads(options):
        return subject
    output = subject.bp.output
    opened = open_heads(subject.whole, subject.bp.example, output)
    if not open_attentions(opened):
        return subject
    images = subject.samples.lazy(subject.samples.of_classes(subject.wanted, options.scored, options.seed))
    batches = ImageBatches(images, fitting(opened, images, 100, output), number_of(opened))
    turned, heads = turn_heads(opened, batches)
    if not agreed(_answers_alike(turned, subject.whole, batches[0][:COMPARED], output)):
        return subject  # an attention that does other things with these images than with those it was tried on
    bp = trace(turned, batches[0][:2], output=output)
    return replace(subject, whole=turned, bp=bp, heads=heads, given_layers=_given_layers(subject, turned, bp))


def _given_layers(subject: Subject, turned: nn.Module, bp: Blueprint) -> dict[str, str]:
    before, order = layers_before(subject.whole, turned), layers_in_order(subject.bp)
    named = {layer: before.get(layer, layer) for layer in layers_in_order(bp)}
    for layer, name in named.items():
        if name not in order:  # the module around it computes with its weight
            named[layer] = name.rpartition(".")[0]
    known = [pair for pair in named.items() if pair[1] in order]
    return dict(sorted(known, key=lambda pair: order.index(pair[1])))


def _answers_alike(turned: nn.Module, given: nn.Module, images: Tensor, output: str | int | None) -> bool:
    with torch.no_grad():
        logits, wanted = (logits_of(net(images), output) for net in (turned, given))
    bound = BOUNDS.get(wanted.dtype, BOUND)
    return bool((logits - wanted).abs().max() <= bound * wanted.abs().max())


def head_curves(subject: Subject, spaces: Collection[str], answers: Answers | None) -> dict[str, Curve]:
    """Of the spaces of queries and keys, which no layer reads: from the last dimension of every head to the second."""
    bp, curves = subject.bp, {}
    for name in bp.spaces:
        path = next((p for p in subject.heads if f"{p}.q" in bp.space(name).made_by), None)
        cells = bp.cells(name)
        if path is None or cells is None or name not in spaces or bp.space(name).fixed:
            continue
        places = np.stack([np.flatnonzero(cells == head) for head in range(int(cells.max()) + 1)])
        order = places[:, :0:-1].T.reshape(-1)
        said = subject.heads[path].cpu().numpy()[:, :0:-1].T.reshape(-1)
        errors = np.concatenate([[0.0], np.cumsum(said)])
        curves[name] = curve_of(subject.whole, bp, name, tuple(order.tolist()), errors, answers)
    return curves
