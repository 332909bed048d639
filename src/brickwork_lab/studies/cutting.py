"""Paper 2, Tables 1 and 4 to 7, Figures 4 and 5: the part of some classes cut out, and what no class needs dropped."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from brickwork.blueprint.plan import trace
from brickwork.bricks import Brick
from brickwork.bricks import disassemble as cut_out
from brickwork.bricks.compression import compress as shrink
from brickwork.bricks.depth import layers_in_order
from brickwork.data.pixels import as_input
from brickwork.devices import device_of
from brickwork.origin import origin_of
from brickwork_lab.judging import accuracy, facts_of, one_against_rest, side_by_side
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, read_json, some_of, study

PAPER = read_json("paper2.json")
PICKS = {"0": "0", "1": "1", "0-2": "0-2", "2-4": "2-4"}
PICKS_100 = {"0-9": "0-9", "10-49": "10-49"}
#: by set, network and classes: accuracy of the original, of the disassembled part, after one epoch of fine-tuning
PARTS = PAPER["disassemble"]
#: 100 images per class of the largest of these sets, and more of the smaller ones
PAPERS_WAY: dict[str, Any] = {"attribution": "frat", "threshold": 1.0, "depth": 2, "repair": "none", "scored": 5000}


@study("disassemble", paper="2, Table 1")
def disassemble(
    lab: Lab, *, archs: Names = None, sets: Names = None, picks: Names = None, budgets: tuple[float, ...] = (0.5, 0.25)
) -> Iterator[Row]:
    """Cut the part of some classes out of a network, without training: the paper's way and ours."""
    for source, arch in lab.cases(sets, archs, ("simplenetv1", "vgg16", "resnet50")):
        for name, classes in some_of(PICKS_100 if source == "cifar100" else PICKS, picks).items():
            yield from _part_rows(lab, source, arch, name, classes, budgets)


def _part_rows(lab: Lab, source: str, arch: str, name: str, classes: str, budgets: tuple[float, ...]) -> Iterator[Row]:
    half, net = lab.data(f"{source}:A"), lab.network(arch, f"{source}:A")
    original, paper, paper_tuned = PARTS.get(f"{source} {arch} {name}", (None, None, None))

    def cut(**options: Any) -> Brick:
        return cut_out(net, classes, half, seed=lab.seed, progress=lab.progress, **options)

    def judged(model: nn.Module) -> float:
        return one_against_rest(model, theirs.classes[0], half) if single else accuracy(model, chosen)

    def row(what: str, brick: Brick) -> Row:
        measured: Row = {"what": f"{source} {arch} {name}, {what}", "paper": None if single else paper}
        measured |= {"ours": judged(brick.model), "whole": whole, "paper_original": original}
        measured["measure"] = "auroc" if single else "accuracy"
        if not single:
            measured["paper_tuned"] = paper_tuned
            measured["ours_tuned"] = accuracy(lab.fine_tuned(brick.model, chosen, lr=1e-3), chosen)
        measured["latency"] = lab.latency_ratio(brick.model, [net], half)
        return {**measured, **facts_of(brick), "arch": arch, "classes": len(half.classes), "seed": lab.seed}

    theirs = cut(**PAPERS_WAY)
    chosen, single = lab.classes_of(source, theirs.classes), len(theirs.classes) == 1
    whole = judged(net) if single else side_by_side([net], chosen)
    yield row("the paper's way", theirs)
    for budget in budgets:
        yield row(f"{budget:.0%} of the parameters", cut(budget=budget))


#: by set and network: the original, compressed, after one epoch of fine-tuning, share of parameters and FLOPs that went
COMPRESSED = PAPER["compress"]


@study("compress", paper="2, Tables 4, 6, 7")
def compress(
    lab: Lab, *, archs: Names = None, sets: Names = None, budgets: tuple[float, ...] = (0.5, 0.4, 0.25, 0.1)
) -> Iterator[Row]:
    """Drop what no class needs, without training: accuracy against what is left."""
    ways: dict[str, dict[str, Any]] = {"the paper's way": PAPERS_WAY, "within 0.5 points": {"tolerance": 0.005}}
    ways |= {f"{b:.0%} of the parameters": {"budget": b} for b in budgets}
    for source, arch in lab.cases(sets, archs, ("simplenetv1", "vgg16", "resnet50")):
        half, net = lab.data(f"{source}:A"), lab.network(arch, f"{source}:A")
        whole = accuracy(net, half)
        original, paper, tuned, gone, faster = COMPRESSED.get(f"{source} {arch}", (None,) * 5)
        for what, options in ways.items():
            brick = shrink(net, half, seed=lab.seed, progress=lab.progress, **options)
            row: Row = {"what": f"{source} {arch}, {what}", "paper": paper, "ours": accuracy(brick.model, half)}
            row |= {"whole": whole, "paper_original": original, "paper_tuned": tuned}
            row["ours_tuned"] = accuracy(lab.fine_tuned(brick.model, half, lr=1e-3), half)
            row |= {**facts_of(brick), "latency": lab.latency_ratio(brick.model, [net], half)}
            row |= {"gone": round(100 * (1 - brick.parameters), 2), "paper_gone": gone, "paper_flops_gone": faster}
            yield {**row, "note": brick.note, "arch": arch, "classes": len(half.classes), "seed": lab.seed}


#: derivative: (accuracy, share of the size that went), Table 5
DERIVATIVES: dict[str, Any] = {"frat": (91.34, 22.74), "frat-negative": (32.30, 36.54), "frat-absolute": (87.76, 29.80)}
DERIVATIVES |= {"contribution": None, "taylor": None}  # not in the paper
THRESHOLDS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)


@study("lego-ablation", paper="2, Figures 4, 5, Table 5")
def lego_ablation(lab: Lab, *, archs: Names = None) -> Iterator[Row]:
    """Depth, derivative and threshold of a cut, alone and with the layers matched afterwards."""
    source = "cifar10:A" if lab.full else "digits:A"
    for arch in lab.archs(archs, ("vgg16",)):
        net, half = lab.network(arch, source), lab.data(source)
        whole = accuracy(net, half)
        images = as_input(half.train_images[:2], origin_of(net).preprocessing, device_of(net))
        layers = layers_in_order(trace(net, images))
        # '0' of Figure 4 is the last layer
        depths = [(f"depth {len(layers) - k} ({path})", path) for k, path in enumerate(layers, 1)]
        trials: dict[str, dict[str, Any]] = {
            **{what: {"depth": path} for what, path in (depths if lab.full else depths[:2])},
            **{f"derivative {name}": {"attribution": name} for name in DERIVATIVES},
            **{f"threshold {t:g} × mean": {"threshold": t} for t in (THRESHOLDS if lab.full else (0.5, 1.0))},
        }
        for what, options in trials.items():
            settings = {"attribution": "frat", "threshold": 1.0, "depth": 2, **options}
            settings |= {"seed": lab.seed, "progress": lab.progress}
            known = DERIVATIVES.get(options.get("attribution", "")) if lab.full else None
            paper, gone = known or (None, None)
            plain, matched = (shrink(net, half, repair=repair, **settings) for repair in ("none", "match"))
            row: Row = {"what": f"{arch}, {what}", "paper": paper, "ours": accuracy(plain.model, half)}
            row |= {"matched": accuracy(matched.model, half), "whole": whole, "paper_gone": gone}
            row |= {"gone": round(100 * (1 - plain.parameters), 2), "flops": round(plain.macs, 4)}
            yield {**row, "seed": lab.seed}
