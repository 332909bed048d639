"""What `cancel` found: terms at the start, how well they predict the real difference, and what it costs the tasks."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: what each prediction of the real difference is called, and what it is
PREDICTIONS = {
    "ggc": "the paper's term, Ĥ₂ĝ₁ at the start",
    "path": "Hessians along the second task's path",
    "secant": "the first gradients' real difference",
}
NETWORKS = ("start", "first", "second", "sequential", "assigned", "assigned + ggc")
ALL = "all"  # the row of the whole network


@dataclass(frozen=True)
class Terms:
    """One layer at θ_0: ĝ_1 and ĝ_2 are the two tasks' gradients, Ĥ_2 the second task's Hessian.

    conflict is cos(ĝ_1, ĝ_2), None where one of them is 0. curvature is the layer's part of ĝ_1ᵀĤ_2ĝ_1: where the whole is
    positive, training in sequence costs the first task more than assignment, at second order.
    """

    layer: str
    numbers: int
    first: float  # ‖ĝ_1‖
    second: float  # ‖ĝ_2‖
    conflict: float | None
    ggc: float  # ‖Ĥ_2ĝ_1‖; the paper's term is −β times this vector
    curvature: float


@dataclass(frozen=True)
class Fit:
    """The real difference D = sequential − assigned of one layer, and each prediction's cos(P, D) and ‖P − D‖ / ‖D‖.

    share is ‖D‖ / ‖g_2‖, g_2 what training on the second task alone added. Without any term, at first order, D would be
    0, whose error is 1. None where D is 0.
    """

    lr: float
    steps: int
    layer: str
    real: float  # ‖D‖
    share: float | None
    cosine: dict[str, float | None]
    error: dict[str, float | None]


@dataclass(frozen=True)
class Judged:
    """Loss and accuracy of one network on the two tasks' images, (first, second)."""

    lr: float
    steps: int
    network: str
    loss: tuple[float, float]
    accuracy: tuple[float | None, float | None]


@dataclass(frozen=True)
class Cancellation:
    data: tuple[str, str]  # in the order of training
    images: tuple[int, int]
    terms: tuple[Terms, ...] = field(repr=False)
    fits: tuple[Fit, ...] = field(repr=False)
    judged: tuple[Judged, ...] = field(repr=False)
    seconds: float = 0.0

    @property
    def lr(self) -> list[float]:
        return sorted({f.lr for f in self.fits})

    @property
    def steps(self) -> list[int]:
        return sorted({f.steps for f in self.fits})

    @property
    def whole(self) -> Terms:
        """The terms of the whole network."""
        return next(t for t in self.terms if t.layer == ALL)

    def fit(self, lr: float, steps: int, layer: str = ALL) -> Fit:
        return next(f for f in self.fits if (f.lr, f.steps, f.layer) == (lr, steps, layer))

    def judge(self, lr: float, steps: int, network: str) -> Judged:
        return next(j for j in self.judged if (j.lr, j.steps, j.network) == (lr, steps, network))

    def forgotten(self, lr: float, steps: int) -> tuple[float, float]:
        """By how much the first task's loss is higher in sequence than assigned: really, and at second order."""
        real = [self.judge(lr, steps, who).loss[0] for who in ("sequential", "assigned")]
        return real[0] - real[1], (lr * steps) ** 2 * self.whole.curvature

    def table(self) -> list[dict[str, Any]]:
        """One row for every lr, number of steps and layer ("all": the whole network)."""
        return [
            {"lr": f.lr, "steps": f.steps, "layer": f.layer, "real": f.real, "share": f.share}
            | {f"{name}_{what}": getattr(f, what)[name] for name in PREDICTIONS for what in ("cosine", "error")}
            for f in self.fits
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "data": list(self.data),
            "images": list(self.images),
            "terms": [asdict(t) for t in self.terms],
            "rows": self.table(),
            "judged": [asdict(j) for j in self.judged],
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        whole = self.whole
        lines = [
            f"{self.data[0]} first, then {self.data[1]}: conflict cos(ĝ₁, ĝ₂) {_shown(whole.conflict)}, "
            f"‖Ĥ₂ĝ₁‖ {whole.ggc:.4g}, ĝ₁ᵀĤ₂ĝ₁ {whole.curvature:.4g}",
            "     lr  steps   ‖D‖/‖g₂‖  error: ggc       path     secant  first task's accuracy: in sequence, assigned",
        ]
        for lr in self.lr:
            for steps in self.steps:
                fit = self.fit(lr, steps)
                errors = "  ".join(f"{_shown(fit.error[name]):>9}" for name in PREDICTIONS)
                rates = [self.judge(lr, steps, who).accuracy[0] for who in ("sequential", "assigned")]
                summary = ", ".join("–" if r is None else f"{r:.1%}" for r in rates)
                lines.append(f"{lr:>7g} {steps:>6}  {_shown(fit.share):>9}   {errors}  {summary}")
        return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}" if abs(value) < 100 else f"{value:.3g}"


def layers_of(names: Sequence[str]) -> list[str]:
    """The layer that each parameter belongs to.

    >>> layers_of(["conv.weight", "conv.bias", "scale"])
    ['conv', 'conv', 'itself']
    """
    return [name.rpartition(".")[0] or "itself" for name in names]
