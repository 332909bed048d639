"""Attention heads that become narrower where channels go that can be rebuilt: their dimensions are turned, and the last go."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from brickwork.blueprint.open_heads import open_heads
from brickwork.blueprint.plan import trace
from brickwork.bricks.answers import Answers
from brickwork.bricks.options import DisassembleOptions
from brickwork.bricks.rebuild import Curve, curve_of
from brickwork.bricks.subject import Subject
from brickwork.moments.batches import ImageBatches, fitting
from brickwork.moments.heads import turn_heads


def with_open_heads(subject: Subject, options: DisassembleOptions) -> Subject:
    """The same network with its heads open, where they are known.

    Not for choices by a score, which heads go whole for, nor for plain cuts: these have the network's own weights, so that
    several of them can be united, and heads are turned for each part anew.
    """
    if options.chosen_by != "rebuild" or options.repair != "match" or options.uniform:
        return subject
    whole = open_heads(subject.whole, subject.bp.example, subject.bp.output)
    if whole is subject.whole:
        return subject
    images = subject.samples.lazy(subject.samples.of_classes(subject.wanted, options.scored, options.seed))
    batches = ImageBatches(images, fitting(whole, images, 100, subject.bp.output), next(whole.parameters()))
    whole, heads = turn_heads(whole, batches)
    return replace(subject, whole=whole, bp=trace(whole, batches[0][:2], output=subject.bp.output), heads=heads)


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
