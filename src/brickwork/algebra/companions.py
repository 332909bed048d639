"""What lies beside the weights of a folder that another library wrote: tokenizer, chat template, generation config, …"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brickwork.errors import BadFile
from brickwork.ownership import RECORD
from brickwork.store.config import CARD, CONFIG
from brickwork.tensor_file import inside, is_name

#: weights, which are made anew, and what is written by pickling, which nobody needs to use a model
WEIGHTS = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".h5",
    ".msgpack",
    ".gguf",
    ".onnx",
    ".onnx_data",
    ".pkl",
    ".npz",
)
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "vocab.txt")
#: the end of an architecture's name: what the hub calls its task
TASKS = {
    "ForCausalLM": "text-generation",
    "ForMaskedLM": "fill-mask",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForImageClassification": "image-classification",
    "ForSemanticSegmentation": "image-segmentation",
    "ForObjectDetection": "object-detection",
}


def copy_companions(folder: Path, draft: Path) -> tuple[list[str], list[str]]:
    """Copy every file but weights and the card; which were copied, and which were left out.

    A link out of the folder is refused, but for the hub's own cache (docs/security.md).
    """
    copied, left = [], []
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] != ".")
        for name in folders:
            inside(Path(root) / name)
        for name in sorted(files):
            source = Path(root) / name
            shown = source.relative_to(folder).as_posix()
            if name[0] == "." or shown in (CARD, RECORD) or name.endswith(".safetensors.index.json"):
                continue
            if name.lower().endswith(WEIGHTS) or name.endswith(".index.json"):
                if not name.endswith(".safetensors"):
                    left.append(shown)
                continue
            if not is_name(name) or not inside(source).is_file():
                raise BadFile(f"{source} is no plain file; remove it from the folder of the first model.")
            (draft / shown).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, draft / shown)
            copied.append(shown)
    return copied, left


def front_matter(folder: Path) -> str:
    """The head of a card, as the hub reads it: the library that loads the folder, and its task where that is known.

    >>> print(front_matter(Path("nowhere")))
    ---
    library_name: brickwork
    tags:
    - brickwork
    - merge
    ---
    """
    facts: Any = None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        facts = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    facts = facts if isinstance(facts, dict) else {}
    library, task = "brickwork", ""
    if "model_type" in facts:
        library = "transformers"
        names = facts.get("architectures") or [""]
        task = next((word for end, word in TASKS.items() if str(names[0]).endswith(end)), "")
    elif "pretrained_cfg" in facts:
        library, task = "timm", "image-classification"
    lines = [
        f"library_name: {library}",
        *([f"pipeline_tag: {task}"] if task else []),
        "tags:",
        "- brickwork",
        "- merge",
    ]
    return "\n".join(["---", *lines, "---"])


def other_tokenizers(models: Sequence[Path]) -> list[str]:
    """Tokens are merged place by place: folders whose tokenizers differ are told, since the first one's is kept."""
    first, *others = models
    result = []
    for other in others:
        odd = [
            n
            for n in TOKENIZERS
            if (first / n).is_file() and (other / n).is_file() and _hash(first / n) != _hash(other / n)
        ]
        if odd:
            result.append(
                f"{first} and {other} have different tokenizers ({odd[0]}); the merged model has that of {first}, and its "
                f"rows of {other} may stand for other tokens"
            )
    return result


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
