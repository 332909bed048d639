"""Networks in and out: weights that are uploaded, files for use elsewhere, and answers to one image."""

from __future__ import annotations

import importlib.util
import io
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from brickwork import store, zoo
from brickwork.atomic import file_hash
from brickwork.data.folders import UNREADABLE, picture_array
from brickwork.errors import BadFile, RequestError
from brickwork.export import export_model
from brickwork.limits import check_size
from brickwork.origin import Origin, origin_of
from brickwork.prediction import predict
from brickwork.store.folder import bytes_of
from brickwork.store.unpickling import as_safetensors
from brickwork.studio import recipes
from brickwork.studio.compare import thumbnail
from brickwork.studio.jobs import Say
from brickwork.studio.requests import Import
from brickwork.studio.shelf import Shelf
from brickwork.tensor_file import inside
from brickwork.zoo.external import check_recorded

EXPORTED, IMPORTED = "exported", "imported"
PIXELS, TOP = 50_000_000, 3  # of an image to try; answers that are told


def formats() -> list[str]:
    """What a network can be exported to here."""
    onnx = all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime", "onnxscript"))
    return ["onnx", "torch"] if onnx else ["torch"]


def check_export(shelf: Shelf, name: str, to: str) -> Path:
    """Where an export goes; refused where the network or the format is not there."""
    shelf.model(name)
    if to not in formats():
        raise RequestError(f"{to!r} is nothing to export to here; choose {' or '.join(formats())}.")
    ending = ".onnx" if to == "onnx" else ""
    return shelf.below(f"{EXPORTED}/{name.replace('/', '-')}{ending}")


def export(shelf: Shelf, name: str, to: str, say: Say) -> dict[str, Any]:
    """A network as ONNX or plain torch, compared with the module before it is called written."""
    out = check_export(shelf, name, to)
    say(0.1, f"reading {name}")
    model = shelf.load(name)
    say(0.3, f"writing {to}, and comparing it with the network")
    options = {"to": to} | ({"dynamic_batch": True} if to == "onnx" else {})
    out.parent.mkdir(exist_ok=True)
    written = export_model(model, out, force=True, **options)  # type: ignore[arg-type]
    file = shelf.relative(out)
    size = sum(f.stat().st_size for f in (out.iterdir() if out.is_dir() else [out]))
    facts = written.to_dict() | {"path": file}
    return {"file": file, "bytes": size, "export": facts, **recipes.of_export(shelf, name, file, options)}


def check_import(shelf: Shelf, asked: Import) -> dict[str, Any]:
    """The options of `import_model`; refused before the file is read where they cannot be right."""
    shelf.new(asked.name, IMPORTED)
    arch = asked.arch
    if zoo.needs_import(arch):
        if arch not in shelf.arch:
            raise RequestError(f"{arch!r} is code, which a page cannot name; start the studio with --arch {arch}.")
    elif ":" not in arch and arch not in zoo.names():
        raise RequestError(
            f"{arch!r} is no architecture here; there are {', '.join(zoo.names())}, timm:NAME and others."
        )
    mean, std = _numbers("mean", asked.mean), _numbers("std", asked.std)
    classes = [name.strip() for name in asked.classes.split(",")] if asked.classes.strip() else None
    if classes is not None and (not all(classes) or len(set(classes)) < len(classes)):
        raise RequestError(f"`classes` is {asked.classes[:100]!r}; it must be different names with commas.")
    args: dict[str, Any] = {}
    if not zoo.needs_import(arch):
        if mean and len(mean) == 1:
            args["in_channels"] = 1  # one number of a mean: images of one channel
        check_recorded(arch, args)
    size = (asked.size, asked.size) if asked.size else None
    return {"arch": arch, "args": args, "classes": classes, "mean": mean, "std": std, "size": size}


def import_file(shelf: Shelf, asked: Import, file: Path) -> dict[str, Any]:
    """A model folder of uploaded weights, which are read as tensors."""
    options = check_import(shelf, asked)
    sent = {"name": file.name, "sha256": file_hash(file)}
    if not zoo.needs_import(asked.arch):
        given = dict(options["args"]) | ({"num_classes": len(options["classes"])} if options["classes"] else {})
        check_size(asked.arch, bytes_of(Origin(arch=asked.arch, args=given), asked.arch), file.stat().st_size)
    folder = shelf.new(asked.name, IMPORTED)
    with shelf.busy:
        try:
            model = store.import_model(as_safetensors(file) if asked.kind == "pth" else file, **options)
        except BadFile as error:  # without the place that it was kept in meanwhile
            told = str(error).replace(str(file), "the file").replace(str(file.with_suffix(".safetensors")), "the file")
            raise BadFile(told) from error
        store.save(model, folder, provenance={"command": "import", "upload": sent})
    return {"model": shelf.relative(folder), "notes": origin_of(model).provenance["import"]["notes"]}


def _numbers(name: str, text: str) -> list[float] | None:
    if not text.strip():
        return None
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        values = [math.nan]
    if not all(map(math.isfinite, values)):
        raise RequestError(
            f"`{name}` is {text[:100]!r}; it must be a number, or one per channel with commas, as in 0.5."
        )
    return values


def answers(shelf: Shelf, name: str, content: bytes) -> dict[str, Any]:
    """What a network takes an image for: the likeliest classes with their probabilities."""
    shelf.model(name)
    with shelf.free(patient=True):
        model = shelf.load(name)
        origin = origin_of(model)
        prepared, shape = origin.preprocessing, origin.input_shape
        size: tuple[int, int] | None
        if prepared is not None:
            size, channels = prepared.size, prepared.channels
        elif shape is not None and len(shape) == 3:
            channels, size = shape[0], (shape[1], shape[2])
        else:
            raise RequestError(f"{name} does not say how images are prepared.")
        array = _decoded(content, size, channels, prepared.framing if prepared else None)
        logits = predict(model, array[None])
    if logits.ndim != 2:
        raise RequestError(f"{name} gives no class of an image.")
    likely = logits[0].double().softmax(0)
    classes = origin.classes or tuple(str(k) for k in range(len(likely)))
    best = likely.argsort(descending=True)[:TOP].tolist()
    return {"answers": [[classes[k], float(likely[k])] for k in best], "seen": thumbnail(array)}


def _decoded(content: bytes, size: Any, channels: int, framing: Any) -> Any:
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.width * image.height > PIXELS:
                raise ValueError(f"it has more than {PIXELS:,} pixels")
            return np.array(picture_array(image, size, channels, framing))  # Pillow's own cannot be written to
    except UNREADABLE as error:
        why = str(error).splitlines()[0].removesuffix(".") if "BytesIO" not in str(error) else "its kind is not known"
        raise RequestError(f"this is not an image that Pillow can read ({why}).") from error


def exported(shelf: Shelf, name: str) -> Path:
    """A file or folder that Export wrote; anything else is refused."""
    path = shelf.below(name)
    if path.parent != shelf.below(EXPORTED) or not path.exists():
        raise RequestError(f"{name!r} was not exported here, or is gone; export it again.")
    return path


def zipped(folder: Path) -> bytes:
    """A folder as a .zip, its files in order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            if file.is_file():
                archive.write(inside(file), f"{folder.name}/{file.name}")
    return buffer.getvalue()
