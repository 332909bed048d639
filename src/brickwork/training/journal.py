"""One line of JSON an epoch, and TensorBoard curves where wanted."""

import json
import os
from pathlib import Path
from typing import Any

from brickwork.errors import MissingExtra


class Journal:
    """Writes a row an epoch to a JSONL file and to TensorBoard; either may be None."""

    def __init__(
        self,
        metrics: str | os.PathLike[str] | None,
        tensorboard: str | os.PathLike[str] | None,
        earlier: list[dict[str, Any]],
    ) -> None:
        self.file = None
        self.board = None
        if tensorboard is not None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise MissingExtra("tensorboard", "TensorBoard curves") from None
            self.board = SummaryWriter(str(tensorboard), purge_step=len(earlier) + 1)
        if metrics is not None:
            Path(metrics).parent.mkdir(parents=True, exist_ok=True)
            # Written anew: after a kill the file may hold an epoch that the checkpoint does not know.
            self.file = open(metrics, "w", encoding="utf-8")  # noqa: SIM115
            for row in earlier:
                self._line(row)

    def add(self, row: dict[str, Any]) -> None:
        self._line(row)
        if self.board is not None:
            for key, value in row.items():
                if key != "epoch":
                    self.board.add_scalar(key, value, row["epoch"])

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
        if self.board is not None:
            self.board.close()

    def _line(self, row: dict[str, Any]) -> None:
        if self.file is not None:
            self.file.write(json.dumps(row) + "\n")
            self.file.flush()
