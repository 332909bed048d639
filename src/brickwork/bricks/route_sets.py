"""What `routes` found: for every layer, which channels are on the route of which class, and what is shared."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

from brickwork.bricks.options import RoutesOptions
from brickwork.errors import RequestError, UnknownName
from brickwork.html_table import rows_table
from brickwork.results import JsonResult
from brickwork.words import counted

MOST_CLASSES = 6  # more classes than this have no columns of their own in a table


@dataclass(frozen=True)
class RouteLayer:
    """One column of a route: a channel space, the input, or the classes. Channels are the network's own ids."""

    name: str  # of the space, as in `blueprint.spaces`
    kind: str  # "input", "layer" or "classes"
    size: int  # channels
    on: dict[str, tuple[int, ...]]  # class -> channels on its route
    scores: dict[str, tuple[float, ...]] = field(default_factory=dict, repr=False)  # class -> of every channel
    made_by: tuple[str, ...] = ()  # several layers where channels are coupled, as by a residual sum
    reads: tuple[str, ...] = ()  # the columns it is computed from
    fixed: int = 0  # channels that no cut can remove, and which are on every route for that reason

    @property
    def label(self) -> str:
        """The name, and how many more layers write to the same channels: `layer1.0.conv3 +3`."""
        return self.name if len(self.made_by) < 2 else f"{self.name} +{len(self.made_by) - 1}"

    def users(self) -> list[tuple[str, ...]]:
        """For every channel, the classes whose route it is on."""
        result: list[list[str]] = [[] for _ in range(self.size)]
        for name, channels in self.on.items():
            for k in channels:
                result[k].append(name)
        return [tuple(names) for names in result]

    def relative(self, name: str) -> list[float]:
        """Every channel's score for a class as a multiple of the layer's mean; 1 where nothing is scored."""
        scores = self.scores.get(name, ())
        mean = sum(scores) / len(scores) if scores else 0.0
        return [s / mean for s in scores] if mean > 0 else [1.0] * self.size

    def to_dict(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"name": self.name, "kind": self.kind, "size": self.size}
        facts |= {"made_by": list(self.made_by), "reads": list(self.reads), "fixed": self.fixed}
        facts["on"] = {name: list(channels) for name, channels in self.on.items()}
        facts["scores"] = {name: [float(f"{s:.6g}") for s in row] for name, row in self.scores.items()}
        return facts

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> RouteLayer:
        on, scores = ({name: tuple(row) for name, row in facts[key].items()} for key in ("on", "scores"))
        made_by, reads = tuple(facts["made_by"]), tuple(facts["reads"])
        return cls(facts["name"], facts["kind"], facts["size"], on, scores, made_by, reads, facts["fixed"])


@dataclass(frozen=True)
class Routes(JsonResult):
    """The decision routes of some classes, layer by layer from the input to the classes (paper 2, §6.3, A.1)."""

    FORMAT: ClassVar[str] = "brickwork.routes/1"
    FILE: ClassVar[str] = "routes.json"

    classes: tuple[str, ...]
    layers: tuple[RouteLayer, ...]
    network: str  # architecture, or the name of the module's class
    images: dict[str, int]  # class -> images that scored
    options: RoutesOptions
    source: str = ""  # hash of the network's weights

    @property
    def provenance(self) -> dict[str, Any]:
        """The network by hash, and the options."""
        return {"command": "routes", "inputs": {"model": self.source}, "options": self.options.to_dict()}

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Routes:
        layers = tuple(RouteLayer.from_dict(layer) for layer in facts["layers"])
        options = RoutesOptions.from_dict(facts["options"])
        return cls(tuple(facts["classes"]), layers, facts["network"], facts["images"], options, facts["source"])

    def layer(self, name: str) -> RouteLayer:
        """The column of this name; of a coupled space, any layer that writes to it will do."""
        for layer in self.layers:
            if name in (layer.name, layer.label, *layer.made_by):
                return layer
        raise UnknownName("layer of the routes", name, [layer.name for layer in self.layers])

    def shared(self, layer: str, a: str | None = None, b: str | None = None) -> tuple[int, ...]:
        """The channels on the routes of both classes; of none given, those on at least two of all routes."""
        return tuple(sorted(k for k, users in self._users(layer, a, b).items() if users > 1))

    def either(self, layer: str, a: str | None = None, b: str | None = None) -> tuple[int, ...]:
        """The channels on the route of one or the other; of none given, those on any route."""
        return tuple(sorted(self._users(layer, a, b)))

    def sharing(self, layer: str, a: str | None = None, b: str | None = None) -> float:
        """Shared channels / channels on either route: the percentages of the paper's appendix A.1, as a share."""
        return len(self.shared(layer, a, b)) / max(1, len(self.either(layer, a, b)))

    def share(self, layer: str, name: str) -> float:
        """Channels on the route of a class / all channels of the layer."""
        self._known(name)
        result = self.layer(layer)
        return len(result.on[name]) / result.size

    def to_dict(self) -> dict[str, Any]:
        """JSON values only."""
        layers = []
        for layer in self.layers:
            shared, either = self.shared(layer.name), self.either(layer.name)
            numbers = {"shared": list(shared), "either": len(either), "sharing": self.sharing(layer.name)}
            shares = {name: self.share(layer.name, name) for name in self.classes}
            layers.append({**layer.to_dict(), "share": shares, **numbers})
        return {
            "network": self.network,
            "classes": list(self.classes),
            "images": dict(self.images),
            "options": self.options.to_dict(),
            "source": self.source,
            "layers": layers,
        }

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The numbers as text, a head and one row a layer."""
        own = self.classes if len(self.classes) <= MOST_CLASSES else ()
        many = len(self.classes) > 1
        head = ["layer", "channels", *own, *(("on any", "shared", "sharing") if many else ())]
        rows = []
        for layer in self.layers:
            row = [layer.label, str(layer.size)]
            row += [f"{len(layer.on[n])} ({self.share(layer.name, n):.0%})" for n in own]
            if many:
                row += [str(len(self.either(layer.name))), str(len(self.shared(layer.name)))]
                row += [f"{self.sharing(layer.name):.1%}"]
            rows.append(row)
        return head, rows

    def summary(self) -> str:
        """How the routes were found, in one line."""
        how = f"{self.options.attribution} above {self.options.threshold:g} × the layer's mean"
        return f"{self.network}; {how}; {counted(sum(self.images.values()), 'image')}"

    def title(self) -> str:
        names = list(self.classes)
        if len(names) > MOST_CLASSES:
            return f"Decision routes of {len(names)} classes"
        what = "routes" if len(names) > 1 else "route"
        return f"Decision {what} of " + " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))

    def __str__(self) -> str:
        head, rows = self.table()
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
        lines = []
        for row in [head, *rows]:
            cells = [c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
            lines.append("  ".join(cells))
        return "\n".join([f"{self.title()} ({self.summary()})", *lines])

    def _repr_html_(self) -> str:
        return rows_table(*self.table(), lines=[f"{self.title()} ({self.summary()})"])

    def _users(self, layer: str, a: str | None, b: str | None) -> Counter[int]:
        """How many of the routes of two classes, or of all, a channel is on."""
        on = self.layer(layer).on
        return Counter(k for name in self._pair(a, b) for k in on[name])

    def _pair(self, a: str | None, b: str | None) -> tuple[str, ...]:
        if a is None and b is None:
            return self.classes
        if a is None or b is None or a == b:
            raise RequestError("sharing is between two classes; name two different ones, or none for all.")
        self._known(a)
        self._known(b)
        return a, b

    def _known(self, name: str) -> None:
        if name not in self.classes:
            raise UnknownName("class of the routes", name, self.classes)
