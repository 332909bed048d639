"""What the study of weight search plays on: the network everything starts from, its pool, and tasks, kept in a folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brickwork import continual
from brickwork.continual import ContinualResult, Scenario
from brickwork.data.images import ImageData
from brickwork.pools import KernelPool, PoolFolder
from brickwork.store import state_hash
from brickwork_lab.studies.family import Family

FIRST_SEED = 1993  # of the paper's three; also the order of the classes
AUGMENTED: dict[str, Any] = {"augment": "crop+flip", "weight_decay": 5e-4, "schedule": "onecycle"}
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
    "rates": ("cifar10", "cifar100", 20, 5),  # the first two tasks of another order, on held-out training images
}
#: whole sets one after another; of the large ones 500 training images a class, as many as a task of CIFAR-100 has
SEQUENCE = ("cifar100", ("cifar10@500", "fashion_mnist@500", "mnist@500", "pets"))
SMOKE_SPLIT = ("digits:0-3", "digits:4-9@50", 3, 2)


@dataclass
class Scenes:
    """One run's place of work; `family` has the data and keeps the networks."""

    family: Family
    _pools: dict[str, KernelPool] = field(default_factory=dict)

    @property
    def epochs(self) -> int:
        return 30 if self.family.full else 5

    def tasks(self, scene: str, seed: int) -> Scenario:
        if scene == "sequence":
            return continual.sequence([self.family.data(spec) for spec in SEQUENCE[1]], size=32)
        _, source, tasks, per = SPLITS[scene] if self.family.full else SMOKE_SPLIT
        split = continual.split_classes(self.family.data(source), tasks=tasks, per=per, seed=seed)
        if scene != "rates":
            return split
        return Scenario(f"two of {split.name}", split.tasks[:2]).held_out()

    def source(self, scene: str) -> ImageData:
        """What the start and the pool are trained on."""
        if not self.family.full:
            return self.family.data(SMOKE_SPLIT[0])
        return self.family.data(SEQUENCE[0] if scene == "sequence" else SPLITS[scene][0])

    def start(self, arch: str, scene: str) -> nn.Module:
        images = self.source(scene)
        args = {} if self.family.full else {"width": 4}
        bare = self.family.start(arch, 0, images.preprocessing(), outputs=len(images.classes), **args)
        recipe = STARTS[arch] if self.family.full else SMOKE_START
        name = f"{arch}-{images.name.replace(':', '-')}"
        return self.family.trained(name, bare, images, recipe, record=True)

    def pool(self, arch: str, scene: str, size: int, made: str) -> KernelPool:
        """Codebooks trained with the start's network ("pretrain"), or k-means of its kernels ("cluster")."""
        start, images = self.start(arch, scene), self.source(scene)
        how = POOLS if self.family.full else SMOKE_POOL
        sign = _sign(state_hash(start), how if made == "pretrain" else {}, size, made)
        if sign not in self._pools:
            kept = None if self.family.networks is None else Path(self.family.networks) / f"pool-{arch}-{sign}"
            if kept is not None and (kept / "pool.json").exists():
                self._pools[sign] = PoolFolder.open(kept).pool
                return self._pools[sign]
            if made == "cluster":
                pool = KernelPool.cluster([start], size=size, device=self.family.where)
            else:
                pool = KernelPool.pretrain(
                    start,
                    images.train_images,
                    images.train_labels,
                    classes=images.classes,
                    size=size,
                    record=True,
                    device=self.family.where,
                    progress=self.family.progress,
                    **how,
                )
            if kept is not None:
                PoolFolder.create(kept, pool, force=True)
            self._pools[sign] = pool
        return self._pools[sign]

    def play(
        self, method: str, *, arch: str, scene: str, seed: int, size: int = 512, made: str = "pretrain"
    ) -> ContinualResult:
        """One method over the tasks of a scene, found again where its tasks are on record."""
        start = self.start(arch, scene)
        pool = self.pool(arch, scene, size, made) if "pool" in method else None
        tasks = self.tasks(scene, seed)
        out = None
        if self.family.networks is not None:
            facts = (state_hash(start), pool and pool.hash, self.epochs, seed, [list(t.classes) for t in tasks.tasks])
            out = Path(self.family.networks) / f"tasks-{arch}-{scene}-{_sign(*facts)}"
        # digits and MNIST lose their meaning in a mirror; in a sequence all sets are treated alike
        augment = "none" if not self.family.full else "crop" if scene == "sequence" else "crop+flip"
        found = continual.run(
            tasks,
            [method],
            start,
            out=out,
            epochs=self.epochs,
            augment=augment,
            pool=pool,
            seed=seed,
            device=self.family.where,
            progress=self.family.progress,
        )
        if self.family.where.type == "cuda":
            torch.cuda.empty_cache()
        return next(iter(found.results.values()))


def _sign(*facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:10]
