"""The rows of the study of weight search: which method, on which tasks, and the paper's numbers."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_SEED = 1993  # of the paper's three; also the order of the classes
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

    @property
    def title(self) -> str:
        return f"{self.group}: {self.name}"


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
        Part("beta", f"{b:g}", f"pool(start=previous, commitment={b}, lr=0.01)", paper=p, paper_mb=m)
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
