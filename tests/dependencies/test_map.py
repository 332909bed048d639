"""The dependency map: what it measures against a plain loop, what it says, how it is kept, what it refuses."""

import json
import tracemalloc

import numpy as np
import pytest

from brickwork import CovLasso, DependencyMap
from brickwork.dependencies.gram import logit_gram
from brickwork.dependencies.replacing import accuracies, chebyshev
from brickwork.dependencies.theory import redundancies
from brickwork.errors import BadData, BadFile, OutputExists, RequestError, UnknownName

from .conftest import make_logits

NAMES = [f"class {i}" for i in range(12)]


@pytest.fixture
def found(logits, labels):
    return DependencyMap.fit(logits, labels, names=NAMES, max_dependencies=3, loss="balanced")


def test_accuracies_against_a_loop(logits, labels):
    scores = CovLasso(max_dependencies=2).fit(logits).predict(logits)
    scores[:50, 3] = np.maximum(logits[:50, 2], logits[:50, 4])  # ties: the first of equals wins
    found = accuracies(logits, scores, labels)
    for i in range(12):
        replaced = logits.astype(np.float64)
        replaced[:, i] = scores[:, i]
        right = replaced.argmax(1) == labels
        assert found["accuracy_after"][i] == pytest.approx(right.mean())
        assert found["positive_after"][i] == pytest.approx(right[labels == i].mean())
    assert found["accuracy_before"][0] == pytest.approx((logits.argmax(1) == labels).mean())


def test_an_unchanged_logit_changes_nothing(logits, labels):
    found = accuracies(logits, logits.astype(np.float64), labels)
    np.testing.assert_array_equal(found["accuracy_before"], found["accuracy_after"])
    np.testing.assert_array_equal(found["positive_before"], found["positive_after"])


def test_chebyshev_holds(found):
    """The bound is above what was seen, for every class: Eq. 3 with ε² where the paper has ε."""
    assert (found.columns["epsilon"] >= found.columns["epsilon_seen"]).all()
    with pytest.raises(RequestError, match="delta is 0"):
        chebyshev(np.ones(1), 0)


def test_redundancy_is_the_ratio_of_determinants(logits):
    moments = logit_gram(logits)
    seen = redundancies(moments, np.arange(12))
    for i in (0, 5):
        rest = np.delete(np.delete(moments.gram, i, 0), i, 1)
        ratio = np.linalg.det(moments.gram) / np.linalg.det(rest)
        assert seen["redundancy"][i] == pytest.approx(ratio, rel=1e-6)
        assert seen["information"][i] == pytest.approx(-0.5 * np.log(ratio / moments.gram[i, i]), rel=1e-6)
        x = logits.astype(np.float64)
        others = np.delete(x, i, 1)
        left = x[:, i] - others @ np.linalg.lstsq(others, x[:, i], rcond=None)[0]
        assert seen["redundancy"][i] == pytest.approx((left**2).mean(), rel=1e-6)
    between = redundancies(logit_gram(logits, logits), np.arange(12))
    np.testing.assert_allclose(between["redundancy"], seen["redundancy"], rtol=1e-8)
    twice = np.concatenate([logits, logits[:, :1]], 1)
    exact = redundancies(logit_gram(twice), np.arange(13))
    assert exact["redundancy"][0] == exact["redundancy"][12] == 0 < exact["redundancy"][1]
    assert np.isinf(exact["information"][0]) and exact["near_null"][0] > 0.49


def test_screening_is_counted(logits):
    found = DependencyMap.fit(logits, lam=0.9, relative=True)
    seen = found.facts["screening"]
    assert seen["bounds_violated"] == 0 and seen["theorem_3"]["violated"] == 0
    assert seen["pairs"] == 12 * 11 and seen["theorem_3"]["ruled_out"] > 0
    assert seen["conjecture_1"]["ruled_out"] >= seen["theorem_3"]["ruled_out"]
    assert seen["dependencies"] == int((found.coef != 0).sum())
    small = DependencyMap.fit(logits, lam=0.01, relative=True).facts["screening"]
    assert small["bounds_violated"] == small["theorem_3"]["violated"] == 0
    assert DependencyMap.fit(logits, max_dependencies=2, selection="greedy").facts["screening"] is None


def test_what_it_says(found):
    text = str(found)
    assert "12 classes within one network" in text and "the rows of the fit themselves" in text
    assert "class 3" in found.equation("class 3") and found.equation(3) == found.equation("class 3")
    assert found.depends_on(0) == sorted(found.depends_on(0), key=lambda item: -abs(item[1]))
    assert "<table>" in found._repr_html_()
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert len(data["classes"]) == 12 and data["summary"]["positive_kept"] > 0
    assert data["classes"][0]["depends_on"][0]["name"] == found.depends_on(0)[0][0]
    with pytest.raises(UnknownName, match="did you mean 'class 1'"):
        found.equation("clas 1")


def test_save_and_load(found, tmp_path, logits, labels):
    full = DependencyMap.fit(logits, labels, names=NAMES, lam=0.3, relative=True, bootstrap=3, null=19)
    for k, one in enumerate((found, full)):
        folder = one.save(tmp_path / f"m{k}")
        again = DependencyMap.load(folder)
        np.testing.assert_array_equal(again.coef, one.coef)
        assert again.to_dict() == one.to_dict() and str(again) == str(one)
        assert sorted(p.name for p in folder.iterdir()) == ["map.json", "map.safetensors"]
    with pytest.raises(OutputExists):
        found.save(tmp_path / "m0")
    found.save(tmp_path / "m0", force=True)
    (tmp_path / "m0" / "map.safetensors").write_bytes(b"short")
    with pytest.raises(BadFile, match="damaged"):
        DependencyMap.load(tmp_path / "m0")
    (tmp_path / "m1" / "map.json").write_text('{"format": "other"}')
    with pytest.raises(BadFile, match="format 'other'"):
        DependencyMap.load(tmp_path / "m1")
    with pytest.raises(BadFile, match="no dependency map"):
        DependencyMap.load(tmp_path)


def test_signal_survives_and_noise_does_not():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(300, 6))
    noise[:, 5] = noise[:, 0] + noise[:, 1] + 0.1 * noise[:, 5]
    found = DependencyMap.fit(noise, lam=0.3, relative=True, bootstrap=10, null=19, seed=1)
    assert found.frequency is not None
    assert found.frequency[5, :2].tolist() == [1.0, 1.0]
    assert found.stable()[5].tolist() == [True, True, False, False, False, False]
    assert found.columns["p_value"][5] == 0.05 and found.columns["p_value"][3] > 0.05
    again = DependencyMap.fit(noise, lam=0.3, relative=True, bootstrap=10, null=19, seed=1)
    assert again.to_dict() == found.to_dict()
    assert "survive resampling" in str(found)


def test_held_out_rows_and_test_rows(logits, labels):
    held = DependencyMap.fit(logits, labels, holdout=0.4, max_dependencies=3)
    assert held.facts["rows_fitted"] + held.facts["rows_measured"] == 400
    assert "held out" in held.facts["measured_on"]
    new, true = make_logits(rows=100, seed=5)
    other = DependencyMap.fit(logits, labels, test=(new, true), max_dependencies=3)
    assert other.facts["rows_measured"] == 100
    np.testing.assert_array_equal(other.coef, DependencyMap.fit(logits, labels, max_dependencies=3).coef)


def test_between_networks(logits, labels):
    g = logits @ np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))[0].astype(np.float32)
    found = DependencyMap.fit(logits, labels, targets=g, names=NAMES, max_dependencies=4, holdout=0.3)
    assert found.targets == tuple(NAMES) and "between two networks" in str(found)
    assert found.facts["screening"]["bounds_violated"] == 0
    few = DependencyMap.fit(logits, labels % 3, targets=g[:, :3], target_names=["a", "b", "c"], max_dependencies=4)
    assert few.coef.shape == (3, 12) and few.equation("a").startswith("a ≈ ")


def test_notes_on_odd_logits(logits):
    odd = logits.copy()
    odd[:, 2], odd[:, 5] = 1.0, odd[:, 4]
    notes = DependencyMap.fit(odd, lam=0.3, relative=True, names=NAMES).facts["notes"]
    assert notes == [
        "the logit of 'class 2' never changes.",
        "the logits of 'class 4', 'class 5' are the same in every row.",
    ]
    few = DependencyMap.fit(logits[:8], np.arange(8) % 2, lam=0.3, relative=True)
    assert "8 rows are fewer than 12 classes" in few.facts["notes"][0]
    assert "no images of '2'" in few.facts["notes"][1]
    assert not few.columns["redundancy"].any()
    assert json.dumps(few.to_dict(), allow_nan=False)


def test_two_classes_of_one_name(logits, labels):
    found = DependencyMap.fit(logits, labels, names=["crane", "crane", *NAMES[2:]], max_dependencies=1)
    with pytest.raises(RequestError, match=r"several classes are called 'crane'; give a number, one of \[0, 1\]"):
        found.equation("crane")
    assert found.equation(1).startswith("crane ≈")


def test_inputs_are_left_alone(logits, labels):
    before = logits.copy(), labels.copy()
    DependencyMap.fit(logits, labels, max_dependencies=2, holdout=0.3, loss="decision", selection="greedy")
    np.testing.assert_array_equal(logits, before[0])
    np.testing.assert_array_equal(labels, before[1])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"names": ["a"]}, BadData, "1 class names for logits of 12 classes"),
        ({"holdout": 1.0}, RequestError, "holdout is 1.0"),
        ({"holdout": 0.0001}, RequestError, "keeps no row"),
        ({"delta": 2.0}, RequestError, "delta is 2.0"),
        ({"model": CovLasso(lam=0.1), "lam": 0.2}, TypeError, "unexpected keyword argument 'model'"),
        ({"lam": -1.0}, RequestError, "λ must be above 0"),
        ({"targets": np.zeros((7, 12))}, BadData, "400 and 7 rows"),
        ({"targets": np.ones((400, 3)), "target_names": ["a"]}, BadData, "1 class names for logits of 3 target"),
        ({"test": (np.zeros((3, 12)),)}, RequestError, "test has 1 entries"),
        ({"test": (np.zeros((3, 5)), np.array([0, 1, 1]))}, BadData, "test logits have 5 classes"),
        ({"lam": 0.5, "bootstrap": -1}, RequestError, "bootstrap is -1"),
        ({"lam": 0.5, "null": 5}, RequestError, "19 rounds are the fewest"),
    ],
)
def test_wrong_requests(logits, labels, options, error, message):
    if "targets" in options:
        labels = labels % 3
    with pytest.raises(error, match=message):
        DependencyMap.fit(logits, labels, **options)


def test_no_bootstrap_no_stability(found):
    with pytest.raises(RequestError, match="without a bootstrap"):
        found.stable()


def test_redundancies_take_one_matrix_of_memory_and_leave_the_gram_as_it_was():
    draw = np.random.default_rng(0).standard_normal((900, 600))
    moments = logit_gram(draw)
    before = moments.gram.tobytes()
    tracemalloc.start()
    redundancies(moments, np.arange(600))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert moments.gram.tobytes() == before
    assert peak < 1.6 * moments.gram.nbytes  # the eigenvectors; a copy of the Gram matrix would make it 2
