"""The language of data: SOURCE[:CLASSES][@AMOUNT]."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickwork.data.spec import DataSpec, class_indices, parse
from brickwork.errors import RequestError, UnknownName

ANIMALS = ["cat", "dog", "fox", "owl", "palm_tree"]


@pytest.mark.parametrize(
    ("text", "source", "classes", "amount"),
    [
        ("cifar10", "cifar10", None, None),
        ("cifar10:0-4", "cifar10", "0-4", None),
        ("cifar10@4", "cifar10", None, 4),
        ("cifar10:A@100", "cifar10", "A", 100),
        ("cifar100:seal,man,palm_tree", "cifar100", "seal,man,palm_tree", None),
        ("some@where/with:colon/photos:cat@2", "some@where/with:colon/photos", "cat", 2),
        ("photos/", "photos/", None, None),
        ("x.npy+y.npy", "x.npy+y.npy", None, None),
        ("hfds:user/beans:0-1@20", "hfds:user/beans", "0-1", 20),
        ("hfds:beans", "hfds:beans", None, None),
    ],
)
def test_parse(text, source, classes, amount):
    assert parse(text) == DataSpec(source, classes, amount)
    assert str(parse(text)) == text


@pytest.mark.parametrize("text", ["", ":A", "@4", "cifar10:", "cifar10@", "cifar10@0", "cifar10@four", "hfds:"])
def test_wrong_form_is_refused(text):
    with pytest.raises(RequestError, match=r"as in"):
        parse(text)


@pytest.mark.parametrize(
    ("selection", "indices"),
    [
        (None, [0, 1, 2, 3, 4]),
        ("A", [0, 1, 2]),
        ("B", [3, 4]),
        ("1-3", [1, 2, 3]),
        ("palm_tree,cat", [4, 0]),
        ("B,0", [3, 4, 0]),
    ],
)
def test_classes(selection, indices):
    assert class_indices(selection, ANIMALS) == indices


def test_a_class_name_goes_before_a_half_and_a_number():
    assert class_indices("A", ["B", "A", "C", "D"]) == [1]
    assert class_indices("0", ["5", "3", "0"]) == [2]


def test_unknown_class_offers_the_nearest():
    with pytest.raises(UnknownName, match=r"unknown class 'palmtree'; did you mean 'palm_tree'\?"):
        class_indices("palmtree", ANIMALS)


@pytest.mark.parametrize("selection", ["7", "3-9", "4-2"])
def test_numbers_out_of_range(selection):
    with pytest.raises(RequestError, match="there are 5, numbered 0 to 4"):
        class_indices(selection, ANIMALS)


def test_a_class_twice_is_refused():
    with pytest.raises(RequestError, match="cat more than once"):
        class_indices("A,cat", ANIMALS)


@given(st.integers(2, 60))
def test_halves_share_out_every_class(count):
    names = [f"class{i}" for i in range(count)]
    assert class_indices("A,B", names) == list(range(count))
    assert 0 <= len(class_indices("A", names)) - len(class_indices("B", names)) <= 1


def test_a_number_is_a_name_where_all_names_are_numbers():
    late = ["5", "6", "7", "8", "9"]
    assert class_indices("5-6,9", late) == [0, 1, 4]
    for item in ("0", "4-6", "8-12", "7-5"):
        with pytest.raises(RequestError):
            class_indices(item, late)
