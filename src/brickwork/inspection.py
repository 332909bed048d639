"""`info`: layers, channel spaces, parameters and multiply-adds of a model, and what a cut would remove."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from brickwork.blueprint import Blueprint, trace
from brickwork.blueprint.computed_weights import plain_layers, plain_weights
from brickwork.devices import device_of
from brickwork.errors import BadModel, BrickworkError, RequestError
from brickwork.html_table import facts_table
from brickwork.latency import latency
from brickwork.model_options import InfoOptions
from brickwork.options import takes
from brickwork.origin import origin_of
from brickwork.words import counted, sides, some_of, table
from brickwork.zoo.summary import Summary, parameters_of, summarize


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a model without looking at images."""

    summary: Summary
    blueprint: dict[str, Any]  # spaces, macs, activation_bytes; or the refusal
    dry_run: dict[str, Any] | None = None  # what a cut would remove
    latency: dict[str, Any] | None = None  # milliseconds of a pass, by the number of examples
    computed: tuple[str, ...] = ()  # layers whose weights are computed; the spaces and the cut are those of plain ones

    def to_dict(self) -> dict[str, Any]:
        """JSON values only."""
        cut = {} if self.dry_run is None else {"dry_run": self.dry_run}
        timed = {} if self.latency is None else {"latency": self.latency}
        computed = {"computed_weights": list(self.computed)} if self.computed else {}
        return {**self.summary.to_dict(), **self.blueprint, **computed, **cut, **timed}

    def __str__(self) -> str:
        if self.dry_run is not None:
            return f"{self._computed()}{_cut_text(self.dry_run)}\nnothing was written"
        rows = [(x.name or "(model)", x.kind, sides(x.output), x.parameters, x.flops) for x in self.summary.layers]
        layers = table(["layer", "kind", "output", "parameters", "FLOPs"], rows)
        text = f"{layers}\n{self._line()}"
        if self.latency is not None:
            times = ", ".join(f"{ms:.2f} ms for {counted(int(n), 'example')}" for n, ms in self.latency["ms"].items())
            text += f"\nlatency: {times} ({self.latency['device']}, {counted(self.latency['threads'], 'thread')})"
        if self.blueprint["spaces"] is None:
            return f"{text}\nchannel spaces: none, {self.blueprint['refused']}"
        macs, activations = self.blueprint["macs"], self.blueprint["activation_bytes"]
        text += f"\n{macs:,} multiply-adds, {activations:,} bytes of activations per example"
        return f"{text}\n\n{self._computed()}{_spaces(self.blueprint['spaces'])}"

    def _computed(self) -> str:
        if not self.computed:
            return ""
        layers = f"{counted(len(self.computed), 'layer')} ({some_of(self.computed, 3)})"
        return f"the weights of {layers} are computed; here, as for compress and disassemble, they are plain ones\n"

    def _line(self) -> str:
        shapes = f"{sides(self.summary.input_shape)} -> {sides(self.summary.output_shape)}"
        counts = f"{counted(self.summary.parameters, 'parameter')}, {self.summary.flops:,} FLOPs per example"
        return f"{shapes}: {counts}"

    def _repr_html_(self) -> str:
        rows = [("model", self._line())]
        rows += [(layer.name, f"{layer.kind}, {layer.parameters:,} parameters") for layer in self.summary.layers]
        return facts_table(rows)


@takes(InfoOptions)
def info(model: nn.Module, *, options: InfoOptions) -> ModelInfo:
    """Layers, channel spaces and sizes of a model; with `dry_run`, what a cut would remove. Nothing is changed.

    >>> from brickwork import zoo
    >>> found = info(zoo.build("lenet"), dry_run=["conv1=0-2"])
    >>> found.summary.parameters, found.dry_run["spaces"]
    (44726, {'conv1': [6, 3]})
    """
    keep = options.keep()
    if options.latency and keep:
        raise RequestError("`latency` is of the model as it is, and `dry_run` cuts nothing; leave one of them out.")
    given = options.input_shape or origin_of(model).input_shape
    if given is None:
        raise RequestError("the model does not say which input it takes; give `input_shape`, as in 3x32x32.")
    first = next(model.parameters(), torch.empty(()))  # a model may have none
    example = torch.zeros(1, *given, dtype=first.dtype)
    try:
        summary = summarize(model, example)
    except (RuntimeError, ValueError, TypeError) as error:
        raise BadModel(f"the model does not take an input of {'x'.join(map(str, given))}: {error}") from error
    timed = _latency(model, example) if options.latency else None
    try:
        plain = plain_weights(model, example)
        bp = trace(plain, example)
    except BrickworkError as refusal:
        if keep:
            raise
        return ModelInfo(summary, {"spaces": None, "refused": str(refusal)}, latency=timed)
    counts = bp.count()
    facts = {"spaces": bp.to_dict()["spaces"], "macs": counts.macs, "activation_bytes": counts.activation_bytes}
    computed = () if plain is model else tuple(plain_layers(plain))
    return ModelInfo(summary, facts, _cut(bp, plain, keep) if keep else None, timed, computed)


def _latency(model: nn.Module, example: torch.Tensor) -> dict[str, Any]:
    """Milliseconds of a pass of one example and of 32, where the model is; the medians of 30 passes."""
    where = device_of(model)
    batches = [example.to(where).expand(count, *example.shape[1:]).contiguous() for count in (1, 32)]
    times = {str(len(batch)): round(1000 * latency(model, batch), 4) for batch in batches}
    return {"ms": times, "device": str(where), "threads": torch.get_num_threads()}


def _cut(bp: Blueprint, model: nn.Module, keep: dict[str, list[int]]) -> dict[str, Any]:
    """What a cut would remove: it is made, in memory, so that what would be refused is refused here."""
    small = bp.select(model, keep)
    before, after = (dict(m.named_parameters()) for m in (model, small))
    changed = [
        {"name": name, "before": list(p.shape), "after": list(after[name].shape) if name in after else None}
        for name, p in before.items()
        if name not in after or after[name].shape != p.shape
    ]
    old, new = bp.count(), bp.count(keep)
    return {
        "keep": keep,
        "spaces": {name: [bp.spaces[name], len(ids)] for name, ids in keep.items()},
        "tensors": changed,
        "parameters": [parameters_of(m) for m in (model, small)],
        "macs": [old.macs, new.macs],
        "activation_bytes": [old.activation_bytes, new.activation_bytes],
    }


def _cut_text(cut: dict[str, Any]) -> str:
    rows = [(t["name"], sides(t["before"]), "→", sides(t["after"] or ())) for t in cut["tensors"]]
    lines = [f"space {name}: {new} of {old} channels stay" for name, (old, new) in cut["spaces"].items()]
    lines.append(table(["parameter", "now", "", "then"], rows))
    names = {"parameters": "parameters", "macs": "multiply-adds", "activation_bytes": "bytes of activations"}
    for key, name in names.items():
        old, new = cut[key]
        lines.append(f"{name}: {old:,} → {new:,} ({new / max(1, old):.1%})")
    return "\n".join(lines)


def _spaces(spaces: list[dict[str, Any]]) -> str:
    rows = []
    for s in spaces:
        stays = "" if not s["fixed"] else f"{s['fixed']} of {s['size']}: {'; '.join(s['why_fixed'])}"
        rows.append((s["name"], s["size"], some_of(s["made_by"]), some_of(s["read_by"]), stays))
    return table(["channel space", "size", "made by", "read by", "must stay"], rows)
