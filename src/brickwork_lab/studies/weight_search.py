"""Paper 4 (appendix), Tables 1, 2 and 4: task after task from frozen kernels, beside what else one could do.

The paper's pools are pretrained on ImageNet, which is not at hand: here on CIFAR-10 for Split-CIFAR-100 in 20 tasks, on
half of CIFAR-100 for 10 tasks of the other half, on CIFAR-100 for a sequence of other sets. The paper trains 100 epochs in
batches of 32, this study 30 of up to 128. The accuracy of Finetune and the other baselines stands in the main paper, which
could not be had. Every method starts from the same network; megabytes (2²⁰ bytes) are those of the files on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from brickwork.continual.result import MB, ContinualResult
from brickwork.errors import UnknownName
from brickwork_lab.studies.family import Family
from brickwork_lab.studies.registry import Row, Run, study
from brickwork_lab.studies.task_scenes import FIRST_SEED, Scenes

POOL = "pool"
#: with the pool's own bytes shared out, 20 tasks stay below 0.4 MB each; and one below 0.1 MB
BUDGETS = {
    "0.3 MB": "pool(budget=300000)",
    "0.1 MB": "pool(budget=100000, fold=True)",
    "0.05 MB": "pool(budget=50000, fold=True)",
}


#: Learning rates are chosen by the part "rates", on held-out training images of two tasks of an order of classes that
#: nothing else uses.
RATES_SEED = 1992
RATES = {
    "finetune": (0.008, 0.02, 0.05),
    "bn-head": (0.02, 0.05, 0.125),
    "probe": (0.04, 0.1, 0.25, 0.6),
    "lora": (0.004, 0.01, 0.025),
    "ksm": (0.006, 0.015, 0.04),
    "packnet": (0.008, 0.02, 0.05),
    "quantised": (0.008, 0.02, 0.05),
    "pool": (0.02, 0.05, 0.125),
    "pool(free=0.6)": (0.02, 0.05, 0.125),
    "pool-encode": (0.02, 0.05, 0.125),
    "pool-encode(soup=3)": (0.02, 0.05, 0.125),
}


@dataclass(frozen=True)
class Part:
    """One method over all tasks of a scene: a row of the study."""

    group: str
    name: str
    method: str
    scene: str = "split"
    arch: str = "resnet18"
    size: int = 512
    made: str = "pretrain"
    seed: int = FIRST_SEED
    paper: float | None = None  # average accuracy
    paper_mb: float | None = None  # in all


def _at(method: str, rate: float) -> str:
    """A method with a learning rate among its options."""
    return f"{method.removesuffix(')')}{', ' if '(' in method else '('}lr={rate:g})"


def _parts() -> list[Part]:
    rows = [
        Part("finetune", "one network a task", "finetune"),
        Part("finetune", "one network a task, average of three trainings", "finetune(soup=3)"),
        Part("joint", "all tasks at once", "joint"),
        Part("sequential", "one network, task after task", "sequential"),
        Part("probe", "linear probe", "probe"),
        Part("bn-head", "batch norms and head", "bn-head"),
        Part("packnet", "60 % freed", "packnet"),
        Part("packnet", "equal shares", "packnet(prune=equal)"),
        Part("ksm", "kernel-wise soft masks", "ksm"),
        *(Part("quantised", f"{b} bits", f"quantised(bits={b})") for b in (9, 8, 4, 2)),
        *(Part("lora", f"rank {r}", f"lora(rank={r})") for r in (1, 4, 16)),
        Part("pool", "weight search", POOL),
        Part("pool", "weight search, kernels chosen in every step", "pool(refresh=1)"),
        Part("pool", "weight search, from soft to hard", "pool(anneal=True)"),
        Part("pool", "weight search, free for 60 % of the run", "pool(free=0.6)"),
        Part("pool", "weight search, free for 60 % of the run, at a rate of 0.05", "pool(free=0.6, lr=0.05)"),
        Part(
            "pool", "weight search, free at first, within 0.1 MB", "pool(free=0.6, lr=0.05, budget=100000, fold=True)"
        ),
        Part("pool", "weight search with weight decay", "pool(weight_decay=0.0005)"),
        *(Part("pool", f"weight search within {size}", method) for size, method in BUDGETS.items()),
        *(
            Part("pool", f"{size} kernels a layer, within 0.2 MB", "pool(free=0.6, lr=0.05, budget=200000)", size=size)
            for size in (1024, 2048)
        ),
        Part("encode", "Gram metric", "pool-encode"),
        Part("encode", "Gram metric, at a rate of 0.05", "pool-encode(lr=0.05)"),
        Part("encode", "average of three trainings", "pool-encode(soup=3)"),
        Part("encode", "average of three trainings, at a rate of 0.05", "pool-encode(soup=3, lr=0.05)"),
        Part("encode", "average of three trainings, 2048 kernels a layer", "pool-encode(soup=3, lr=0.05)", size=2048),
        Part("encode", "nearest in weight", "pool-encode(metric=weight)"),
        # Table 1
        Part("initialisation", "previous task", "pool(start=previous)", paper=73.4, paper_mb=33.9),
        Part("initialisation", "random", "pool(start=random)", paper=68.7, paper_mb=32.0),
        Part("initialisation", "the best of the earlier tasks", "pool(start=best)"),
        Part("initialisation", "the network, not yet in kernels", "pool(start=network)"),
        Part("data", "pools by k-means alone, CIFAR-10", POOL, made="cluster"),
        Part("data", "half of CIFAR-100, tasks from the other half: one network a task", "finetune", scene="half"),
        Part("data", "half of CIFAR-100, tasks from the other half: weight search", POOL, scene="half"),
        Part("data", "half of CIFAR-100, tasks from the other half: encoded", "pool-encode", scene="half"),
    ]
    # Table 2, seed 1993: β at a rate of 0.01, optimizers and rates at β = 0.5
    rows += [
        Part("beta", f"{b:g}", f"pool(start=previous, beta={b}, lr=0.01)", paper=p, paper_mb=m)
        for b, p, m in ((0.1, 72.9, 33.8), (0.5, 74.1, 33.9), (1.0, 75.6, 33.8))
    ]
    rows += [
        Part("optimizer", f"{o} {r:g}", f"pool(start=previous, optimizer={o}, lr={r})", paper=p, paper_mb=m)
        for o, r, p, m in (("sgd", 0.1, 73.4, 32.4), ("sgd", 0.001, 79.8, 33.6), ("adam", 0.01, 71.0, 25.4))
    ]
    # Table 2, SGD at 0.001: what the seed does; and beside it what is compared with
    for seed, paper in ((1993, 79.8), (1994, 79.7), (1995, 79.3)):
        rows.append(Part("seeds", f"{seed}: weight search", POOL, seed=seed, paper=paper, paper_mb=33.6))
        free = "pool(free=0.6, lr=0.05)"
        rows.append(Part("seeds", f"{seed}: weight search, free for 60 % of the run", free, seed=seed))
        rows.append(Part("seeds", f"{seed}: one network a task", "finetune", seed=seed))
    # Table 4
    rows += [
        Part("size", f"{s} kernels a layer", POOL, size=s, paper=p, paper_mb=m)
        for s, p, m in ((128, 68.9, 25.6), (256, 67.5, 28.8), (512, 72.5, 34.1), (1024, 66.2, 39.1))
    ]
    for arch in ("vgg16", "mobilenetv2"):
        rows += [Part(arch, n, m, arch=arch) for n, m in (("one network a task", "finetune"), ("weight search", POOL))]
    rows += [
        Part("rates", f"{name} at {rate:g}", _at(name, rate), scene="rates", seed=RATES_SEED)
        for name, rates in RATES.items()
        for rate in rates
    ]
    rows += [
        Part("sequence", n, m, scene="sequence")
        for n, m in (
            ("one network a task", "finetune"),
            ("linear probe", "probe"),
            ("batch norms and head", "bn-head"),
            ("rank 4", "lora(rank=4)"),
            ("weight search", POOL),
            ("encoded", "pool-encode"),
        )
    ]
    return rows


PARTS = _parts()
SMOKE_GROUPS = ("finetune", "joint", "sequential", "probe", "bn-head", "packnet", "ksm", "lora", "pool", "encode")
METHODS = (*SMOKE_GROUPS, "quantised")  # rivals of one scene; all other rows are ablations
GOALS = "goals"
JUDGED = ("finetune", "probe", "bn-head", "packnet", "ksm", "quantised", "lora", "pool", "encode")  # by the goals


@study("weight-search", paper="4, appendix Tables 1, 2, 4")
def weight_search(run: Run, *, picks: tuple[str, ...] | None = None) -> Iterator[Row]:
    """Split-CIFAR-100 by weight search and ten other methods: accuracy against megabytes; the paper's ablations."""
    groups = list(dict.fromkeys([part.group for part in PARTS])) if run.full else list(SMOKE_GROUPS)
    known = [*groups, GOALS, *(f"{p.group}: {p.name}" for p in PARTS if p.group in groups)]
    for name in picks or ():
        if name not in known:
            raise UnknownName("part", name, known)
    scenes = Scenes(Family.of(run, seed=0))
    goals = not picks or GOALS in picks
    rows: list[Row] = []
    for part in PARTS:
        title = f"{part.group}: {part.name}"
        if part.group not in groups:
            continue
        shown = not picks or part.group in picks or title in picks
        if shown or (goals and part.group in JUDGED):
            row = _row(part, _play(scenes, part, run.seed), run.full)
            rows.append(row)
            if shown:
                yield row
    if goals:
        yield from goals_of(rows)


def _play(scenes: Scenes, part: Part, seed: int) -> ContinualResult:
    arch = part.arch if scenes.family.full else "resnet8"
    size = part.size if scenes.family.full else 48
    return scenes.play(part.method, arch=arch, scene=part.scene, seed=part.seed + seed, size=size, made=part.made)


def _row(part: Part, found: ContinualResult, full: bool) -> Row:
    return {
        "what": f"{part.group}: {part.name}",
        "paper": part.paper if full else None,
        "ours": round(100 * found.average_accuracy, 2),
        "mb_per_task": round(found.bytes_per_task / MB, 4),
        "mb_shared": round(found.shared_bytes / MB, 4),
        "mb": round(found.total_bytes / MB, 4),
        "paper_mb": part.paper_mb if full else None,
        "forgetting": _plain(100 * found.forgetting),
        "method": found.method,
        "scene": part.scene,
        "arch": part.arch if full else "resnet8",
        "tasks": len(found.tasks),
        "each": [round(100 * float(v), 2) for v in found.matrix[-1]],
        "seed": part.seed,
        "seconds": found.seconds,
        "unit": "percent",
        **({} if part.group in METHODS else {"ablation": True}),
    }


def goals_of(rows: Sequence[Row]) -> Iterator[Row]:
    """What this study set out for, met or missed, told from its rows; what a row is missing for is left out."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.get("scene") == "split":
            found.setdefault(row["what"].split(":")[0], []).append(row)
    ours = [*found.get("pool", []), *found.get("encode", [])]
    plain = [r["ours"] for r in found.get("finetune", []) if r["method"] == "finetune"]
    if plain and ours:
        whole = plain[0]
        near = [r for r in ours if r["mb"] <= 0.4 * r["tasks"]]
        best = _most(near)
        yield _goal("within 0.5 points of one network a task, at 0.4 MB all included", _lead(best, whole), -0.5, best)
        if "encode" in found:
            coded = _most(found["encode"])
            yield _goal("encoded without training, within 1 point", _lead(coded, whole), -1.0, coded)
    for rival in [r for group in ("packnet", "ksm", "quantised", "lora") for r in found.get(group, [])]:
        leader = _most([r for r in ours if r["mb"] <= rival["mb"]])
        yield _goal(
            f"points ahead of {rival['method']} at no more megabytes", _lead(leader, rival["ours"]), 0.0, leader
        )
    least = _most([r for r in found.get("pool", []) if r["mb_per_task"] <= 0.1])
    for group in ("probe", "bn-head"):
        if group in found:
            lead = _lead(least, found[group][0]["ours"])
            yield _goal(f"points ahead of {group} at 0.1 MB a task", lead, 1.0, least)
    if ours:
        changed = max(abs(r["forgetting"] or 0.0) for r in ours)
        yield _goal("points by which an earlier task changed", changed, 0.0, None, below=True)


def _most(rows: Sequence[Row]) -> Row | None:
    return max(rows, key=lambda row: row["ours"], default=None)


def _lead(row: Row | None, other: float) -> float | None:
    return None if row is None else row["ours"] - other


def _goal(what: str, ours: float | None, goal: float, row: Row | None, *, below: bool = False) -> Row:
    met = ours is not None and (ours <= goal if below else ours >= goal)
    return {
        "what": f"goal: {what}",
        "paper": None,
        "ours": None if ours is None else round(ours, 4),
        "goal": goal,
        "met": met,
        "method": None if row is None else row["method"],
        "seed": FIRST_SEED,
    }


def _plain(value: float) -> Any:
    return None if value != value else round(value, 4)
