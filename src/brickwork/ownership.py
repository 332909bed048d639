"""What a folder of ours holds: `force` replaces such a folder, and no other.

A folder is ours when the file that marks its kind carries our tag, and nothing else lies in it than that kind has. A
transformers folder, somebody's notes beside a model, or a model inside another is named and left alone.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

RECORD = "brickwork.json"  # marks a folder of another library's shape as written by us, and lists its files
_MODEL = ("config.json", "model.safetensors", "README.md")
_MERGED = (*_MODEL, "model.safetensors.index.json")
_NET = (
    "transplant.json",
    "adapters.safetensors",
    *(f"{kind}/*/{f}" for kind in ("categories", "tasks") for f in _MODEL),
)
_DEMO = (
    "a b start matched start-team-1 start-team-2 team-1 team-2 by-linear by-rebasin by-match start-resnet start-inception "
    "resnet inception part-a part-resnet part-inception six plain known nine ten halves net map tasks figures "
    "seven three zero-one"  # the last three: of earlier tours
)
_IMAGES = ("unseen.npz", "team-1.npz", "team-2.npz")

#: the file that marks a kind of folder: everything that may lie in it; ** stands for whatever is below
KINDS: dict[str, tuple[str, ...]] = {
    "config.json": _MODEL,
    "model.safetensors": _MERGED,
    "model.safetensors.index.json": _MERGED,
    RECORD: (RECORD,),
    "map.json": ("map.json", "map.safetensors"),
    "transplant.json": _NET,
    "pool.json": ("pool.json", "pool.safetensors", "base.task", "grown-*.safetensors", "tasks/*.task", ".lock"),
    "sweep.csv": ("sweep.csv", "sweep.json", "sweep.html", "sweep.svg", "figures/*.json"),
    "sweep.json": ("sweep.csv", "sweep.json", "sweep.html", "sweep.svg", "figures/*.json"),
    "routes.json": ("routes.json",),
    "tradeoff.json": ("tradeoff.json", "tradeoff.csv", "tradeoff.svg", *(f"*/{name}" for name in _MODEL)),
    "method.json": ("method.json",),
    "progress.json": ("progress.json", *(f"step-*/{name}" for name in _NET)),
    "network.py": ("network.py", "weights.safetensors", "__pycache__/*"),
    "demo.json": ("demo.json", "report.html", *_IMAGES, *(f"{name}/**" for name in _DEMO.split())),
}


def write_record(draft: Path, kind: str, facts: dict[str, Any]) -> None:
    """The file that says what wrote a folder of another library's shape, and everything that lies in it."""
    import brickwork

    files = sorted(path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file())
    record = {"format": f"brickwork.{kind}/1", "version": brickwork.__version__, "files": [*files, RECORD], **facts}
    (draft / RECORD).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def foreign(folder: Path, marks: Sequence[str]) -> str | None:
    """Why a folder is not one of ours, in words; None where it is, or is empty. marks: files that its kind may have."""
    if not any(folder.iterdir()):
        return None
    present = [mark for mark in marks if (folder / mark).is_file()]
    if not present:
        return f"it holds no {' or '.join(marks)}"
    if not any(_tagged(folder, mark) for mark in present):
        return f"its {present[0]} does not say so"
    known = [pattern for mark in present for pattern in (*KINDS.get(mark, ("**",)), *_shards(folder, mark))]
    strange = next((path for path in _files(folder) if not any(_fits(path, p) for p in known)), None)
    return None if strange is None else f"it holds {strange}, too"


def _tagged(folder: Path, mark: str) -> bool:
    """Whether the file that marks a folder was written by Brickwork."""
    if mark == "sweep.csv":
        return (folder / mark).read_bytes().startswith(b"alpha,")
    if mark.startswith("model.safetensors"):  # merged from other people's files: our card, and our note in the files
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (folder / "README.md").read_text(encoding="utf-8").startswith("---\nlibrary_name: brickwork\n")
        return False
    if mark == "network.py":
        return (folder / mark).read_bytes().startswith(b'"""A network, written by Brickwork as plain torch')
    if mark not in KINDS:
        return True
    facts: Any = None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        facts = json.loads((folder / mark).read_text(encoding="utf-8"))
    if not isinstance(facts, dict):
        return False
    tag = facts.get("format")
    if isinstance(tag, str):
        return tag.startswith("brickwork")
    if mark == "config.json":  # as 0.1 wrote it
        return tag == 1 and "brickwork" in facts and "weights" in facts
    if mark == "demo.json":
        return facts.get("name") == "demo" and "parts" in facts
    return isinstance(tag, int) or (mark == "progress.json" and "recipe" in facts)


def _shards(folder: Path, mark: str) -> list[str]:
    """The files that an index of shards, or the record of a merged folder, names; no patterns."""
    if mark == RECORD:
        with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError):
            return [glob.escape(str(name)) for name in json.loads((folder / mark).read_text(encoding="utf-8"))["files"]]
    if not mark.endswith(".index.json"):
        return []
    with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError):
        names = json.loads((folder / mark).read_text(encoding="utf-8"))["weight_map"].values()
        return [glob.escape(str(name)) for name in set(names)]
    return []


def _files(folder: Path) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            yield (Path(root) / name).relative_to(folder).as_posix()


def _fits(path: str, pattern: str) -> bool:
    if pattern.endswith("**"):
        return path.startswith(pattern[:-2])
    parts, wanted = path.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))
