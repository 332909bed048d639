"""What a search over the numbers of a merge found: every point it tried, and the best."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from brickwork.html_table import rows_table
from brickwork.words import counted

Values = Mapping[str, float | tuple[float, ...]]


@dataclass(frozen=True)
class Point:
    """Numbers that were tried, the accuracy on every set of images, and the mean cross-entropy."""

    values: Values
    accuracy: tuple[float, ...]
    loss: float

    def score(self, by: str) -> tuple[float, float, float]:
        """What points are compared by: accuracy, then the other accuracy, then the loss."""
        mean, worst = sum(self.accuracy) / len(self.accuracy), min(self.accuracy)
        return (*((worst, mean) if by == "worst" else (mean, worst)), -self.loss)

    def to_dict(self) -> dict[str, Any]:
        values = {n: list(v) if isinstance(v, tuple) else v for n, v in self.values.items()}
        return {"values": values, "accuracy": list(self.accuracy), "loss": self.loss}

    def __str__(self) -> str:
        shown = {n: v if isinstance(v, tuple) else (v,) for n, v in self.values.items()}
        return ", ".join(f"{name} {' '.join(f'{x:.4g}' for x in v)}" for name, v in shown.items())


@dataclass(frozen=True)
class MergeSearch:
    """The merged network of the best numbers, and all that were tried in their order, the method's defaults first."""

    model: nn.Module | None = field(repr=False)  # None where only the record was read
    method: str
    search: Mapping[str, tuple[float, float]]
    score: str
    tried: tuple[Point, ...] = field(repr=False)

    @property
    def best(self) -> Point:
        """Of equals the first."""
        return max(self.tried, key=lambda point: point.score(self.score))

    def curve(self) -> list[tuple[float, float]]:
        """For every try its score and the best so far."""
        result: list[tuple[float, float]] = []
        for point in self.tried:
            now = point.score(self.score)[0]
            result.append((now, max(now, result[-1][1]) if result else now))
        return result

    def table(self) -> list[dict[str, Any]]:
        """A row per try: number, values, accuracy on every set, score, loss."""
        return [
            {"try": k + 1, **point.to_dict(), "score": round(point.score(self.score)[0], 6)}
            for k, point in enumerate(self.tried)
        ]

    def to_dict(self) -> dict[str, Any]:
        ranges = {name: list(pair) for name, pair in self.search.items()}
        record = {"search": ranges, "score": self.score, "best": self.best.to_dict(), "tried": self.table()}
        return {"method": self.method, **record}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any], model: nn.Module | None = None) -> "MergeSearch":
        """From what `to_dict` gives, or the `merge` of a network's provenance."""
        tried = tuple(
            Point(
                {n: tuple(v) if isinstance(v, list) else v for n, v in row["values"].items()},
                tuple(row["accuracy"]),
                row["loss"],
            )
            for row in facts["tried"]
        )
        ranges = {name: (low, high) for name, (low, high) in facts["search"].items()}
        return cls(model, facts["method"], ranges, facts["score"], tried)

    def __str__(self) -> str:
        first, best = (point.score(self.score)[0] for point in (self.tried[0], self.best))
        return (
            f"{self.method} after {counted(len(self.tried), 'try')}: {best:.2%} with {self.best}; "
            f"{first:.2%} at the start ({self.tried[0]})"
        )

    def _repr_html_(self) -> str:
        rows = [
            (str(row["try"]), str(point), f"{row['score']:.4f}", f"{point.loss:.4f}")
            for row, point in zip(self.table(), self.tried, strict=True)
        ]
        return rows_table(("try", "values", self.score, "loss"), rows)

    def plot(self, axes: Any = None) -> Any:
        """The accuracy of every try and the best so far, drawn with matplotlib; the axes are returned."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(6, 4)).subplots()
        tries, curve = range(1, len(self.tried) + 1), self.curve()
        axes.plot(tries, [now for now, _ in curve], "o", label="tried")
        axes.step(tries, [best for _, best in curve], where="post", label="best so far")
        axes.set(xlabel="try", ylabel=f"accuracy ({self.score})")
        axes.legend()
        return axes
