"""Fit a dependency map: the estimator on some rows, everything that is said about it on others."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brickwork.data.images import hold_out
from brickwork.dependencies.covlasso import CovLasso
from brickwork.dependencies.gram import (
    LogitGram,
    Logits,
    check_labels,
    check_names,
    load_rows,
    logit_gram,
    memory_map,
    row_chunks,
)
from brickwork.dependencies.map import DependencyMap
from brickwork.dependencies.measuring import measure
from brickwork.dependencies.options import MapOptions
from brickwork.dependencies.problem import Floats
from brickwork.dependencies.replacing import chebyshev
from brickwork.dependencies.stability import explained, p_values, selection_frequencies, shuffled_fits
from brickwork.dependencies.theory import check_theory, redundancies
from brickwork.errors import BadData, RequestError
from brickwork.options import takes
from brickwork.words import some_of

Rows = tuple[np.ndarray, np.ndarray, NDArray[np.int64] | None]  # features, values to be replaced, labels


@takes(MapOptions)
def fit_map(
    logits: Logits,
    labels: Any = None,
    *,
    targets: Logits | None = None,
    names: Sequence[str] | None = None,
    target_names: Sequence[str] | None = None,
    test: tuple[Any, ...] | None = None,
    device: str = "cpu",
    progress: bool = False,
    options: MapOptions,
) -> DependencyMap:
    """Fit every class from the others (or, with `targets`, another network's classes) and measure the replacement.

    The estimator is a CovLasso with these options, by default max_dependencies=10. test: (logits, labels) or (logits,
    labels, targets) to measure on; else `holdout`, a share of each class that is kept out of the fit; else the
    rows of the fit themselves, and the map says so.
    delta: of Definition 1. bootstrap, null: rounds of resampling and of shuffling (0: not done).

    >>> logits = np.random.default_rng(0).normal(size=(200, 4))
    >>> logits[:, 3] = logits[:, 0] - logits[:, 1]
    >>> fit_map(logits, names=["cat", "dog", "car", "cat, no dog"], max_dependencies=2).equation("cat, no dog")
    'cat, no dog ≈ 1.00·cat − 1.00·dog'
    """
    chosen = CovLasso(**options.estimator(), device=device)
    chosen.check()
    holdout, delta, seed = options.holdout or 0.0, options.delta, options.seed
    chebyshev(np.zeros(1), delta)
    if holdout and test is not None:
        raise RequestError(f"`holdout` is {holdout}, and excludes test rows; give one of them.")
    rows = _take(logits, labels, targets)
    within = targets is None
    features = check_names(names, rows[0].shape[1])
    if within or target_names is not None or rows[1].shape[1] != len(features):
        outputs = features if within else check_names(target_names, rows[1].shape[1], "target classes")
    else:
        outputs = features
    fitted, measured, where = rows, rows, "the rows of the fit themselves"
    if test is not None:
        measured, where = _test(test, rows, within), "rows that the fit did not see"
    elif holdout:
        keep = _held(len(rows[0]), rows[2], holdout, seed)
        fitted, measured = _pick(rows, ~keep), _pick(rows, keep)
        where = f"{keep.sum()} rows held out of the fit"
    x, y, known = fitted
    other = None if within else y
    moments = logit_gram(x, other)
    bounds = redundancies(moments, chosen.own_features(moments))  # before there are coefficients: both take n² numbers
    fit = chosen.fit_moments(moments, x, known, targets=other)
    columns, facts = _theory(fit, moments, bounds)
    del moments  # as large as the coefficients
    columns |= measure(*measured, fit.coef_, delta=delta)
    frequency, again = None, (x, known, other)
    if options.bootstrap:
        frequency = selection_frequencies(chosen, again, rounds=options.bootstrap, seed=seed, progress=progress)
    if options.null:
        shuffled = shuffled_fits(chosen, again, rounds=options.null, seed=seed, progress=progress)
        columns["explained"] = explained(y, fit.predict(x))
        columns["explained_by_chance"] = np.quantile(shuffled, 0.95, axis=0)
        columns["p_value"] = p_values(columns["explained"], shuffled)
    facts |= {
        "options": _json_options(options),
        "inputs": {name: rows_hash(part) for name, part in (("logits", x), ("targets", other)) if part is not None},
        "within": within,
        "rows_fitted": len(x),
        "rows_measured": len(measured[0]),
        "measured_on": where,
        "notes": _notes(x, features, known, outputs),
    }
    return DependencyMap(features, outputs, fit.coef_, columns, facts, frequency)


def _json_options(options: MapOptions) -> dict[str, Any]:
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in options.to_dict().items()}


def rows_hash(rows: np.ndarray) -> str:
    """sha256 of logits: what a map was fitted on."""
    digest = hashlib.sha256()
    for part, _ in row_chunks(rows):
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _take(logits: Logits, labels: Any, targets: Logits | None) -> Rows:
    x, brought = load_rows(logits)
    y = x if targets is None else load_rows(targets, what="the targets")[0]
    if len(y) != len(x):
        raise BadData(
            f"the two networks' logits have {len(x)} and {len(y)} rows; they must be of the same images, row by row."
        )
    labels = brought if labels is None else labels
    return x, y, None if labels is None else check_labels(labels, len(x), y.shape[1])


def _test(test: tuple[Any, ...], rows: Rows, within: bool) -> Rows:
    needed = 2 if within else 3
    if len(test) != needed:
        what = "(logits, labels)" if within else "(logits, labels, targets)"
        raise RequestError(f"test has {len(test)} entries; it must be {what}.")
    result = _take(test[0], test[1], None if within else test[2])
    if result[0].shape[1] != rows[0].shape[1] or result[1].shape[1] != rows[1].shape[1]:
        raise BadData(
            f"the test logits have {result[0].shape[1]} classes; the fit's have {rows[0].shape[1]}. Give the same."
        )
    return result


def _held(rows: int, labels: NDArray[np.int64] | None, share: float, seed: int) -> NDArray[np.bool_]:
    """Rows to hold out: the same share of every class, drawn with the seed, never all of one."""
    _, held = hold_out(np.zeros(rows, int) if labels is None else labels, share, key=(seed, 13), least=0)
    if not len(held):
        raise RequestError(f"`holdout` {share} keeps no row out of {rows}; give more rows or a larger share.")
    return np.isin(np.arange(rows), held)


def _pick(rows: Rows, mask: NDArray[np.bool_]) -> Rows:
    x = _picked(rows[0], mask)
    y = x if rows[1] is rows[0] else _picked(rows[1], mask)
    return x, y, None if rows[2] is None else rows[2][mask]


def _picked(rows: np.ndarray, mask: NDArray[np.bool_]) -> np.ndarray:
    """Some of the rows; of a memory map they stay on the disk, in a file that goes when nobody looks at it any more."""
    if memory_map(rows) is None:
        return rows[mask]
    with tempfile.TemporaryFile() as file:
        for part, start in row_chunks(rows):
            np.ascontiguousarray(part[mask[start : start + len(part)]]).tofile(file)
        file.flush()
        return np.memmap(file, rows.dtype, "r", shape=(int(mask.sum()), rows.shape[1]))


def _theory(fit: CovLasso, moments: LogitGram, bounds: dict[str, Floats]) -> tuple[dict[str, Floats], dict[str, Any]]:
    own = fit.own_features(moments)
    columns = {"lam": fit.lam_, "lam_max": fit.lam_max_, "kkt": fit.kkt_, "gap": fit.gap_}
    columns |= bounds
    facts: dict[str, Any] = {"screening": None}  # the statements are on plain CovLasso at a λ
    if fit.options.loss == "plain" and fit.options.selection == "lasso" and not fit.options.refit:
        facts["screening"] = check_theory(moments, own, fit.coef_, fit.lam_, columns["redundancy"])
    return columns, facts


def _notes(
    x: np.ndarray, names: tuple[str, ...], labels: NDArray[np.int64] | None, targets: tuple[str, ...]
) -> list[str]:
    """What a reader of the map has to know about these logits."""
    notes = []
    flat = _same_in_every_row(x, x[0])
    if len(flat):
        notes.append(f"the logit of {some_of([repr(names[k]) for k in flat], 5)} never changes.")
    _, first, counts = np.unique(x[:64].T, axis=0, return_index=True, return_counts=True)
    for j in first[counts > 1]:
        same = _same_in_every_row(x, column=j)
        if len(same) > 1 and j not in flat:
            notes.append(f"the logits of {some_of([repr(names[k]) for k in same], 5)} are the same in every row.")
    if len(x) < x.shape[1]:
        notes.append(
            f"{len(x)} rows are fewer than {x.shape[1]} classes: on them every class is a combination of the others "
            "(redundancy 0), which says nothing about other images."
        )
    if labels is not None:
        none = np.setdiff1d(np.arange(len(targets)), labels)
        if len(none):
            notes.append(f"there are no images of {some_of([repr(targets[k]) for k in none], 5)} in the fit.")
    return notes


def _same_in_every_row(x: np.ndarray, value: np.ndarray | None = None, *, column: int = 0) -> np.ndarray:
    """The columns that are the same in every row: as these values, or as that column."""
    same = np.ones(x.shape[1], bool)
    for part, _ in row_chunks(x):
        same &= (part == (part[:, column : column + 1] if value is None else value)).all(0)
    return np.flatnonzero(same)
