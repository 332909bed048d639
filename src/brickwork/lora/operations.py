"""`lora bake`, `lora merge` and `lora extract`: on folders, tensor by tensor."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from brickwork.algebra.agreement import refuse_differences
from brickwork.algebra.files import SINGLE, Tensors, Writer
from brickwork.algebra.numbers import FLOATS
from brickwork.algebra.streaming import OWNS, our_config, write_beside, write_index
from brickwork.atomic import check_output, write_folder
from brickwork.errors import BadModel, RequestError
from brickwork.lora.adapter import Adapter, Factors
from brickwork.lora.options import LoraBakeOptions, LoraExtractOptions, LoraMergeOptions
from brickwork.options import takes
from brickwork.ownership import RECORD
from brickwork.progress import bar
from brickwork.store.foreign import read_json
from brickwork.tensor_file import inside
from brickwork.words import counted, some_of

Folder = str | Path
#: architectures of transformers that keep the weights of these layers as (in, out), and no others
TURNED = ("gpt2", "openai-gpt", "imagegpt", "decision_transformer")
TURNED_LAYERS = ("c_attn", "c_proj", "c_fc", "q_attn")


@dataclass(frozen=True)
class LoraResult:
    """What was written, and facts of it."""

    folder: Path
    layers: int
    facts: dict[str, Any]
    text: str

    def to_dict(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "layers": self.layers, **self.facts}

    def __str__(self) -> str:
        return f"{self.text}; saved in {self.folder}"


@takes(LoraBakeOptions)
def bake(
    base: Folder, adapter: Folder, out: Folder, *, force: bool = False, progress: bool = True, options: LoraBakeOptions
) -> LoraResult:
    """The base with the adapter inside its weights: W + alpha · scale · B·A, rounded once to what the base is stored in.

    Folders of transformers: everything beside the weights is copied. Layers and heads that were trained whole
    (`modules_to_save`) take the place of the base's, and need alpha=1.

    >>> import tempfile
    >>> from safetensors.numpy import load_file, save_file
    >>> place = Path(tempfile.mkdtemp())
    >>> (place / "base").mkdir()
    >>> save_file({"q.weight": np.zeros((2, 3), np.float32)}, place / "base" / "model.safetensors")
    >>> ones = Adapter({"q": Factors(np.ones((1, 3)), np.ones((2, 1)))}, {})
    >>> _ = ones.save(place / "adapter", {})
    >>> print(bake(place / "base", place / "adapter", place / "baked").layers)
    1
    >>> load_file(place / "baked" / "model.safetensors")["q.weight"].sum()
    np.float32(6.0)
    """
    check_output(out, force=force, owns=OWNS)
    weights, given, alpha = Tensors(base), Adapter.load(adapter), options.alpha
    if our_config(weights) is not None:
        raise RequestError(f"{base} is a Brickwork model folder; bake into the folder of transformers it came from.")
    if given.whole and alpha != 1:
        raise RequestError(f"{adapter} holds whole tensors ({some_of(sorted(given.whole))}); bake it with alpha 1.")
    targets = {f"{layer}.weight": layer for layer in given.layers}
    for name in [*targets, *given.whole]:
        shape = given.whole[name].shape if name in given.whole else given.shape(targets[name])
        if name not in weights.entries:
            raise BadModel(f"{adapter} changes {name}, which {base} has not; it belongs to another base.")
        if weights.entries[name].shape != shape:
            raise BadModel(f"{adapter} changes {name} by {shape}, and {base} has it as {weights.entries[name].shape}.")
        if weights.entries[name].kind not in FLOATS:
            raise BadModel(
                f"{name} of {base} is stored as {weights.entries[name].kind}; bake into an unquantised base."
            )
    weights.verify()
    facts = {"command": "lora bake", "base": str(base), "adapter": str(adapter), "alpha": alpha}
    with write_folder(out, force=force, owns=OWNS) as draft, bar("baking", len(weights), show=progress) as advance:
        for shard in weights.shards:
            mine = [e for e in weights.entries.values() if e.file == shard]
            with open(draft / (shard.name if len(weights.shards) > 1 else SINGLE), "wb") as file:
                entries = [(e.name, e.kind, e.shape) for e in mine]
                writer = Writer(file, entries, {**weights.metadata[shard.name], "format": "pt"}, sealed=True)
                for entry in mine:
                    if entry.name in given.whole:
                        writer.put(entry.name, given.whole[entry.name])
                    elif entry.name in targets:
                        change = np.asarray(alpha, np.float32) * given.change(targets[entry.name])
                        writer.put(entry.name, weights[entry.name] + change)
                    else:
                        writer.put_bits(entry.name, weights.bits(entry.name))
                    advance(1, entry.name)
        write_index(weights, draft)
        write_beside(weights.path, draft, "A model with an adapter baked in", facts)
    return LoraResult(Path(out), len(given.layers), facts, f"{counted(len(given.layers), 'layer')} changed")


@takes(LoraMergeOptions)
def merge(adapters: Sequence[Folder], out: Folder, *, force: bool = False, options: LoraMergeOptions) -> LoraResult:
    """One adapter whose product is the weighted sum of the adapters' products, exactly unless `rank` shortens it.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> for name, value in (("one", 1.0), ("two", 3.0)):
    ...     _ = Adapter({"q": Factors(np.full((1, 3), value), np.full((2, 1), value))}, {}).save(place / name, {})
    >>> merge([place / "one", place / "two"], place / "both").facts["rank"]
    2
    >>> Adapter.load(place / "both").change("q").tolist()
    [[5.0, 5.0, 5.0], [5.0, 5.0, 5.0]]
    """
    if len(adapters) < 2:
        raise RequestError("give two adapters or more to merge.")
    weights = options.weight or (1 / len(adapters),) * len(adapters)
    if len(weights) != len(adapters):
        raise RequestError(f"there are {len(weights)} weights for {len(adapters)} adapters; give one each, or none.")
    given = [Adapter.load(folder) for folder in adapters]
    for one in given:
        if one.whole:
            raise BadModel(f"{one.path} holds whole tensors, too ({some_of(sorted(one.whole))}); bake it instead.")
        if one.transposed != given[0].transposed:
            raise BadModel(f"{one.path} and {given[0].path} do not keep weights alike (fan_in_fan_out).")
    names = list(dict.fromkeys(layer for one in given for layer in one.layers))
    layers = {}
    for layer in names:
        own = [(one, w) for one, w in zip(given, weights, strict=True) if layer in one.layers]
        shapes = {str(one.path): (layer, one.layers[layer].b.shape[0], one.layers[layer].a.shape[1]) for one, _ in own}
        if len({shape[1:] for shape in shapes.values()}) > 1:
            raise BadModel(f"{' and '.join(shapes)} change {layer} of other sizes; they belong to different bases.")
        joined = Factors(
            np.concatenate([one.layers[layer].a for one, _ in own]),
            np.concatenate([np.float32(w) * one.layers[layer].b for one, w in own], 1),
        )
        layers[layer] = joined if options.rank is None else joined.shortened(options.rank)
    facts = {
        "command": "lora merge",
        "adapters": [str(folder) for folder in adapters],
        "weights": list(weights),
        "rank": max(pair.rank for pair in layers.values()),
    }
    Adapter(layers, given[0].config, transposed=given[0].transposed).save(out, facts, force=force)
    text = f"{counted(len(adapters), 'adapter')} merged by their products, rank {facts['rank']}"
    return LoraResult(Path(out), len(layers), facts, text)


@takes(LoraExtractOptions)
def extract(
    trained: Folder,
    base: Folder,
    out: Folder,
    *,
    force: bool = False,
    progress: bool = True,
    options: LoraExtractOptions,
) -> LoraResult:
    """What training added to linear layers as a LoRA of a rank: the largest singular values of trained − base.

    >>> import tempfile
    >>> from safetensors.numpy import save_file
    >>> place = Path(tempfile.mkdtemp())
    >>> for name, value in (("base", 0.0), ("tuned", 2.0)):
    ...     (place / name).mkdir()
    ...     save_file({"q.weight": np.full((2, 3), value, np.float32)}, place / name / "model.safetensors")
    >>> extract(place / "tuned", place / "base", place / "adapter", rank=1).facts["explained"]
    1.0
    """
    check_output(out, force=force, owns=(RECORD,))
    after, before = Tensors(trained), Tensors(base)
    shapes = {str(t.path): {n: e.shape for n, e in t.entries.items()} for t in (after, before)}
    refuse_differences(shapes)
    for one in (after, before):
        one.verify()
    turned = _keeps_weights_turned(before.path)
    layers, left, kept, total = {}, [], 0.0, 0.0
    with bar("extracting", len(before), show=progress) as advance:
        for name, entry in before.entries.items():
            advance(1, name)
            if entry.kind not in FLOATS:
                continue
            change = after[name].astype(np.float32) - before[name].astype(np.float32)
            if not change.any():
                continue
            if not np.isfinite(change).all():
                raise BadModel(
                    f"{name} of {trained} or {base} holds NaN or infinite values; there is no difference to take."
                )
            layer = name.removesuffix(".weight")
            plain = change.ndim == 2 and layer != name and not any(fnmatch.fnmatch(layer, p) for p in options.skip)
            plain = plain and (not turned or layer.rpartition(".")[2] in TURNED_LAYERS)
            total += float(np.square(change, dtype=np.float64).sum())
            if not plain:
                left.append(name)
                continue
            u, values, vt = np.linalg.svd(change.T if turned else change, full_matrices=False)
            root = np.sqrt(values[: options.rank])
            layers[layer] = Factors(root[:, None] * vt[: options.rank], u[:, : options.rank] * root)
            kept += float(np.square(values[: options.rank], dtype=np.float64).sum())
    if not layers:
        raise BadModel(
            f"{trained} and {base} differ in no linear layer that gets an adapter; there is nothing to extract."
        )
    facts = {
        "command": "lora extract",
        "trained": str(trained),
        "base": str(base),
        "rank": max(pair.rank for pair in layers.values()),
        "explained": round(kept / total, 6),
        "left_out": left,
    }
    Adapter(layers, {"base_model_name_or_path": str(base)}, transposed=turned).save(out, facts, force=force)
    missing = f"; without what changed in {some_of(left)}" if left else ""
    text = f"{counted(len(layers), 'layer')} at rank {facts['rank']}: {kept / total:.1%} of the squared change{missing}"
    return LoraResult(Path(out), len(layers), facts, text)


def _keeps_weights_turned(base: Path) -> bool:
    """Whether a folder of transformers holds one of TURNED: weights alone do not tell (in, out) from (out, in)."""
    config = (base if base.is_dir() else base.parent) / "config.json"
    return config.is_file() and read_json(inside(config)).get("model_type") in TURNED
