"""The table of benchmarks: a decorator on a plain function is the whole registry.

@benchmark("surgery", help="trace and cut against Torch-Pruning")
def surgery(contest: Contest, *, arch: str = "resnet50") -> Outcome: ...

The function gets a Contest, which measures contenders with the options that benchmarks have in common, and its own
options by keyword. Whole numbers must be 1 or more, unless `at_least` says otherwise.
"""

import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from brickwork.devices import pick
from brickwork.errors import MissingExtra, RequestError, UnknownName
from brickwork.progress import bar
from brickwork_lab.benchmarks.measure import Contender, Row, in_turn


@dataclass(frozen=True)
class Outcome:
    """What a benchmark measured: a row for each contender, peer ÷ ours, further tables, and a remark on how."""

    rows: list[Row]
    ratios: dict[str, float]
    tables: dict[str, list[Row]] = field(default_factory=dict)

    def to_dict(self, name: str) -> dict[str, Any]:
        return {"name": name, "rows": self.rows, "ratios": self.ratios, **self.tables}


@dataclass(frozen=True)
class Contest:
    """How contenders are measured: how often, each in a process of its own or not, and where."""

    name: str
    repeat: int = 3
    separate: bool = True
    device: str = "cpu"

    def measure(self, contenders: Mapping[str, Contender], **arguments: Any) -> list[Row]:
        """A row for each contender, measured in turn on the same arguments."""
        title = " ".join([self.name, *(str(arguments[k]) for k in ("arch", "size") if k in arguments)])
        with bar(title, self.repeat * len(contenders)) as advance:
            return in_turn(contenders, arguments, repeat=self.repeat, separate=self.separate, tell=advance)


@dataclass(frozen=True)
class Benchmark:
    """One entry: its name, one line of help, and the function that runs it with keyword options."""

    name: str
    help: str
    function: Callable[..., Outcome]
    common: tuple[str, ...] = ("repeat", "separate", "device")  # options of the contest that make sense for it
    at_least: Mapping[str, int] = field(default_factory=dict)
    repeat: int = 3  # unless a user says otherwise
    needs: str = ""  # the peer's module, of the extra dev

    @property
    def options(self) -> dict[str, Any]:
        """Every option with its default."""
        own = list(inspect.signature(self.function).parameters.values())[1:]
        defaults = {"repeat": self.repeat, "separate": Contest.separate, "device": Contest.device}
        return {**{p.name: p.default for p in own}, **{name: defaults[name] for name in self.common}}

    def __call__(self, **options: Any) -> Outcome:
        known = self.options
        for name, value in options.items():
            if name not in known:
                raise UnknownName(f"option of benchmark {self.name}", name, known)
            kind, least = type(known[name]), self.at_least.get(name, 1)
            if type(value) is not kind:
                raise RequestError(f"{name} of benchmark {self.name} must be {kind.__name__}, not {value!r}")
            if kind is int and value < least:
                raise RequestError(f"{name} must be {least} or more, not {value}")
        if self.needs and importlib.util.find_spec(self.needs) is None:
            raise MissingExtra("dev", f"comparisons with {self.needs}")
        if "device" in known:
            pick(options.get("device", known["device"]))  # refuses one that there is not
        contest = Contest(self.name, **{name: options.pop(name, known[name]) for name in self.common})
        return self.function(contest, **options)

    run = __call__


REGISTRY: dict[str, Benchmark] = {}


def benchmark(name: str, *, help: str, **facts: Any) -> Callable[[Callable[..., Outcome]], Benchmark]:
    """Put a function into the table under `name`; facts are those of a Benchmark."""

    def register(function: Callable[..., Outcome]) -> Benchmark:
        if name in REGISTRY:
            raise ValueError(f"two benchmarks are called {name!r}")
        REGISTRY[name] = Benchmark(name, help, function, **facts)
        return REGISTRY[name]

    return register


def find(name: str) -> Benchmark:
    if name not in REGISTRY:
        raise UnknownName("benchmark", name, REGISTRY)
    return REGISTRY[name]
