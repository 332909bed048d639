"""The second moments of logits, in a stream: an array, a .npy memory map, chunks, a DataLoader.

float16 or float32 in, float64 products and sums; memory is one chunk and the Gram matrix. Nothing is centred or
scaled (the paper's Remark 1): what the paper calls the covariance is the mean of f(x)f(x)ᵀ.
"""

import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brickwork.errors import BadData, BadFile
from brickwork.limits import read_npy
from brickwork.moments import Moments

CHUNK = 8192  # rows taken from an array at once
LARGEST = 1 << 26  # bytes of float64 that they take, at most

#: (rows, classes) numbers: an array or memory map, a tensor, a .npy file, or an iterable of chunks. A chunk is
#: such an array, or a tuple of one and its labels (a DataLoader's).
Logits = np.ndarray | Tensor | str | os.PathLike[str] | Iterable[Any]


@dataclass(frozen=True, eq=False)
class LogitGram:
    """Means over all rows: of f fᵀ, of y fᵀ for targets y, and of y²; within one network the targets are f."""

    gram: np.ndarray  # (features, features)
    cross: np.ndarray  # (targets, features)
    squares: np.ndarray  # (targets,)
    rows: int
    within: bool  # the targets are the features themselves


def logit_gram(logits: Logits, targets: Logits | None = None, *, chunk: int = CHUNK) -> LogitGram:
    """The Gram matrix of logits (rows, features), and its cross moments with targets (rows, targets) if given.

    >>> found = logit_gram(np.array([[1.0, 2.0], [3.0, 0.0]]))
    >>> found.gram.tolist(), found.rows
    ([[5.0, 1.0], [1.0, 2.0]], 2)
    """
    moments: Moments | None = None
    seen = 0
    for part, other in _paired(logits, targets, chunk):
        x = torch.from_numpy(part.astype(np.float64))
        y = torch.from_numpy(other.astype(np.float64)) if other is not None else x[:, :0]
        if moments is None:
            moments = Moments.empty(x.shape[1], y.shape[1])
        moments.add(x, y)
        seen += len(x)
    if moments is None or not seen:
        raise BadData("there are no rows of logits; give one row an image, at least one.")
    gram = moments.gram.div_(seen).reshape(moments.gram.shape[-2:]).numpy()
    for start in range(0, len(gram), 512):  # in place: what rounding made of it is made symmetric
        own, rest = slice(start, start + 512), slice(start, None)
        gram[own, rest] = (gram[own, rest] + gram[rest, own].T) / 2
        gram[rest, own] = gram[own, rest].T
    if targets is None:
        return LogitGram(gram, gram, gram.diagonal().copy(), seen, True)
    cross, squares = (moments.cross.T / seen).contiguous().numpy(), (moments.sum_yy / seen).numpy()
    return LogitGram(gram, cross, squares, seen, False)


def load_rows(logits: Logits, *, what: str = "the logits") -> tuple[np.ndarray, np.ndarray | None]:
    """All rows at once, float32 (or float64 where given so), checked, and the labels the chunks brought along.

    A memory map stays one; chunks are put together.
    """
    if isinstance(logits, torch.nn.Module):
        raise BadData(
            f"{what} are a network; give what it answers: brickwork.prediction.predict(model, images), of images that it "
            "was not trained on."
        )
    if isinstance(logits, str | os.PathLike):
        logits = open_npy(logits)
    if isinstance(logits, np.ndarray | Tensor):
        rows = _array(logits, what)
        for part, start in row_chunks(rows):
            _check_finite(part, start, what)
        if not len(rows):
            raise BadData(f"{what} hold no rows; give one row an image, at least one.")
        return rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float32), None
    parts, labels = [], []
    for part, some in _chunks(logits, what, CHUNK):
        parts.append(part if part.dtype == np.float64 else part.astype(np.float32))
        if some is not None:
            labels.append(some)
    if not parts or not sum(len(part) for part in parts):
        raise BadData(f"{what} hold no rows; give one row an image, at least one.")
    if labels and len(labels) != len(parts):
        raise BadData(f"{len(labels)} of {len(parts)} chunks of {what} came with labels; give all or none.")
    return np.concatenate(parts), np.concatenate(labels) if labels else None


def open_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """A .npy file as a memory map; a file that was cut short, or that holds objects, is refused."""
    if not Path(path).is_file():
        raise BadFile(f"{path} is not a file; expected a .npy of logits (rows, classes).")
    return read_npy(Path(path), mapped=True)


def _paired(logits: Logits, targets: Logits | None, chunk: int) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Chunks of the logits with the same rows of the targets beside them."""
    if targets is None:
        for part, _ in _chunks(logits, "the logits", chunk):
            yield part, None
        return
    left, right = _chunks(logits, "the logits", chunk), _chunks(targets, "the targets", chunk)
    here, there = np.empty((0, 0)), np.empty((0, 0))
    counts = [0, 0]
    while True:
        if not len(here):
            here = next(left, (np.empty((0, 0)), None))[0]
            counts[0] += len(here)
        if not len(there):
            there = next(right, (np.empty((0, 0)), None))[0]
            counts[1] += len(there)
        if not len(here) or not len(there):
            break
        both = min(len(here), len(there))
        yield here[:both], there[:both]
        here, there = here[both:], there[both:]
    counts[0] += sum(len(part) for part, _ in left)
    counts[1] += sum(len(part) for part, _ in right)
    if counts[0] != counts[1]:
        raise BadData(
            f"the two networks' logits have {counts[0]} and {counts[1]} rows; they must be of the same images, "
            "row by row."
        )


def _chunks(logits: Logits, what: str, chunk: int) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Checked chunks of rows with the labels that came with them."""
    if isinstance(logits, str | os.PathLike):
        logits = open_npy(logits)
    whole = isinstance(logits, np.ndarray | Tensor)
    source: Iterable[Any] = _sliced(logits, chunk) if whole else logits
    start, width = 0, None
    for item in source:
        given, labels = (item[0], item[1]) if _is_pair(item) else (item, None)
        part = _array(given, what)
        if width is not None and part.shape[1] != width:
            raise BadData(f"{what} have {width} columns at first and {part.shape[1]} from row {start} on.")
        width = part.shape[1]
        _check_finite(part, start, what)
        if labels is not None:
            labels = torch.as_tensor(labels).cpu().numpy()
            if labels.shape != (len(part),):
                raise BadData(f"a chunk of {len(part)} rows of logits came with labels of shape {labels.shape}.")
        yield part, labels
        start += len(part)


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple | list) and len(item) >= 2 and hasattr(item[0], "shape")


def _sliced(array: Any, chunk: int) -> Iterator[Any]:
    if array.ndim != 2:
        yield array  # refused where it is looked at
        return
    for part, _ in row_chunks(array, chunk):
        yield part


def row_chunks(array: Any, chunk: int = CHUNK, *, like: Any = None) -> Iterator[tuple[Any, int]]:
    """Rows with the number of the first, so many that their float64 is no more than LARGEST bytes.

    Of a memory map what was read is let go again, or the whole file would count as this process's memory.
    like: another array whose chunks these go with.
    """
    widest = max(array.shape[1], 0 if like is None else like.shape[1], 1)
    step = max(1, min(chunk, LARGEST // (8 * widest)))
    for start in range(0, len(array), step):
        yield array[start : start + step], start
        release(array)


def release(array: Any) -> None:
    """Let go of what was read of a memory map; the system keeps it as long as nobody else needs the room."""
    mapped = memory_map(array)
    if mapped is not None and hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED)


def memory_map(array: Any) -> mmap.mmap | None:
    """The memory map that an array is a view of, however many views lie between; None for one in memory."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, mmap.mmap) else None


def _array(given: Any, what: str) -> np.ndarray:
    rows = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if rows.ndim != 2:
        raise BadData(f"{what} have shape {rows.shape}; they must be (rows, classes), one row an image.")
    if rows.dtype.kind not in "fiu":
        raise BadData(f"{what} are of type {rows.dtype}; they must be real numbers, float32 for example.")
    if rows.shape[1] < 2:
        raise BadData(f"{what} have {rows.shape[1]} column(s); a dependency needs two classes or more, a column each.")
    return rows


def _check_finite(part: np.ndarray, start: int, what: str) -> None:
    if part.dtype.kind != "f" or np.isfinite(part).all():
        return
    row, column = np.argwhere(~np.isfinite(part))[0]
    raise BadData(
        f"{what} hold {part[row, column]} at row {start + row}, column {column}; leave such rows out, or look at "
        "what made them."
    )


def check_names(names: Sequence[str] | None, count: int, what: str = "classes") -> tuple[str, ...]:
    """Class names, one for each column; numbers where there are none."""
    if names is None:
        return tuple(str(i) for i in range(count))
    if len(names) != count:
        raise BadData(f"{len(names)} class names for logits of {count} {what}; give one name a column, in order.")
    return tuple(str(name) for name in names)


def check_labels(labels: Any, rows: int, count: int) -> np.ndarray:
    """Labels as numbers of columns; at least two classes among them."""
    result = torch.as_tensor(labels).cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if result.shape != (rows,) or result.dtype.kind not in "iu":
        raise BadData(f"{rows} rows of logits and labels of shape {result.shape}, {result.dtype}.")
    if result.min() < 0 or result.max() >= count:
        raise BadData(
            f"labels run from {result.min()} to {result.max()}; they must be column numbers, 0 to {count - 1}."
        )
    if result.min() == result.max():
        raise BadData(f"all {rows} labels are {result.min()}; give rows of two classes or more.")
    return result.astype(np.int64)
