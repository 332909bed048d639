"""Merge files tensor by tensor: memory for a few tensors, not for a model; numpy alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import brickwork
from brickwork.algebra.companions import copy_companions, front_matter
from brickwork.algebra.files import INDEX, SINGLE, Tensors, Writer
from brickwork.algebra.methods import PIECE
from brickwork.algebra.numbers import FLOATS
from brickwork.algebra.plan import kinds_of, run, steps
from brickwork.algebra.recipe import MergeRecipe
from brickwork.atomic import file_hash, write_folder
from brickwork.errors import BadFile, RequestError
from brickwork.ownership import RECORD, write_record
from brickwork.progress import bar
from brickwork.store.config import CARD, CONFIG, Config, hash_tensors, read_config, write_config
from brickwork.tensor_file import TORCH_NAMES
from brickwork.words import counted, some_of

OWNS = ("config.json", SINGLE, INDEX, RECORD)


@dataclass(frozen=True)
class MergedFiles:
    """What was written."""

    folder: Path
    tensors: int
    merged: int
    kept: tuple[str, ...]
    shards: int
    unverified: tuple[Path, ...] = ()  # inputs for which no hash is recorded
    copied: tuple[str, ...] = ()  # files of the first model's folder, as they were
    left_out: tuple[str, ...] = ()  # weights in other formats, pickles
    recipe: dict[str, Any] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()  # what may be meant, and what users of the result should know

    def to_dict(self) -> dict[str, Any]:
        names = ("kept", "unverified", "copied", "left_out", "notes")
        return {**vars(self), "folder": str(self.folder), **{n: [str(one) for one in getattr(self, n)] for n in names}}

    def __str__(self) -> str:
        kept = f", {len(self.kept)} kept as they were" if self.kept else ""
        files = f" in {self.shards} files" if self.shards > 1 else ""
        strange = (
            f"; not verified, no sha256 is recorded: {some_of(list(map(str, self.unverified)))}"
            if self.unverified
            else ""
        )
        beside = f"; beside them {some_of(self.copied, 5)} of the first model" if self.copied else ""
        beside += f"; left out: {some_of(self.left_out, 5)}" if self.left_out else ""
        text = f"{counted(self.merged, 'tensor')} merged{kept}; saved in {self.folder}{files}{beside}{strange}"
        return "\n".join([text, *(f"note: {note}." for note in self.notes)])


def merge_files(recipe: MergeRecipe, out: str | Path, *, force: bool = False, progress: bool = True) -> MergedFiles:
    """Merge the recipe's files into a folder shaped like the first: same shards, same types, same order.

    A Brickwork model folder stays one (config.json, card). Of a folder that another library wrote, everything but weights
    is copied: tokenizer, chat template, generation config. The recipe stands in the files' metadata and in the card.
    """
    models = [Tensors(path) for path in recipe.models]
    base = Tensors(recipe.base) if recipe.base is not None else None
    out = Path(out)
    inputs = {t.path.resolve() for t in [*models, *([base] if base else [])]}
    if out.resolve() in inputs:
        raise RequestError(f"{out} is one of the models to merge; choose another `out`.")
    every = [*models, base] if base is not None else models
    kinds = kinds_of(
        [{n: (e.shape, e.kind in FLOATS) for n, e in t.entries.items()} for t in every],
        len(models),
        recipe.request,
        names=[str(t.path) for t in every],
    )
    first, kept_from = models[0], base if base is not None else models[0]
    # in the order of the first model's files, so that each output file is written once, from front to end
    order = [n for shard in first.shards for n, e in first.entries.items() if e.file == shard]
    plan = steps(recipe.request, {name: kinds[name] for name in order})
    known = our_config(first)
    unverified = [path for t in every for path in t.verify()]
    notes = {"brickwork": brickwork.__version__, "recipe": json.dumps(recipe.to_dict(), ensure_ascii=False)}
    if unverified:
        notes["unverified"] = json.dumps([str(path) for path in unverified], ensure_ascii=False)
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
                    sealed=known is None,
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
        copied, left = _finish(first, draft, recipe, known, unverified)
    counts = len(plan), len(plan) - len(kept), tuple(kept), len(first.shards)
    beside = tuple(unverified), tuple(copied), tuple(left)
    return MergedFiles(out, *counts, *beside, recipe.to_dict(), tuple(recipe.notes()))


def _finish(
    first: Tensors, draft: Path, recipe: MergeRecipe, known: Config | None, unverified: Sequence[Path]
) -> tuple[list[str], list[str]]:
    """The index of shards, and what makes a Brickwork model folder, or what lies beside the first model's weights."""
    write_index(first, draft)
    if known is not None:
        _write_model_folder(draft, recipe, known, unverified)
        return [], []
    return write_beside(first.path, draft, "A merged model", recipe.to_dict())


def write_index(first: Tensors, draft: Path) -> None:
    """The index of the shards of a folder shaped like `first`, where there are several."""
    if len(first.shards) > 1:
        weight_map = {n: e.file.name for n, e in first.entries.items()}
        total = sum(e.size for e in first.entries.values())
        text = json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=1)
        (draft / INDEX).write_text(text + "\n", encoding="utf-8")


def write_beside(folder: Path, draft: Path, title: str, facts: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What another library's folder has beside its weights, a card, and a record; what was copied and what left out."""
    copied, left = copy_companions(folder, draft) if folder.is_dir() else ([], [])
    text = json.dumps(facts, indent=1, ensure_ascii=False)
    head = front_matter(folder)
    (draft / CARD).write_text(f"{head}\n\n# {title}\n\n```json\n{text}\n```\n", encoding="utf-8")
    write_record(draft, "merged", facts)
    return copied, left


def our_config(first: Tensors) -> Config | None:
    """What a Brickwork folder says of itself; None for other people's. One of ours that is damaged is refused."""
    if not (first.path / CONFIG).is_file() or len(first.shards) > 1:
        return None
    try:
        entries = json.loads((first.path / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadFile(f"{first.path / CONFIG} is not JSON: {error}.") from error
    if not isinstance(entries, dict) or not {"brickwork", "format", "weights"} & set(entries):
        return None
    known = read_config(first.path)
    listed = {n: (t.dtype, tuple(t.shape)) for n, t in known.weights.tensors.items()}
    if listed != {n: (TORCH_NAMES[e.kind], e.shape) for n, e in first.entries.items()}:
        raise BadFile(f"{first.path / CONFIG} does not list the tensors that {first.shards[0].name} holds.")
    strange = [n for n, source in known.weights.tied.items() if n in listed or source not in listed]
    if strange:
        raise BadFile(f"{first.path / CONFIG} says that {strange[0]!r} is another tensor's alias, which cannot be.")
    return known


def _write_model_folder(draft: Path, recipe: MergeRecipe, known: Config, unverified: Sequence[Path]) -> None:
    """The merged folder of Brickwork models: the first one's record, with where the weights come from now."""
    written, tied = Tensors(draft), known.weights.tied
    paths = [*recipe.models, *([recipe.base] if recipe.base else [])]
    provenance = {"command": "merge", "inputs": {str(p): _recorded_hash(p) for p in paths}, "merge": recipe.to_dict()}
    if unverified:
        provenance["unverified"] = [str(path) for path in unverified]
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
