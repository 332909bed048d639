"""What a module says of itself: its architecture, the surgery done to it, its classes and preprocessing.

The record rides on the module as the plain attribute `brickwork_origin`. It holds nothing but JSON values,
so that a model folder can rebuild any module from its architecture plus a replay of the surgery,
without pickle and without naming code to import.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from brickwork.errors import RequestError

if TYPE_CHECKING:
    from torch import nn

ATTRIBUTE = "brickwork_origin"


Interpolation = Literal["bilinear", "bicubic", "nearest"]
INTERPOLATIONS: tuple[str, ...] = get_args(Interpolation)


@dataclass(frozen=True)
class Framing:
    """How an image of any size becomes one of the network's size: scaled, then the middle is cut out of it."""

    resize: int | tuple[int, int] | None = None  # the shorter side, or height and width; None: to the network's size
    interpolation: Interpolation = "bilinear"


@dataclass(frozen=True, repr=False)
class Preprocessing:
    """How raw uint8 images become network input: resize, scale to 0..1, subtract mean, divide by std.

    >>> Preprocessing((224, 224), mean=(0.5,) * 3, std=(0.5,) * 3, resize=256).framing
    Framing(resize=256, interpolation='bilinear')
    """

    size: tuple[int, int] | None = None  # height, width; None: as the images come
    channels: int = 3
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    resize: int | tuple[int, int] | None = None  # before the middle of `size` is cut out; see Framing
    interpolation: Interpolation = "bilinear"

    @property
    def framing(self) -> Framing:
        """How an image of another size is brought to `size`."""
        return Framing(self.resize, self.interpolation)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; how images are framed only where that is not the usual way."""
        usual = Framing()
        facts = {"size": self.size, "channels": self.channels, "mean": self.mean, "std": self.std}
        changed = {
            f.name: getattr(self, f.name) for f in fields(usual) if getattr(self, f.name) != getattr(usual, f.name)
        }
        return {**facts, **changed}

    def __repr__(self) -> str:
        return f"Preprocessing({', '.join(f'{name}={value!r}' for name, value in self.to_dict().items())})"


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

    def __post_init__(self) -> None:
        known = self.preprocessing
        if self.input_shape is None and known is not None and known.size is not None:
            object.__setattr__(self, "input_shape", (known.channels, *known.size))

    def after(self, step: dict[str, Any], **changes: Any) -> Origin:
        """The origin of a module made from this one by one more step of surgery."""
        return replace(self, steps=(*self.steps, step), **changes)

    def to_dict(self) -> dict[str, Any]:
        facts = {**asdict(self), "parts": tuple(part.to_dict() for part in self.parts)}
        return {**facts, "preprocessing": self.preprocessing.to_dict() if self.preprocessing else None}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Origin:
        data = dict(data)
        if data.get("preprocessing"):
            known = dict(data["preprocessing"])
            size, resize = known.get("size"), known.get("resize")
            data["preprocessing"] = Preprocessing(
                size=(int(size[0]), int(size[1])) if size else None,
                channels=int(known.get("channels", 3)),
                mean=tuple(known.get("mean", ())),
                std=tuple(known.get("std", ())),
                resize=(int(resize[0]), int(resize[1])) if isinstance(resize, list | tuple) else resize,
                interpolation=known.get("interpolation", "bilinear"),
            )
        data["parts"] = tuple(cls.from_dict(p) for p in data.get("parts", ()))
        for key in ("input_shape", "classes", "steps"):
            if data.get(key) is not None:
                data[key] = tuple(data[key])
        return cls(**data)


def check_module(model: object) -> None:
    """Refuse what is no network; of a brick, and whatever else holds one, its network is wanted."""
    from torch import nn

    if not isinstance(model, nn.Module):
        hint = "; give its .model" if isinstance(getattr(model, "model", None), nn.Module) else ""
        raise RequestError(f"a torch.nn.Module is needed, and this is a {type(model).__name__}{hint}.")
    lazy = next((name for name, values in model.named_parameters() if nn.parameter.is_lazy(values)), None)
    if lazy is not None:
        raise RequestError(f"{lazy} has no values yet (a lazy layer); run the model once on an example first.")


def origin_of(model: nn.Module) -> Origin:
    """The record a module carries; an empty one if it carries none."""
    return getattr(model, ATTRIBUTE, None) or _noted(model).get(ATTRIBUTE) or Origin()


def attach(model: nn.Module, origin: Origin) -> Origin:
    """Put a record onto a module that Brickwork has just made."""
    setattr(model, ATTRIBUTE, origin)
    _noted(model)[ATTRIBUTE] = origin
    return origin


def _noted(model: nn.Module) -> dict[str, Any]:
    """What a torch.fx module notes beside its graph: of all that it holds, copies keep that alone."""
    found = vars(model).get("meta") if hasattr(model, "graph") else None
    return found if isinstance(found, dict) else {}


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
