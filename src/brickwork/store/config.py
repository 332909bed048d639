"""config.json of a model folder: what it may say, checked before a tensor is read."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

import brickwork
from brickwork.atomic import recovered
from brickwork.errors import BadFile
from brickwork.origin import Interpolation, Origin
from brickwork.results import check_format
from brickwork.store.card import card
from brickwork.tensor_file import inside
from brickwork.words import some_of

FORMAT: Literal["brickwork.model/1"] = "brickwork.model/1"
OLDER = 1  # the tag of folders that were written before 0.2
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"

Size = Annotated[int, Field(ge=0)]
Side = Annotated[int, Field(ge=1, le=16384)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PreprocessingConfig(_Strict):
    size: list[int] | None = Field(None, min_length=2, max_length=2)
    channels: int = Field(3, ge=1)
    mean: list[float] = []
    std: list[float] = []
    resize: Side | Annotated[list[Side], Field(min_length=2, max_length=2)] | None = None
    interpolation: Interpolation = "bilinear"


class OriginConfig(_Strict):
    """The fields of brickwork.origin.Origin; a joined model lists its parts the same way."""

    arch: str | None = None
    args: dict[str, Any] = {}
    input_shape: list[Size] | None = None
    classes: list[str] | None = None
    preprocessing: PreprocessingConfig | None = None
    steps: list[dict[str, Any]] = []
    parts: list[OriginConfig] = []
    provenance: dict[str, Any] = {}

    @field_validator("arch")
    @classmethod
    def _known_shape(cls, arch: str | None) -> str | None:
        # A path would do harm before the name is looked up; code is dealt with by the loader.
        if arch is not None and not re.fullmatch(r"[\w.-]+(:[\w.-]+)?", arch):
            raise ValueError(f"{arch!r} is not the name of an architecture (a path is not allowed here)")
        return arch

    @field_validator("args")
    @classmethod
    def _no_files(cls, args: dict[str, Any]) -> dict[str, Any]:
        if args.get("pretrained"):
            raise ValueError("pretrained is not allowed here: the weights are in the folder")
        return args


class TensorConfig(_Strict):
    dtype: str
    shape: list[Size]


class WeightsConfig(_Strict):
    """The weights file and everything it must hold; `tied` names tensors that are another one's alias."""

    file: str = WEIGHTS
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    state_hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    tensors: dict[str, TensorConfig]
    tied: dict[str, str] = {}

    @field_validator("file")
    @classmethod
    def _inside(cls, file: str) -> str:
        if file != Path(file).name or not file.endswith(".safetensors"):
            raise ValueError(f"{file!r} is not a .safetensors file inside the folder")
        return file


class Config(OriginConfig):
    """The whole file."""

    format: Literal["brickwork.model/1", 1] = FORMAT
    brickwork: str = ""
    weights: WeightsConfig

    def origin(self) -> Origin:
        """The record that the loaded module carries."""
        names = OriginConfig.model_fields.keys()
        return Origin.from_dict({k: v for k, v in self.model_dump().items() if k in names})


def origin_config(origin: Origin) -> dict[str, Any]:
    """An Origin as plain JSON values; BadFile-style facts are raised as ValueError."""
    facts: dict[str, Any] = json.loads(json.dumps(origin.to_dict(), allow_nan=False))
    return facts


def write_config(folder: Path, origin: Origin, weights: dict[str, Any]) -> None:
    """The one writer of config.json and the card: what a folder holds, where it comes from, and its hashes."""
    config = {"format": FORMAT, "brickwork": brickwork.__version__, **origin_config(origin), "weights": weights}
    text = json.dumps(config, indent=1, ensure_ascii=False, allow_nan=False)
    Config.model_validate_json(text)  # what we write, we can read
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
    (folder / CARD).write_text(card(origin, weights), encoding="utf-8")


def hash_tensors(tensors: Iterable[tuple[str, str, Sequence[int], Any]]) -> str:
    """sha256 over names, dtypes, shapes and bytes of tensors, which come in the order of their names."""
    digest = hashlib.sha256()
    for name, dtype, shape, content in tensors:
        digest.update(f"{name}\0{dtype}\0{list(shape)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def read_config(folder: str | Path) -> Config:
    """The checked config.json of a model folder; every fault of it in one BadFile."""
    folder = recovered(folder)
    path = folder / CONFIG
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        way_on = ""
        if folder.is_file() and (folder.parent / CONFIG).is_file():
            way_on = f" Give {folder.parent}."
        elif folder.is_file():
            way_on = f" Weights become one by brickwork import {folder} --arch … --classes … --out FOLDER."
        raise BadFile(f"{folder} {what}; a model folder holds {WEIGHTS} and {CONFIG}.{way_on}")
    try:
        data = json.loads(inside(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        held = sorted(str(inner.parent) for inner in folder.glob(f"*/{CONFIG}"))
        way_on = f" It holds some: give {some_of(held, 3, ' or ')}." if held else ""
        raise BadFile(f"{folder} is not a model folder: it has no {CONFIG}.{way_on}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFile(f"{path} is not JSON: {error}.") from error
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror}.") from error
    if not isinstance(data, dict):
        raise BadFile(f"{path} must hold a JSON object, not a {type(data).__name__}.")
    version = data.get("format")
    if version is None or "weights" not in data:
        raise BadFile(f"{path} was not written by Brickwork (no 'format' and 'weights' in it).")
    check_format(version, FORMAT, path, older=(OLDER,))
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise BadFile(f"{path} is not valid: {'; '.join(_faults(error))}.") from error


def _faults(error: ValidationError) -> Iterator[str]:
    for fault in error.errors():
        where = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            yield f"unknown entry {where!r}"
        else:
            yield f"{where}: {fault['msg'].removeprefix('Value error, ')}"
