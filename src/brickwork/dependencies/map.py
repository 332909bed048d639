"""The dependency map of a classifier: for each class what it depends on, and what replacing its logit costs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brickwork.atomic import file_hash, recovered, write_folder
from brickwork.dependencies.options import MapOptions
from brickwork.dependencies.problem import Floats
from brickwork.errors import BadFile, RequestError, UnknownName
from brickwork.html_table import rows_table
from brickwork.options import fields_of
from brickwork.results import check_format, json_values
from brickwork.store.weights import tensors_of, write_safetensors
from brickwork.tensor_file import SEAL, inside, read_header, warn_unverified
from brickwork.words import counted, table

FORMAT, OLDER = "brickwork.map/1", "brickwork dependency map 1"
FACTS, NUMBERS = "map.json", "map.safetensors"
SHOWN = 12  # classes that print, the most redundant first


@dataclass(frozen=True, eq=False)
class DependencyMap:
    """What `DependencyMap.fit` found. columns: one number for each target class, NaN where there is none."""

    names: tuple[str, ...]  # of the features
    targets: tuple[str, ...]  # of the targets; within one network the same
    coef: Floats = field(repr=False)  # (targets, features)
    columns: dict[str, Floats] = field(repr=False)
    facts: dict[str, Any] = field(repr=False)  # settings, rows, screening, notes
    frequency: Floats | None = field(default=None, repr=False)  # bootstrap: how often each dependency is chosen

    @property
    def options(self) -> MapOptions:
        """What it was fitted with."""
        known = {k: v for k, v in self.facts.get("options", {}).items() if k in fields_of(MapOptions)}
        return MapOptions.from_dict(known)

    @property
    def provenance(self) -> dict[str, Any]:
        """The logits by hash, the options, and on which rows it was measured."""
        about: dict[str, Any] = {
            k: self.facts[k]
            for k in ("data", "split", "rows_fitted", "rows_measured", "measured_on")
            if k in self.facts
        }
        inputs = self.facts.get("inputs", {})
        return {"command": "depend fit", "inputs": inputs, "options": self.options.to_dict(), **about}

    @classmethod
    def fit(cls, logits: Any, labels: Any = None, **options: Any) -> DependencyMap:
        """From logits (rows, classes) and labels; see brickwork.dependencies.fit for the options.

        >>> rng = np.random.default_rng(0)
        >>> f = rng.normal(size=(300, 4)); f[:, 3] = f[:, 0] - f[:, 1]
        >>> found = DependencyMap.fit(f, f.argmax(1), names=["cat", "dog", "owl", "fox"], max_dependencies=2)
        >>> found.equation("fox", digits=1)
        'fox ≈ 1.0·cat − 1.0·dog'
        """
        from brickwork.dependencies.mapping import fit_map

        return fit_map(logits, labels, **options)

    def of_images(self, data: str, split: str, notes: Sequence[str] = ()) -> DependencyMap:
        """The map with a record of the images whose logits it was fitted on, and of which of them."""
        facts = {**self.facts, "notes": [*self.facts.get("notes", []), *notes], "data": data, "split": split}
        return replace(self, facts=facts)

    def depends_on(self, target: str | int) -> list[tuple[str, float]]:
        """The classes a target is made of and their coefficients, the largest first."""
        t = self.row_of(target)
        return [(self.names[j], float(self.coef[t, j])) for j in self._order(t)]

    def _order(self, t: int) -> np.ndarray:
        row = self.coef[t]
        return np.argsort(-np.abs(row), kind="stable")[: int((row != 0).sum())]

    def equation(self, target: str | int, *, digits: int = 2) -> str:
        """The combination as one line, with class names."""
        text = ""
        for name, value in self.depends_on(target):
            sign = ("" if value >= 0 else "−") if not text else (" + " if value >= 0 else " − ")
            text += f"{sign}{abs(value):.{digits}f}·{name}"
        return f"{self.targets[self.row_of(target)]} ≈ {text or '0'}"

    def row_of(self, target: str | int) -> int:
        if isinstance(target, int | np.integer) and 0 <= target < len(self.targets):
            return int(target)
        if target not in self.targets:
            raise UnknownName("class", str(target), self.targets)
        result = [k for k, name in enumerate(self.targets) if name == target]
        if len(result) > 1:  # ImageNet has two cranes and two maillots
            raise RequestError(f"several classes are called {target!r}; give a number, one of {result}.")
        return result[0]

    def stable(self, share: float = 0.8) -> np.ndarray:
        """Which dependencies were chosen in at least this share of the bootstrap rounds, (targets, features)."""
        if self.frequency is None:
            raise RequestError("this map was fitted without a bootstrap; fit it with bootstrap=20, for example.")
        return (self.coef != 0) & (self.frequency >= share)

    def summary(self) -> dict[str, Any]:
        """Means and quantiles over classes; accuracies and changes are in points where they say so."""
        counts = (self.coef != 0).sum(1)
        result: dict[str, Any] = {
            "classes": len(self.targets),
            "dependencies": float(np.median(counts)),
            "rel_error": _quantiles(self.columns["rel_error"]),
        }
        if "positive_after" in self.columns:
            before, after = (np.nanmean(self.columns[f"positive_{w}"]) for w in ("before", "after"))
            change = 100 * (self.columns["accuracy_after"] - self.columns["accuracy_before"])
            result |= {
                "accuracy": float(self.columns["accuracy_before"][0]),
                "positive_before": float(before),
                "positive_after": float(after),
                "positive_kept": float(after / before) if before else None,
                "total_change_points": float(change.mean()),
            }
        if self.frequency is not None:
            used = self.coef != 0
            result["stable_share"] = float(self.stable().sum() / max(1, used.sum()))
        if "p_value" in self.columns:
            result["classes_beyond_noise"] = int((self.columns["p_value"] <= 0.05).sum())
        return result

    def to_dict(self) -> dict[str, Any]:
        """JSON values only: a summary, the facts, and an entry a class."""
        classes = []
        for t, name in enumerate(self.targets):
            entry: dict[str, Any] = {"name": name, "depends_on": []}
            for j in self._order(t):
                link = {"class": int(j), "name": self.names[j], "coefficient": float(self.coef[t, j])}
                if self.frequency is not None:
                    link["frequency"] = float(self.frequency[t, j])
                entry["depends_on"].append(link)
            entry |= {key: json_values(column[t]) for key, column in self.columns.items()}
            classes.append(entry)
        return {"summary": json_values(self.summary()), **json_values(self.facts), "classes": classes}

    # -- on disk ----------------------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the map as a folder, whole or not at all: map.json and map.safetensors, no pickle."""
        arrays: dict[str, np.ndarray] = {f"column.{key}": value for key, value in self.columns.items()}
        arrays |= _sparse("coef", self.coef)
        if self.frequency is not None:
            arrays |= _sparse("often", self.frequency)
        facts = {
            "format": FORMAT,
            "names": list(self.names),
            "targets": list(self.targets),
            "facts": json_values(self.facts),
            "summary": json_values(self.summary()),
        }
        with write_folder(folder, force=force, owns=(FACTS,)) as temporary:
            (temporary / FACTS).write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            tensors = {k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in arrays.items()}
            notes = {FACTS: file_hash(temporary / FACTS)}
            write_safetensors(tensors, temporary / NUMBERS, notes, sealed=True)
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> DependencyMap:
        """The map of a folder; a folder that is none, or is damaged, is refused."""
        path = recovered(folder)
        if not (path / FACTS).is_file():
            raise BadFile(f"{folder} is no dependency map (it holds no {FACTS}); make one with: brickwork depend fit")
        try:
            facts = json.loads((path / FACTS).read_text(encoding="utf-8"))
            check_format(facts["format"], FORMAT, path / FACTS, (OLDER,))
            facts["facts"].setdefault("options", facts["facts"].get("settings", {}))  # as they were called before 0.2
            arrays = _read_numbers(path)
            shape = (len(facts["targets"]), len(facts["names"]))
            coef = _dense(arrays, "coef", shape)
            often = _dense(arrays, "often", shape) if "often.row" in arrays else None
            columns = {key[7:]: value for key, value in arrays.items() if key.startswith("column.")}
            if any(column.shape != shape[:1] for column in columns.values()):
                raise ValueError("a column does not have one number a class")
            return cls(tuple(facts["names"]), tuple(facts["targets"]), coef, columns, facts["facts"], often)
        except (KeyError, ValueError, TypeError, IndexError, OSError, RecursionError, AttributeError) as error:
            raise BadFile(f"the dependency map in {folder} is damaged: {error}. Fit it again.") from error

    # -- printing ---------------------------------------------------------------------------------------------

    def _lines(self) -> list[str]:
        result = self.summary()
        kind = "within one network" if self.facts.get("within") else "between two networks"
        lines = [
            f"{counted(result['classes'], 'class')} {kind}, {result['dependencies']:g} dependencies each (median), "
            f"relative error {result['rel_error']['median']:.2f} (median)"
        ]
        if "split" in self.facts:
            which = "all of them" if self.facts["split"] == "all" else f"its {self.facts['split']} split"
            lines.append(f"fitted on {counted(self.facts['rows_fitted'], 'image')} of {self.facts['data']} ({which})")
        if "positive_after" in result:
            lines.append(
                f"one class replaced: its own images right {result['positive_before']:.1%} before, "
                f"{result['positive_after']:.1%} after; all images {_signed(result['total_change_points'])} points "
                f"(measured on {self.facts['measured_on']})"
            )
        if "stable_share" in result:
            lines.append(f"{result['stable_share']:.0%} of the dependencies survive resampling")
        if "classes_beyond_noise" in result:
            lines.append(f"{result['classes_beyond_noise']} classes are explained better than shuffled ones")
        return [*lines, *self.facts.get("notes", [])]

    def _table(self) -> list[Sequence[str]]:
        order = np.argsort(self.columns["rel_error"], kind="stable")[:SHOWN]
        with_labels = "positive_after" in self.columns
        head = ["class", "rel. error", *(["own images"] if with_labels else []), "≈"]
        rows: list[Sequence[str]] = [head]
        for t in order:
            text = self.equation(int(t)).split(" ≈ ", 1)[1]
            cells = [self.targets[t], f"{self.columns['rel_error'][t]:.2f}"]
            if with_labels:
                before, after = self.columns["positive_before"][t], self.columns["positive_after"][t]
                cells.append("–" if np.isnan(before) else f"{before:.0%} → {after:.0%}")
            rows.append([*cells, text if len(text) <= 70 else text[:67] + "…"])
        return rows

    def __str__(self) -> str:
        head, *rows = self._table()
        return "\n".join([*self._lines(), table(head, rows)])

    def _repr_html_(self) -> str:
        head, *rows = self._table()
        return rows_table(head, rows, lines=self._lines())


def _quantiles(column: Floats) -> dict[str, float]:
    names = {"p10": 0.1, "p25": 0.25, "median": 0.5, "p75": 0.75, "p90": 0.9}
    return {name: float(np.nanquantile(column, q)) for name, q in names.items()}


def _read_numbers(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of a map, checked with map.json by the hashes that map.safetensors carries."""
    header = read_header(inside(folder / NUMBERS))
    arrays = {name: tensor.numpy() for name, tensor in tensors_of(header).items()}
    if not header.metadata:  # written before maps carried a hash
        warn_unverified(folder)
    elif SEAL not in header.metadata or header.metadata.get(FACTS) != file_hash(folder / FACTS):
        raise ValueError(f"{FACTS} is not the one that {NUMBERS} was written with")
    return arrays


def _sparse(name: str, table: Floats) -> dict[str, np.ndarray]:
    rows, columns = np.nonzero(table)
    return {f"{name}.row": rows, f"{name}.column": columns, f"{name}.value": table[rows, columns]}


def _dense(arrays: dict[str, np.ndarray], name: str, shape: tuple[int, int]) -> Floats:
    result = np.zeros(shape)
    result[arrays[f"{name}.row"], arrays[f"{name}.column"]] = arrays[f"{name}.value"]
    return result


def _signed(value: float) -> str:
    """With the minus sign that equations have."""
    return f"{value:+.3f}".replace("-", "−")
