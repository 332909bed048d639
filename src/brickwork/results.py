"""One protocol for results: every one saves, loads, keeps its options, says where it comes from, and shows itself.

Brick, Delta, TransplantNet, KernelPool, DependencyMap, Routes, SweepResult and ContinualResult have
`save(folder)`, `load(folder)`, `options`, `provenance`, `to_dict()` and `_repr_html_()`; what they write carries a tag such
as `brickwork.map/1`. A test holds them to it.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from brickwork.atomic import recovered, write_folder
from brickwork.errors import BadFile
from brickwork.html_table import facts_table

Kind = TypeVar("Kind", bound="JsonResult")


class JsonResult(ABC):
    """A result that is JSON values alone: a folder with one file. Subclasses say FORMAT, FILE and `from_dict`."""

    FORMAT: ClassVar[str]
    FILE: ClassVar[str]

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """JSON values only."""

    @classmethod
    @abstractmethod
    def from_dict(cls: type[Kind], facts: dict[str, Any]) -> Kind:
        """The result that `to_dict` describes."""

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the result as a folder, whole or not at all."""
        with write_folder(folder, force=force, owns=(self.FILE,)) as draft:
            self.write(draft)
        return Path(folder)

    def write(self, folder: Path) -> None:
        """The result's own file, into a folder that is being written."""
        text = json.dumps({"format": self.FORMAT, **self.to_dict()}, ensure_ascii=False, indent=1)
        (folder / self.FILE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls: type[Kind], folder: str | Path) -> Kind:
        """The result of a folder; one that holds something else is refused."""
        path = recovered(folder) / cls.FILE
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            check_format(facts.pop("format", None), cls.FORMAT, path)
            return cls.from_dict(facts)
        except OSError as error:
            raise BadFile(f"{folder} holds no {cls.FILE}: {error.strerror}.") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadFile(f"{path} is damaged: {error}.") from error

    def _repr_html_(self) -> str:
        return facts_table([("result", line) for line in str(self).splitlines()])


def json_values(value: Any) -> Any:
    """As JSON knows it: NaN and infinity are null, NumPy's numbers plain ones, paths and data sets their names.

    >>> json_values({"a": (1.5, float("nan")), "b": Path("x")})
    {'a': [1.5, None], 'b': 'x'}
    """
    if isinstance(value, dict):
        return {key: json_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(item) for item in value]
    if isinstance(value, Path) or type(value).__name__ == "DataSpec":
        return str(value)
    value = value.item() if type(value).__module__ == "numpy" else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_format(found: Any, tag: str, path: Path, older: Sequence[Any] = ()) -> None:
    """Refuse a file of another kind or of a version that is not known; `older`: tags that are read all the same."""
    if found == tag or found in older:
        return
    raise BadFile(f"{path} has format {found!r}; this Brickwork reads {tag!r}. Use the version that wrote it.")
