"""Paper 4 (appendix), Tables 1, 2 and 4: task after task from frozen kernels, beside what else one could do.

The paper's pools are pretrained on ImageNet, which is not at hand: here on CIFAR-10 for Split-CIFAR-100 in 20 tasks, on
half of CIFAR-100 for 10 tasks of the other half, on CIFAR-100 for a sequence of other sets. The paper trains 100 epochs in
batches of 32, this study 30 of up to 128. The accuracy of Finetune and the other baselines stands in the main paper, which
could not be had. Every method starts from the same network; megabytes (2²⁰ bytes) are those of the files on disk.

The paper's tasks are CIFAR-100's twenty superclasses of five similar classes, the same for all seeds: group "superclass".
Shuffled classes, as in most groups here, are easier to tell apart, and what sets methods apart is smaller there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brickwork import continual
from brickwork.continual import ContinualResult, Scenario
from brickwork.continual.result import MB
from brickwork.data.class_groups import SUPERCLASS
from brickwork.data.images import ImageData
from brickwork.pools import KernelPool, PoolFolder
from brickwork.store import state_hash
from brickwork_lab.lab import AUGMENTED, Lab, digest
from brickwork_lab.studies.registry import Names, Row, averaged, check_names, read_json, study

FIRST_SEED = 1993  # of the paper's three; where classes are shuffled, also their order
#: how the networks that everything starts from are trained
STARTS: dict[str, dict[str, Any]] = {
    "resnet18": {**AUGMENTED, "epochs": 20, "batch_size": 512, "lr": 0.2},
    "vgg16": {**AUGMENTED, "epochs": 30, "batch_size": 128, "lr": 0.05},
    "mobilenetv2": {**AUGMENTED, "epochs": 30, "batch_size": 256, "lr": 0.1},
}
#: and the pools, from those networks
POOLS = {**AUGMENTED, "epochs": 6, "batch_size": 256, "lr": 0.02}
SMOKE_START = {"epochs": 6, "batch_size": 32, "lr": 0.05, "schedule": "onecycle"}
SMOKE_POOL = {"epochs": 1, "batch_size": 32, "lr": 0.02, "schedule": "onecycle", "augment": "none"}
#: scene: what start and pool are trained on, what tasks are made of, how many and of how many classes
SPLITS: dict[str, tuple[str, str, int, int]] = {
    "split": ("cifar10", "cifar100", 20, 5),
    "half": ("cifar100:A", "cifar100:B", 10, 5),
    "superclass": ("cifar10", "cifar100", 20, 5),
    "rates": ("cifar10", "cifar100", 20, 5),  # the first two tasks of another order, on held-out training images
}
#: whole sets one after another; of the large ones 500 training images per class, as many as a task of CIFAR-100 has
SEQUENCE = ("cifar100", ("cifar10@500", "fashion_mnist@500", "mnist@500", "pets"))
SMOKE_SPLIT = ("digits:0-3", "digits:4-9@50", 3, 2)
SMOKE_KINDS = {"round": ("6", "8", "9"), "straight": ("4", "5", "7")}
SMOKE_GROUPS = ("finetune", "joint", "sequential", "probe", "bn-head", "packnet", "ksm", "lora", "pool", "encode")
METHODS = (*SMOKE_GROUPS, "quantised", "bitdelta")  # rivals of one scene; all other rows are ablations
GOALS = "goals"
JUDGED = (
    "finetune",
    "probe",
    "bn-head",
    "packnet",
    "ksm",
    "quantised",
    "bitdelta",
    "lora",
    "pool",
    "encode",
)  # by the goals


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
    seeds: int = 1  # so many from that one on, averaged
    paper: float | None = None  # average accuracy
    paper_mb: float | None = None  # in all

    @property
    def title(self) -> str:
        return f"{self.group}: {self.name}"


#: Table 1 of the paper is the group initialisation, Table 2 beta, optimizer and (means over its seeds) superclass,
#: Table 4 size. Budgets: with the pool's own bytes shared out, 20 tasks stay below 0.4 MB each. Learning rates were
#: chosen by the group "rates", on held-out training images of two tasks of an order of classes that nothing else uses.
PARTS = [Part(**row) for row in read_json("weight_search.json")]


@study("weight-search", paper="4, appendix Tables 1, 2, 4")
def weight_search(lab: Lab, *, picks: Names = None, seeds: int | None = None) -> Iterator[Row]:
    """Split-CIFAR-100 by weight search and ten other methods: accuracy against megabytes; the paper's ablations."""
    known = [*dict.fromkeys(part.group for part in PARTS), GOALS, *(part.title for part in PARTS)]
    check_names("part", picks, known)
    parts = [part for part in PARTS if lab.full or picks or part.group in SMOKE_GROUPS]
    runs = Runs(replace(lab.in_colour(), seed=0))
    goals = not picks or GOALS in picks
    rows: list[Row] = []
    for part in parts:
        shown = not picks or part.group in picks or part.title in picks
        if shown or (goals and part.group in JUDGED):
            count = (seeds or part.seeds) if lab.full else 1
            each = [replace(part, seed=part.seed + lab.seed + k) for k in range(count)]
            rows += averaged([[_row(one, runs.run(one), lab.full)] for one in each])
            if shown:
                yield rows[-1]
    if goals:
        yield from goals_of(rows)


@dataclass
class Runs:
    """A method over the tasks of a scene, from a trained network and its pool; found again where they are on record."""

    lab: Lab
    _pools: dict[str, KernelPool] = field(default_factory=dict)

    def tasks(self, scene: str, seed: int) -> Scenario:
        if scene == "sequence":
            return continual.sequence([self.lab.data(spec) for spec in SEQUENCE[1]], size=32)
        _, source, tasks, per = SPLITS[scene] if self.lab.full else SMOKE_SPLIT
        if scene == "superclass":
            groups = SUPERCLASS if self.lab.full else SMOKE_KINDS
            return continual.split_classes(self.lab.data(source), groups=groups)
        split = continual.split_classes(self.lab.data(source), tasks=tasks, per=per, seed=seed)
        if scene != "rates":
            return split
        return Scenario(f"two of {split.name}", split.tasks[:2]).held_out()

    def source(self, scene: str) -> ImageData:
        """What the start and the pool are trained on."""
        if not self.lab.full:
            return self.lab.data(SMOKE_SPLIT[0])
        return self.lab.data(SEQUENCE[0] if scene == "sequence" else SPLITS[scene][0])

    def start(self, arch: str, scene: str) -> nn.Module:
        images = self.source(scene)
        args = {} if self.lab.full else {"width": 4}
        bare = self.lab.start(arch, 0, images.preprocessing(), outputs=len(images.classes), **args)
        recipe = STARTS[arch] if self.lab.full else SMOKE_START
        return self.lab.trained(f"{arch}-{images.name.replace(':', '-')}", bare, images, recipe, record=True)

    def pool(self, arch: str, scene: str, size: int, made: str) -> KernelPool:
        """Codebooks trained with the start's network ("pretrain"), or k-means of its kernels ("cluster")."""
        start, images, lab = self.start(arch, scene), self.source(scene), self.lab
        settings = POOLS if lab.full else SMOKE_POOL
        key = digest((state_hash(start), settings if made == "pretrain" else {}, size, made))[:10]
        if key not in self._pools:
            folder = None if lab.networks is None else Path(lab.networks) / f"pool-{arch}-{key}"
            if folder is not None and (folder / "pool.json").exists():
                self._pools[key] = PoolFolder.open(folder).pool
                return self._pools[key]
            if made == "cluster":
                pool = KernelPool.cluster([start], size=size, device=lab.where)
            else:
                options = {**settings, "size": size, "record": True, "device": lab.where, "progress": lab.progress}
                training = images.train_images, images.train_labels
                pool = KernelPool.pretrain(start, *training, classes=images.classes, **options)
            if folder is not None:
                PoolFolder.create(folder, pool, force=True)
            self._pools[key] = pool
        return self._pools[key]

    def run(self, part: Part) -> ContinualResult:
        """One method over all tasks of its scene."""
        lab, scene, seed = self.lab, part.scene, part.seed
        arch, size = (part.arch, part.size) if lab.full else ("resnet8", 48)
        epochs = 30 if lab.full else 5
        start = self.start(arch, scene)
        pool = self.pool(arch, scene, size, part.made) if "pool" in part.method else None
        tasks = self.tasks(scene, seed)
        out = None
        if lab.networks is not None:
            facts = (state_hash(start), pool and pool.hash, epochs, seed, [list(t.classes) for t in tasks.tasks])
            out = Path(lab.networks) / f"tasks-{arch}-{scene}-{digest(facts)[:10]}"
        # digits and MNIST lose their meaning in a mirror; in a sequence all sets are treated alike
        augment = "none" if not lab.full else "crop" if scene == "sequence" else "crop+flip"
        options: dict[str, Any] = {"out": out, "epochs": epochs, "augment": augment, "pool": pool, "seed": seed}
        result = continual.run(tasks, [part.method], start, device=lab.where, progress=lab.progress, **options)
        if lab.where.type == "cuda":
            torch.cuda.empty_cache()
        return next(iter(result.results.values()))


def _row(part: Part, result: ContinualResult, full: bool) -> Row:
    sizes = {"mb_per_task": result.bytes_per_task, "mb_shared": result.shared_bytes, "mb": result.total_bytes}
    forgetting = 100 * result.forgetting
    return {
        "what": part.title,
        "paper": part.paper if full else None,
        "ours": round(100 * result.average_accuracy, 2),
        **{name: round(count / MB, 4) for name, count in sizes.items()},
        "paper_mb": part.paper_mb if full else None,
        "forgetting": None if isnan(forgetting) else round(forgetting, 4),
        "method": result.method,
        "scene": part.scene,
        "arch": part.arch if full else "resnet8",
        "tasks": len(result.tasks),
        "each": [round(100 * float(v), 2) for v in result.matrix[-1]],
        "seed": part.seed,
        "seconds": result.seconds,
        "unit": "percent",
        **({} if part.group in METHODS else {"ablation": True}),
    }


def goals_of(rows: Sequence[Row]) -> Iterator[Row]:
    """What this study set out for, met or missed, read from its rows; a goal whose rows are missing is left out."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.get("scene") == "split":
            groups.setdefault(row["what"].split(":")[0], []).append(row)
    ours = [*groups.get("pool", []), *groups.get("encode", [])]
    plain = [r["ours"] for r in groups.get("finetune", []) if r["method"] == "finetune"]
    if plain and ours:
        whole = plain[0]
        near = [r for r in ours if r["mb"] <= 0.4 * r["tasks"]]
        best = _most(near)
        yield _goal("within 0.5 points of one network a task, at 0.4 MB all included", _lead(best, whole), -0.5, best)
        if "encode" in groups:
            coded = _most(groups["encode"])
            yield _goal("encoded without training, within 1 point", _lead(coded, whole), -1.0, coded)
    for rival in [r for group in ("packnet", "ksm", "quantised", "bitdelta", "lora") for r in groups.get(group, [])]:
        leader = _most([r for r in ours if r["mb"] <= rival["mb"]])
        yield _goal(
            f"points ahead of {rival['method']} at no more megabytes", _lead(leader, rival["ours"]), 0.0, leader
        )
    least = _most([r for r in groups.get("pool", []) if r["mb_per_task"] <= 0.1])
    for group in ("probe", "bn-head"):
        if group in groups:
            lead = _lead(least, groups[group][0]["ours"])
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
    result: Row = {"what": f"goal: {what}", "paper": None, "ours": None if ours is None else round(ours, 4)}
    return {**result, "goal": goal, "met": met, "method": row and row["method"], "seed": FIRST_SEED}
