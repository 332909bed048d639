"""Scenarios: classes dealt out once each, sets brought to one shape, and requests that are wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from brickwork import continual, data
from brickwork.continual import split_classes
from brickwork.data.class_groups import class_groups
from brickwork.errors import BadData, BadFile, RequestError


def test_every_class_is_dealt_once_and_images_stay_whole(digits):
    found = continual.split_classes(digits, tasks=5, per=2, seed=1993)
    assert sorted(name for task in found.tasks for name in task.classes) == sorted(digits.classes)
    assert sum(len(task.train_labels) for task in found.tasks) == len(digits.train_labels)
    for task in found.tasks:
        for label, name in enumerate(task.classes):
            wanted = digits.train_images[digits.train_labels == digits.classes.index(name)]
            assert np.array_equal(task.train_images[task.train_labels == label], wanted)


def test_the_seed_decides_the_order(digits):
    orders = [[t.classes for t in continual.split_classes(digits, per=2, seed=s).tasks] for s in (None, 0, 0, 1)]
    assert orders[0] == [("0", "1"), ("2", "3"), ("4", "5"), ("6", "7"), ("8", "9")]
    assert orders[1] == orders[2] != orders[3]


def test_either_number_is_enough(digits):
    assert len(continual.split_classes(digits, tasks=3)) == 3  # of 3 classes; one is left over
    assert len(continual.split_classes(digits, per=4)) == 2


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"tasks": 6, "per": 2}, "need 12; digits@40 has 10"),
        ({"tasks": 0}, "tasks is 0"),
        ({"per": -1}, "per is -1"),
        ({}, "say into how many"),
        ({"per": 11}, "has 10"),
        ({"tasks": 11}, "has 10"),
    ],
    ids=["too many", "no tasks", "negative", "nothing", "too wide", "too thin"],
)
def test_a_wrong_split_is_refused(digits, asked, match):
    with pytest.raises(RequestError, match=match):
        continual.split_classes(digits, **asked)


def test_a_sequence_has_one_shape(digits):
    colour = data.load("digits:A@5", size=12)
    found = continual.sequence([digits, colour])
    assert {task.shape for task in found.tasks} == {(8, 8, 3)} and found.name == "digits@40 → digits:A@5"
    assert continual.sequence([digits, colour], size=10).tasks[0].shape == (10, 10, 3)
    first = found.tasks[0].train_images
    assert (first == first[..., :1]).all()  # grey repeated
    assert "2 tasks of 5 to 10 classes" in str(found)


def test_tasks_that_cannot_be_are_refused(digits):
    with pytest.raises(RequestError, match="two tasks are called"):
        continual.sequence([digits, digits])
    with pytest.raises(RequestError, match="one data set or more"):
        continual.sequence([])
    with pytest.raises(BadData, match="8×8×1"):
        continual.Scenario("x", (data.load("digits:A@5", size=12), digits))
    empty = replace(digits, test_images=digits.test_images[:0], test_labels=digits.test_labels[:0], test_masks=None)
    with pytest.raises(BadData, match="no test images"):
        continual.sequence([empty])


def test_what_is_held_out_is_neither_learned_from_nor_a_test_image():
    tasks = continual.split_classes(data.load("digits@20", size=8, channels=1), tasks=2, per=5, seed=1)
    held = tasks.held_out(0.25)
    for before, after in zip(tasks.tasks, held.tasks, strict=True):
        every = np.concatenate([after.train_images, after.test_images])
        assert sorted(map(bytes, every)) == sorted(map(bytes, before.train_images))
        assert len(after.test_labels) == 25 and set(after.test_labels) == set(range(5))
        assert after.classes == before.classes and after.name == before.name
    for share in (0.0, 1.0, float("nan")):
        with pytest.raises(RequestError, match="above 0 and below 1"):
            tasks.held_out(share)


def test_tasks_by_groups_of_classes(tmp_path):
    digits = data.load("digits@5", size=8)
    two = split_classes(digits, groups={"round": ["0", "8", "6"], "straight": ["1", "7"]})
    assert [task.classes for task in two.tasks] == [("0", "8", "6"), ("1", "7")] and two.name == "digits@5 in 2 groups"
    assert [task.name for task in two.tasks] == ["digits@5#round", "digits@5#straight"]
    assert [task.name for task in split_classes(digits, groups={"even": ["0", "2"]}).tasks] == ["digits@5#even"]
    file = tmp_path / "groups.json"
    file.write_text('{"a": ["3", "4"], "b": ["5"], "c": ["9"]}')
    some = split_classes(digits, groups=file, tasks=2)
    assert [task.classes for task in some.tasks] == [("3", "4"), ("5",)]
    for wrong, message in (
        ({"groups": {"a": ["0"], "b": ["0"]}}, "'0' is in the groups twice"),
        ({"groups": {"a": ["cat"]}}, "no class 'cat'"),
        ({"groups": "superclass"}, "no class 'beaver'"),
        ({"groups": {"a": ["0"]}, "per": 1}, "leave out per and seed"),
        ({"groups": {"a": ["0"]}, "tasks": 2}, "there are 1 groups"),
        ({"groups": "nowhere.json"}, "must be superclass, or a JSON file"),
    ):
        with pytest.raises(RequestError, match=message):
            split_classes(digits, **wrong)
    file.write_text("[1]")
    with pytest.raises(BadFile, match="must hold groups of classes"):
        split_classes(digits, groups=file)
    file.write_text('{"a": ["3"], "b": ["4"], "a": ["5"]}')
    with pytest.raises(BadFile, match="the group 'a' is there twice"):
        split_classes(digits, groups=file)


def test_superclasses_are_all_of_cifar_100s_classes_once():
    groups = class_groups("superclass")
    every = [name for own in groups.values() for name in own]
    assert len(groups) == 20 and {len(own) for own in groups.values()} == {5} and len(set(every)) == 100
