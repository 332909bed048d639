"""What a module says of itself: its architecture, the surgery done to it, its classes and preprocessing.

The record rides on the module as the plain attribute `brickwork_origin`. It holds nothing but JSON values,
so that a model folder can rebuild any module from its architecture plus a replay of the surgery,
without pickle and without naming code to import.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

ATTRIBUTE = "brickwork_origin"


@dataclass(frozen=True)
class Preprocessing:
    """How raw uint8 images become network input: resize, scale to 0..1, subtract mean, divide by std."""

    size: tuple[int, int] | None = None  # height, width; None: as the images come
    channels: int = 3
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


@dataclass(frozen=True)
class Origin:
    """Where a module comes from. `arch` is None for a module that Brickwork did not build.

    >>> from torch import nn
    >>> layer = nn.Linear(2, 3)
    >>> origin_of(layer).arch is None
    True
    >>> attach(layer, Origin(arch="demo", args={"width": 3})).steps
    ()
    >>> origin_of(layer).args
    {'width': 3}
    """

    arch: str | None = None
    args: dict[str, Any] = field(default_factory=dict)
    input_shape: tuple[int, ...] | None = None  # of one example, without the batch axis
    classes: tuple[str, ...] | None = None
    preprocessing: Preprocessing | None = None
    steps: tuple[dict[str, Any], ...] = ()  # surgery since the architecture was built, in order, replayable
    parts: tuple[Origin, ...] = ()  # for arch == "join": the origins of the joined networks
    provenance: dict[str, Any] = field(default_factory=dict)  # command, data, seed, input hashes, metrics

    def after(self, step: dict[str, Any], **changes: Any) -> Origin:
        """The origin of a module made from this one by one more step of surgery."""
        return replace(self, steps=(*self.steps, step), **changes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Origin:
        data = dict(data)
        if data.get("preprocessing"):
            known = dict(data["preprocessing"])
            size = known.get("size")
            data["preprocessing"] = Preprocessing(
                size=(int(size[0]), int(size[1])) if size else None,
                channels=int(known.get("channels", 3)),
                mean=tuple(known.get("mean", ())),
                std=tuple(known.get("std", ())),
            )
        data["parts"] = tuple(cls.from_dict(p) for p in data.get("parts", ()))
        for key in ("input_shape", "classes", "steps"):
            if data.get(key) is not None:
                data[key] = tuple(data[key])
        return cls(**data)


def origin_of(model: nn.Module) -> Origin:
    """The record a module carries; an empty one if it carries none."""
    return getattr(model, ATTRIBUTE, None) or Origin()


def attach(model: nn.Module, origin: Origin) -> Origin:
    """Put a record onto a module that Brickwork has just made."""
    setattr(model, ATTRIBUTE, origin)
    return origin


def record_step(
    model: nn.Module, what: str, facts: dict[str, Any], *, before: dict[str, Any] | None = None
) -> nn.Module:
    """The model with a record of what was done to it; what was said of it before (its accuracy, say) moves aside.

    before: what was said of the network that it was made from, where the step had steps of its own.
    """
    origin = origin_of(model)
    before = origin.provenance if before is None else before
    attach(model, replace(origin, provenance={**({"before": before} if before else {}), what: facts}))
    return model
