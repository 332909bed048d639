"""Paper 2, Tables 1, 4, 6 and 7: the part of some classes cut out, and what no class needs dropped."""

from collections.abc import Iterator
from functools import partial

from brickwork.bricks.compression import compress as shrink
from brickwork_lab.judging import accuracy, facts_of, one_against_rest, side_by_side
from brickwork_lab.lab import Lab
from brickwork_lab.studies.registry import Names, Row, some_of, study
from brickwork_lab.studies.two_ways import (
    ARCHS,
    PAPER,
    both_ways,
    numbers_of,
    original,
    paper_of,
    picks_of,
    protocol,
    repeated,
    tuned,
)

ONE_OUTPUT = "accuracy; 100 with one output: see auroc"


@study("disassemble", paper="2, Table 1")
def disassemble(
    lab: Lab, *, archs: Names = None, sets: Names = None, picks: Names = None, seeds: int | None = None
) -> Iterator[Row]:
    """Cut the part of some classes out of a network, without training: the paper's way and ours at equal cost."""
    for source, arch in lab.cases(sets, archs, ARCHS):
        for name in some_of(picks_of("disassemble", source), picks):
            rows_of = partial(_part_rows, source=source, arch=arch, name=name)
            yield from repeated(lab, source, seeds, rows_of)


def _part_rows(lab: Lab, source: str, arch: str, name: str) -> Iterator[Row]:
    half, net = lab.data(f"{source}:A"), lab.network(arch, f"{source}:A")
    before, paper, paper_tuned = paper_of("disassemble", f"{source} {arch} {name}", 3)
    parts = both_ways(lab, net, numbers_of(name, half), half)
    names = next(iter(parts.values())).classes
    chosen, single = lab.classes_of(source, names), len(names) == 1
    beside: Row = {"original": original(lab, source, [(net, names)]), "paper_original": before}
    beside["whole"] = side_by_side([net], chosen)
    if single:
        beside["whole_auroc"] = one_against_rest(net, names[0], half)
    for way, brick in parts.items():
        row: Row = {"what": f"{source} {arch} {name}, {way}", "paper": paper, "ours": accuracy(brick.model, chosen)}
        row["paper_tuned"] = paper_tuned
        if single:  # nothing to tune: whatever the one output says is the class
            row["auroc"] = one_against_rest(brick.model, names[0], half)
        else:
            row["ours_tuned"] = accuracy(tuned(lab, brick.model, chosen, source), chosen)
        row |= {**beside, **facts_of(brick), "measure": ONE_OUTPUT if single else "accuracy", "arch": arch}
        yield {**row, "classes": len(half.classes), "seed": lab.seed, "protocol": protocol(lab, arch, source)}


@study("compress", paper="2, Tables 4, 6, 7")
def compress(lab: Lab, *, archs: Names = None, sets: Names = None, seeds: int | None = None) -> Iterator[Row]:
    """Drop what no class needs, without training: accuracy against what is left."""
    for source, arch in lab.cases(sets, archs, ARCHS):
        yield from repeated(lab, source, seeds, partial(_compressed_rows, source=source, arch=arch))


def _compressed_rows(lab: Lab, source: str, arch: str) -> Iterator[Row]:
    half, net = lab.data(f"{source}:A"), lab.network(arch, f"{source}:A")
    key = f"{source} {arch}"
    before, paper, paper_tuned, gone, faster = paper_of("compress", key, 5)
    _, first, _ = paper_of("compress_table_4", key, 3)
    # Table 6 corrects Table 4; where the two differ, the first one stands beside it
    known: Row = {"paper_original": before, "paper_gone": gone, "paper_flops_gone": faster}
    known |= {"paper_table_4": first} if first != paper else {}
    known |= others(key)
    whole = accuracy(net, half)
    ways = both_ways(lab, net, None, half)
    bound, learned = "within 0.5 points", (half.train_images, half.train_labels)
    for way in (*ways, bound):
        # how small is decided on held-out training images: with the set itself its test images would judge
        brick = ways.get(way) or shrink(net, learned, tolerance=0.005, seed=lab.seed, progress=lab.progress)
        row: Row = {"what": f"{key}, {way}", "paper": paper, "ours": accuracy(brick.model, half)}
        row |= {"paper_tuned": paper_tuned, "ours_tuned": accuracy(tuned(lab, brick.model, half, source), half)}
        row |= {"original": whole, "whole": whole, **known, **facts_of(brick)}
        row |= {"gone": round(100 * (1 - brick.parameters), 2), "flops_gone": round(100 * (1 - brick.macs), 2)}
        row |= {"note": brick.note, "arch": arch, "classes": len(half.classes), "seed": lab.seed}
        yield {**row, "protocol": protocol(lab, arch, source)}


def others(key: str) -> Row:
    """What Table 7 prints of other methods, each after an epoch of fine-tuning.

    >>> others("cifar10 vgg16")["paper_kse_tuned"], others("cifar100 vgg16")
    (94.24, {})
    """
    row: Row = {}
    for name, (_, accurate, gone, faster) in PAPER["compress_others"].items() if key == "cifar10 vgg16" else ():
        word = f"paper_{name.lower()}"
        row |= {f"{word}_tuned": accurate, f"{word}_gone": gone, f"{word}_flops_gone": faster}
    return row
