"""Streamed Gram matrices: every way to hand logits over gives the same sums; bad logits are named."""

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from brickwork.dependencies import gram
from brickwork.dependencies.gram import check_labels, check_names, load_rows, logit_gram, open_npy
from brickwork.dependencies.mapping import fit_map
from brickwork.dependencies.measuring import measure
from brickwork.dependencies.replacing import accuracies, chebyshev
from brickwork.errors import BadData, BadFile


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(1.0, 2.0, size=(101, 6)).astype(np.float32)


def test_every_source_gives_the_same(logits, tmp_path):
    np.save(tmp_path / "l.npy", logits)
    wanted = logits.astype(np.float64).T @ logits.astype(np.float64) / len(logits)
    loader = DataLoader(TensorDataset(torch.from_numpy(logits), torch.zeros(101)), batch_size=16)
    sources = [
        logits,
        torch.from_numpy(logits),
        tmp_path / "l.npy",
        str(tmp_path / "l.npy"),
        np.array_split(logits, 7),
        (part for part in np.array_split(logits, 3)),
        loader,
    ]
    for source in sources:
        found = logit_gram(source)
        assert found.rows == 101 and found.within
        np.testing.assert_allclose(found.gram, wanted, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(found.gram, found.gram.T)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 50))
def test_chunks_are_the_whole(rows, chunk):
    x = np.random.default_rng(rows).normal(size=(rows, 3))
    y = np.random.default_rng(rows + 1).normal(size=(rows, 2))
    whole, parts = logit_gram(x, y), logit_gram(x, y, chunk=chunk)
    uneven = logit_gram(iter(np.array_split(x, 3)), y, chunk=chunk)
    for other in (parts, uneven):
        np.testing.assert_allclose(other.gram, whole.gram, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(other.cross, y.T @ x / rows, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(other.squares, (y * y).mean(0), rtol=1e-12)


def test_float16_is_summed_in_float64():
    big = np.full((3000, 2), 200.0, np.float16)  # a float16 square overflows
    assert logit_gram(big).gram.tolist() == [[40000.0] * 2] * 2


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_the_first_bad_number_is_named(logits, wrong):
    logits[57, 4] = wrong
    for read in (logit_gram, load_rows):
        with pytest.raises(BadData, match=r"row 57, column 4"):
            read(logits)
    with pytest.raises(BadData, match=r"row 57, column 4"):
        logit_gram(np.array_split(logits, 5))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((5, 1)), "two classes or more"),
        (np.zeros(5), r"shape \(5,\)"),
        (np.zeros((0, 3)), "no rows"),
        (np.array([["a", "b"]]), "real numbers"),
        ([], "no rows"),
        ([np.zeros((2, 3)), np.zeros((2, 4))], "3 columns at first and 4 from row 2"),
    ],
)
def test_what_is_no_table_of_logits_is_refused(given, message):
    with pytest.raises(BadData, match=message):
        logit_gram(given)


def test_two_networks_need_the_same_rows(logits):
    for other in (logits[:90], np.array_split(logits[:90], 4)):
        with pytest.raises(BadData, match="101 and 90 rows"):
            logit_gram(logits, other)


def test_a_file_cut_short(logits, tmp_path):
    np.save(tmp_path / "l.npy", logits)
    whole = (tmp_path / "l.npy").read_bytes()
    for keep in (0, 40, len(whole) - 10):
        (tmp_path / "short.npy").write_bytes(whole[:keep])
        with pytest.raises(BadFile, match=r"short\.npy cannot be read.*copy it again"):
            open_npy(tmp_path / "short.npy")
    with pytest.raises(BadFile, match="is not a file"):
        logit_gram(tmp_path / "none.npy")
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(BadFile, match="cannot be read"):
        open_npy(tmp_path / "o.npy")


def test_labels_and_names():
    assert check_names(None, 2) == ("0", "1")
    with pytest.raises(BadData, match="3 class names for logits of 2 classes"):
        check_names(["a", "b", "c"], 2)
    for labels, message in [
        (np.zeros(3, int), "all 3 labels are 0"),
        (np.array([0, 1, 5]), "labels run from 0 to 5"),
        (np.array([0, 1]), r"labels of shape \(2,\)"),
        (np.array([0.0, 1.0, 1.0]), "float64"),
    ]:
        with pytest.raises(BadData, match=message):
            check_labels(labels, 3, 4)


def test_chunks_may_bring_labels(logits):
    labels = np.arange(101) % 6
    parts = list(zip(np.array_split(logits, 4), np.array_split(labels, 4), strict=True))
    rows, brought = load_rows(parts)
    np.testing.assert_array_equal(rows, logits)
    np.testing.assert_array_equal(brought, labels)
    with pytest.raises(BadData, match="1 of 2 chunks"):
        load_rows([parts[0], parts[1][0]])
    with pytest.raises(BadData, match="came with labels of shape"):
        load_rows([(logits, labels[:5])])


def logit_errors(values, scores, labels, *, delta):
    """Mean |f − s|, against mean |f|, over all rows and over each class's own; mean squares; ε for 1 − δ of the rows."""
    left = np.abs(values.astype(np.float64) - scores)
    size = np.abs(values.astype(np.float64))
    square = (left * left).mean(0)
    result = {
        "abs_error": left.mean(0),
        "rel_error": left.mean(0) / size.mean(0),
        "square_error": square,
        "epsilon": chebyshev(square, delta),
        "epsilon_seen": np.quantile(left, 1 - delta, axis=0),
    }
    if labels is not None:
        own = labels[:, None] == np.arange(values.shape[1])
        count = np.where(own.any(0), own.sum(0), np.nan)
        result["positive_abs_error"] = (left * own).sum(0) / count
        result["positive_rel_error"] = np.where(
            own.any(0), (left * own).sum(0) / np.where(own.any(0), (size * own).sum(0), 1), np.nan
        )
    return result


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("delta", [0.05, 0.3, 0.9])
def test_what_is_measured_chunk_by_chunk_is_measured(monkeypatch, labelled, delta):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(501, 7)), rng.normal(size=(501, 5))
    coef, labels = rng.normal(size=(5, 7)), rng.integers(0, 4, 501) if labelled else None  # no rows of class 4
    scores = x @ coef.T
    wanted = logit_errors(y, scores, labels, delta=delta) | (accuracies(y, scores, labels) if labelled else {})
    for largest in (1, 8 * 7 * 40, 1 << 26):
        monkeypatch.setattr(gram, "LARGEST", largest)
        found = measure(x, y, labels, coef, delta=delta)
        assert set(found) == set(wanted)
        for name in wanted:
            np.testing.assert_allclose(found[name], wanted[name], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("holdout", [0.0, 0.25])
def test_a_file_is_fitted_in_chunks(tmp_path, monkeypatch, holdout):
    """Four copies of all rows in float64 were made: 17.6 GB for a file of 1.9."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40_000, 200)).astype(np.float32)
    rows[:, 7] = rows[:, 3] - rows[:, 4]
    np.save(tmp_path / "logits.npy", rows)
    labels, whole = rows.argmax(1), fit_map(rows, rows.argmax(1), holdout=holdout)
    monkeypatch.setattr(gram, "LARGEST", 1 << 22)
    tracemalloc.start()
    found = fit_map(open_npy(tmp_path / "logits.npy"), labels, holdout=holdout)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 40e6  # the file has 32 MB, four copies in float64 256
    np.testing.assert_allclose(found.coef, whole.coef, atol=1e-9)
    for name, column in whole.columns.items():
        np.testing.assert_allclose(found.columns[name], column, rtol=1e-6, atol=1e-9, err_msg=name)
    assert found.facts["inputs"] == whole.facts["inputs"] and found.facts["notes"] == whole.facts["notes"]


def test_a_network_is_asked_for_its_logits():
    with pytest.raises(
        BadData, match=r"the logits are a network; give what it answers: brickwork\.prediction\.predict"
    ):
        fit_map(torch.nn.Linear(2, 2))
