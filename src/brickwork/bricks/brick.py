"""A brick: a part of a classifier for some of its classes, with what is needed to join it fairly."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from brickwork import store
from brickwork.bricks.options import DisassembleOptions
from brickwork.copying import copy_module
from brickwork.data.datasets import images_of
from brickwork.data.streamed import Images
from brickwork.devices import DeviceLike
from brickwork.errors import BadFile, BadModel
from brickwork.html_table import facts_table
from brickwork.moments import LayerFit
from brickwork.options import fields_of
from brickwork.origin import attach, origin_of
from brickwork.prediction import predict
from brickwork.words import counted

PROVENANCE = "brick"  # the entry of a model folder's provenance that makes it a brick
WHOLE = "whole"  # the entry that keeps the whole network's own provenance


def spread_of(logits: Tensor) -> float:
    """Root mean square of logits about their mean within an image: what is added to all of them does not count.

    >>> spread_of(Tensor([[1.0, 3.0], [12.0, 14.0]]))
    1.0
    """
    return float((logits - logits.mean(1, keepdim=True)).square().mean().sqrt())


@dataclass(frozen=True, eq=False)
class Brick:
    """A part cut from a network. A model folder with these facts in its provenance is the same on disk."""

    model: nn.Module = field(repr=False)
    classes: tuple[str, ...]
    source: str  # state hash of the whole network
    kept: dict[str, list[int]] = field(repr=False)  # space -> channels, in the whole network's ids
    #: "accuracy", "agreement" (with the whole, on images without labels), "auroc" (one against the rest) of one class, or
    #: "variance explained" of the whole's answers, where these are numbers; of maps "mean IoU", or "mean IoU with the whole"
    judged_by: str
    accuracy_before: float | None  # of the whole restricted to the classes, on held-out images; None: no images
    accuracy_after: float | None  # of the part
    parameters: float  # share of the whole's
    macs: float
    mean: tuple[float, ...] = field(repr=False)  # of each logit over the source images, for calibration
    std: tuple[float, ...] = field(repr=False)
    # of the whole network's logits within an image, over the source images
    spread: float | None = field(repr=False)
    input_shape: tuple[int, ...]  # of one example
    output: str | int | None = None  # which of several outputs is the logits
    options: DisassembleOptions = field(default_factory=DisassembleOptions, repr=False)
    used: dict[str, Any] = field(default_factory=dict, repr=False)  # how many images scored and repaired it
    note: str = ""
    fits: tuple[LayerFit, ...] = field(default=(), repr=False)

    @classmethod
    def whole(cls, model: nn.Module, *, images: Images | None = None) -> Brick:
        """A whole network as a brick of all its classes; unlabelled images of its data give the statistics."""
        origin = origin_of(model)
        if origin.classes is None or origin.input_shape is None:
            missing = "how its classes are called" if origin.classes is None else "which images it takes"
            raise BadModel(
                f"the model does not say {missing}; train it with Brickwork, import it, or say it: "
                'brickwork.origin.attach(model, Origin(classes=("cat", "dog"), input_shape=(3, 32, 32))).'
            )
        copied = copy_module(model).eval()
        mean: tuple[float, ...] = ()
        std: tuple[float, ...] = ()
        spread = None
        if images is not None:
            logits = predict(copied, images_of(images)).double()
            mean, std = tuple(logits.mean(0).tolist()), tuple(logits.std(0, unbiased=False).tolist())
            spread = spread_of(logits)
        return cls(
            model=copied,
            classes=origin.classes,
            source=store.state_hash(model),
            kept={},
            judged_by="accuracy",
            accuracy_before=None,
            accuracy_after=None,
            parameters=1.0,
            macs=1.0,
            mean=mean,
            std=std,
            spread=spread,
            input_shape=tuple(origin.input_shape),
            options=DisassembleOptions(repair="none"),
        )

    @property
    def provenance(self) -> dict[str, Any]:
        """The whole network by hash, the options, and how many images were used."""
        return {
            "command": "disassemble",
            "inputs": {"model": self.source},
            "options": self.options.to_dict(),
            **self.used,
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON values only, without the network."""
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "model"}
        facts = {name: list(value) if isinstance(value, tuple) else value for name, value in facts.items()}
        return {**facts, "options": self.options.to_dict(), "fits": [fit.to_dict() for fit in self.fits]}

    def save(self, folder: str | Path, *, force: bool = False, **provenance: Any) -> Path:
        """Write the brick as a model folder; `Brick.load` and `brickwork.load` both read it."""
        return store.save(self.model, folder, force=force, provenance=provenance)

    @classmethod
    def load(cls, folder: str | Path, *, arch: store.folder.Arch | None = None, device: DeviceLike = "cpu") -> Brick:
        """The brick of a model folder; BadFile if the folder holds an ordinary model."""
        facts = store.read_config(folder).provenance.get(PROVENANCE)
        if not isinstance(facts, dict):
            raise BadFile(f"{folder} is a model, not a brick; cut one out of it with: brickwork disassemble {folder}")
        try:
            return cls.of_facts(store.load(folder, arch=arch, device=device), facts)
        except (KeyError, TypeError) as error:
            raise BadFile(f"the brick's facts in {folder} are incomplete: {error}.") from error

    @classmethod
    def of_facts(cls, model: nn.Module, facts: dict[str, Any]) -> Brick:
        """A network that was loaded already, with what its provenance says of the cut."""
        known = {name: value for name, value in facts.items() if name in cls.__dataclass_fields__}
        for name in ("classes", "mean", "std", "input_shape"):
            known[name] = tuple(known[name])
        known["fits"] = tuple(LayerFit(**fit) for fit in known["fits"])
        known["options"], known["used"] = options_of(facts)
        return cls(model, **known)

    def with_provenance(self) -> Brick:
        """Write the facts into the network's own record, so that they are saved with it."""
        origin = origin_of(self.model)
        # What is said of the whole (its own test accuracy, say) must not read as said of the part.
        whole = {WHOLE: origin.provenance} if origin.provenance else {}
        provenance = {**whole, PROVENANCE: self.to_dict()}
        attach(self.model, replace(origin, classes=self.classes, input_shape=self.input_shape, provenance=provenance))
        return self

    def rows(self) -> list[tuple[str, str]]:
        """What is printed of it: a name and a value a line."""
        rows = [
            ("classes", ", ".join(self.classes)),
            ("parameters", f"{self.parameters:.1%} of the whole"),
            ("multiply-adds", f"{self.macs:.1%} of the whole"),
        ]
        if "latency" in self.used:
            timed = self.used["latency"]
            rows.append(("time", f"{timed['share']:.1%} of the whole for {counted(timed['batch'], 'image')} at once"))
        if self.accuracy_after is not None:
            name = "AUROC" if self.judged_by == "auroc" else self.judged_by
            rows.append((f"held-out {name}", f"{self.accuracy_before:.2%} whole, {self.accuracy_after:.2%} part"))
            if "judged" in self.used:
                which = "of the test split" if self.used["judged"]["of"] == "test" else "held out of those given"
                rows.append(("measured on", f"{counted(self.used['judged']['images'], 'image')} {which}"))
        if "polish" in self.used:
            facts = self.used["polish"]
            taught = f"{counted(facts['epochs'], 'epoch')} of {counted(facts['images'], 'image')}"
            rows.append(("polish", f"{taught}: {facts['before']:.2%} before, {facts['after']:.2%} after"))
        rows.append(("source", self.source[:16]))
        return [*rows, ("note", self.note)] if self.note else rows

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def _repr_html_(self) -> str:
        return facts_table(self.rows())


def options_of(facts: dict[str, Any]) -> tuple[DisassembleOptions, dict[str, Any]]:
    """Of a saved brick; before version 0.2 they were called settings, with the counts of images among them."""
    if "options" in facts:
        return DisassembleOptions.from_dict(facts["options"]), facts.get("used", {})
    old = facts.get("settings", {})
    known = {k: v for k, v in old.items() if k in fields_of(DisassembleOptions) and v is not None}
    return DisassembleOptions(**known), {k: old[k] for k in ("images", "scored", "united") if k in old}
