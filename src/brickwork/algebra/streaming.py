"""Merge files tensor by tensor: memory for a few tensors, not for a model; numpy alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import brickwork
from brickwork.algebra.files import INDEX, SINGLE, Tensors, Writer
from brickwork.algebra.methods import PIECE
from brickwork.algebra.plan import kinds_of, run, steps
from brickwork.algebra.recipe import MergeRecipe
from brickwork.atomic import file_hash, write_folder
from brickwork.errors import BadFile, RequestError
from brickwork.progress import bar
from brickwork.store.config import CARD, CONFIG, hash_tensors, read_config, write_config
from brickwork.words import counted

#: safetensors' types as torch, and so a model folder's config.json, calls them
TORCH_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
OWNS = ("config.json", SINGLE, INDEX)


@dataclass(frozen=True)
class MergedFiles:
    """What was written."""

    folder: Path
    tensors: int
    merged: int
    kept: tuple[str, ...]
    shards: int

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "folder": str(self.folder), "kept": list(self.kept)}

    def __str__(self) -> str:
        kept = f", {len(self.kept)} kept as they were" if self.kept else ""
        files = f" in {self.shards} files" if self.shards > 1 else ""
        return f"{counted(self.merged, 'tensor')} merged{kept}; saved in {self.folder}{files}"


def merge_files(recipe: MergeRecipe, out: str | Path, *, force: bool = False, progress: bool = True) -> MergedFiles:
    """Merge the recipe's files into a folder shaped like the first: same shards, same types, same order.

    A Brickwork model folder stays one (config.json, card); the recipe stands in the files' metadata and in the card.
    """
    models = [Tensors(path) for path in recipe.models]
    base = Tensors(recipe.base) if recipe.base is not None else None
    out = Path(out)
    inputs = {t.path.resolve() for t in [*models, *([base] if base else [])]}
    if out.resolve() in inputs:
        raise RequestError(f"{out} is one of the models to merge; choose another `out`.")
    every = [*models, base] if base is not None else models
    kinds = kinds_of(
        [{n: (e.shape, e.is_float) for n, e in t.entries.items()} for t in every],
        len(models),
        recipe.request,
        names=[str(t.path) for t in every],
    )
    first, kept_from = models[0], base if base is not None else models[0]
    # in the order of the first model's files, so that each output file is written once, from front to end
    order = [n for shard in first.shards for n, e in first.entries.items() if e.file == shard]
    plan = steps(recipe.request, {name: kinds[name] for name in order})
    notes = {"brickwork": brickwork.__version__, "recipe": json.dumps(recipe.to_dict(), ensure_ascii=False)}
    kept = []
    with write_folder(out, force=force, owns=OWNS) as draft, bar("merging", len(plan), show=progress) as advance:
        results = run(recipe.request, models, base, plan, piece=PIECE)
        for shard in first.shards:
            mine = [n for n in order if first.entries[n].file == shard]
            name = shard.name if len(first.shards) > 1 else SINGLE
            with open(draft / name, "wb") as file:
                writer = Writer(
                    file,
                    [(n, first.entries[n].kind, first.entries[n].shape) for n in mine],
                    {**first.metadata[shard.name], **notes},
                )
                for tensor in mine:
                    result, values = next(results)
                    assert result == tensor
                    if values is None:
                        same = kept_from.entries[tensor].shape == first.entries[tensor].shape
                        source = kept_from if same and kept_from.entries[tensor].kind == writer.kinds[tensor] else first
                        writer.put_bits(tensor, source.bits(tensor))
                        kept.append(tensor)
                    else:
                        writer.put(tensor, values)
                    advance(1, tensor)
        _finish(first, draft, recipe, len(first.shards))
    return MergedFiles(out, len(plan), len(plan) - len(kept), tuple(kept), len(first.shards))


def _finish(first: Tensors, draft: Path, recipe: MergeRecipe, shards: int) -> None:
    """The index of shards, and what makes a Brickwork model folder, or the configuration that the first model has."""
    if shards > 1:
        weight_map = {n: e.file.name for n, e in first.entries.items()}
        total = sum(e.size for e in first.entries.values())
        text = json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=1)
        (draft / INDEX).write_text(text + "\n", encoding="utf-8")
    config = first.path / CONFIG
    if first.path.is_dir() and config.is_file():
        if shards == 1 and _is_ours(config):
            _write_model_folder(first, draft, recipe)
            return
        shutil.copyfile(config, draft / CONFIG)
    text = json.dumps(recipe.to_dict(), indent=1, ensure_ascii=False)
    (draft / CARD).write_text(
        f"---\nlibrary_name: brickwork\ntags:\n- merge\n---\n\n# A merged model\n\n```json\n{text}\n```\n",
        encoding="utf-8",
    )


def _is_ours(config: Path) -> bool:
    return "brickwork" in json.loads(config.read_text(encoding="utf-8"))


def _write_model_folder(first: Tensors, draft: Path, recipe: MergeRecipe) -> None:
    """The merged folder of Brickwork models: the first one's record, with where the weights come from now."""
    known = read_config(first.path)
    written, tied = Tensors(draft), known.weights.tied
    paths = [*recipe.models, *([recipe.base] if recipe.base else [])]
    provenance = {"command": "merge", "inputs": {str(p): _recorded_hash(p) for p in paths}, "merge": recipe.to_dict()}
    weights = {
        **known.weights.model_dump(),
        "sha256": file_hash(draft / SINGLE),
        "state_hash": hash_tensors(_contents(written, tied)),
    }
    write_config(draft, replace(known.origin(), provenance=provenance), weights)


def _recorded_hash(path: Path) -> str | None:
    """The hash of an input's weights, where a Brickwork folder records it."""
    try:
        return read_config(path).weights.state_hash
    except BadFile:
        return None


def _contents(tensors: Tensors, tied: dict[str, str]) -> Iterator[tuple[str, str, Any, Any]]:
    """Names, types, shapes and bytes in the order of the names, as the store hashes them."""
    for name in sorted([*tensors.entries, *tied]):
        entry = tensors.entries[tied.get(name, name)]
        content = np.ascontiguousarray(tensors.bits(entry.name)).view(np.uint8).data if entry.size else b""
        yield name, TORCH_NAMES[entry.kind], entry.shape, content
