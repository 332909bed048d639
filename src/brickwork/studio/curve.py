"""How good a part is at several budgets: computed beside the page, while no job wants the machine, and kept."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from brickwork import data
from brickwork.bricks.disassembly import Cutting
from brickwork.bricks.options import DisassembleOptions
from brickwork.errors import BrickworkError, RequestError
from brickwork.latency import latency
from brickwork.origin import origin_of
from brickwork.prediction import input_of
from brickwork.studio.jobs import Jobs
from brickwork.studio.requests import SCORED, CurveRequest
from brickwork.studio.shelf import Shelf

BUDGETS = (0.5, 0.25, 0.1, 0.05, 0.75)  # in the order they are computed
KEPT, WAITING = 200, 16  # curves that are remembered, and that may wait
PATIENCE = 5.0  # seconds after which a curve that no page asks for any more is given up


@dataclass
class Curve:
    """Accuracy and time of a part at the budgets that are known so far, the whole network's at 1."""

    request: CurveRequest
    rows: list[dict[str, float | None]] = field(default_factory=list)
    by: str = "accuracy"  # or auroc, of one class
    error: str | None = None
    over: bool = False
    asked: float = field(default_factory=time.monotonic)

    def to_dict(self) -> dict[str, Any]:
        rows = sorted(self.rows, key=lambda row: row["budget"] or 0)
        return {"done": self.over, "rows": rows, "by": self.by, "error": self.error}


@dataclass
class Curves:
    """The curves of one studio."""

    shelf: Shelf
    jobs: Jobs
    device: str = "cpu"
    closed: bool = False
    _all: dict[tuple[Any, ...], Curve] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "curves"))

    def ask(self, request: CurveRequest) -> dict[str, Any]:
        """What is known of a curve; it is begun where it was not asked for before."""
        spec = str((self.shelf.spec if request.large else self.shelf.at_hand)(request.data))
        self.shelf.check_classes(request.model, request.classes)
        key = *self.shelf.key(request.model), tuple(request.classes), spec
        with self._lock:
            curve = self._all.get(key)
            if curve is None or (curve.over and curve.error == GIVEN_UP):
                if sum(not one.over for one in self._all.values()) >= WAITING:
                    raise RequestError("many curves are being computed; wait a little.")
                for old in [k for k, one in self._all.items() if one.over][: max(0, len(self._all) - KEPT)]:
                    del self._all[old]
                curve = self._all[key] = Curve(request)
                self._worker.submit(self._run, curve)
            curve.asked = time.monotonic()
        return curve.to_dict()

    def close(self) -> None:
        """Begin nothing more, as when the studio ends."""
        self.closed = True

    def _wanted(self, curve: Curve) -> bool:
        return not self.closed and time.monotonic() - curve.asked < PATIENCE

    def _run(self, curve: Curve) -> None:
        try:
            for step in self._steps(curve):
                while (self.jobs.busy() or self.shelf.waiting) and self._wanted(curve):
                    time.sleep(0.05)
                if not self._wanted(curve):
                    curve.error = GIVEN_UP
                    break
                with self.shelf.busy:
                    step()
        except BrickworkError as error:
            curve.error = str(error)
        except Exception as error:  # told, as a job's fault is
            curve.error = f"{type(error).__name__}: {error}"
        curve.over = True

    def _steps(self, curve: Curve) -> Any:
        """Work in pieces, so that a build never waits for more than one of them."""
        request = curve.request
        held: dict[str, Any] = {}

        def order() -> None:
            model = self.shelf.load(request.model, self.device)
            images = data.load_for(origin_of(model).preprocessing, str(self.shelf.spec(request.data)))
            options = DisassembleOptions(budget=BUDGETS[0], scored=SCORED)
            held["cutting"] = Cutting(
                model, request.classes, images, device=self.device, options=options, progress=False
            )
            held["example"] = input_of(
                model, (images.test_images if len(images.test_images) else images.train_images)[:1]
            )
            judge = held["cutting"].judge
            curve.by = judge.kind
            curve.rows.append({"budget": 1.0, "accuracy": judge.before, "ms": self._time(model, held["example"])})

        def cut(budget: float) -> None:
            try:
                brick = held["cutting"].brick(DisassembleOptions(budget=budget, scored=SCORED))
            except RequestError:  # narrower than this network can be
                return
            ms = self._time(brick.model, held["example"])
            curve.rows.append({"budget": budget, "accuracy": brick.accuracy_after, "ms": ms})

        yield order
        for budget in BUDGETS:
            yield lambda budget=budget: cut(budget)

    @staticmethod
    def _time(model: Any, example: Any) -> float:
        return 1000 * latency(model, example, repeat=7, warm_up=2)


GIVEN_UP = "no page asked for it any more"
