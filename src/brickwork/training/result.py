"""What a training run tells."""

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from brickwork.html_table import rows_table
from brickwork.training.options import TrainOptions

COLUMNS = ("epoch", "lr", "loss", "accuracy", "validation_loss", "validation_accuracy", "images_per_second")


@dataclass(frozen=True)
class TrainingResult:
    """The model that was trained (the same object that was given), the options as they were decided, and a row per epoch."""

    model: nn.Module = field(repr=False)
    options: TrainOptions
    history: list[dict[str, Any]] = field(repr=False)
    seconds: float
    resumed_at: int = 0  # the epoch a checkpoint was gone on from

    @property
    def images_per_second(self) -> float:
        """The median over the epochs, so that warming up does not count."""
        rates = sorted(row["images_per_second"] for row in self.history)
        return rates[len(rates) // 2] if rates else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "options": self.options.to_dict(),
            "history": self.history,
            "seconds": self.seconds,
            "images_per_second": self.images_per_second,
            "resumed_at": self.resumed_at,
        }

    def __str__(self) -> str:
        head, rows = self._cells()
        widths = [max(len(cell) for cell in column) for column in zip(head, *rows, strict=True)]
        return "\n".join("  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in [head, *rows])

    def _repr_html_(self) -> str:
        return rows_table(*self._cells())

    def plot(self, axes: Any = None) -> Any:
        """Loss and accuracy over the epochs, drawn with matplotlib; the axes are returned."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(6, 4)).subplots()
        epochs = [row["epoch"] for row in self.history]
        for key in ("accuracy", "validation_accuracy"):
            if self.history and key in self.history[-1]:
                axes.plot(epochs, [row[key] for row in self.history], label=key.replace("_", " "))
        axes.plot(epochs, [row["loss"] for row in self.history], label="loss", linestyle="--")
        axes.set_xlabel("epoch")
        axes.legend()
        return axes

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        keys = [key for key in COLUMNS if self.history and key in self.history[-1]]
        return [key.replace("_", " ") for key in keys], [[_cell(row[key]) for key in keys] for row in self.history]


def _cell(value: float) -> str:
    return f"{value:,.0f}" if isinstance(value, int) or value >= 1000 else f"{value:.4f}"
