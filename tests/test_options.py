"""What an options class promises, and that every one of the package keeps it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import brickwork
from brickwork import cli, zoo
from brickwork.errors import RequestError
from brickwork.options import Options, Setting, fields_of, option, parse_numbers, takes

SOURCE = Path(brickwork.__file__).parent
MODULES = sorted(
    ".".join(("brickwork", *path.relative_to(SOURCE).with_suffix("").parts))
    for path in [*SOURCE.rglob("options.py"), *SOURCE.rglob("*_options.py")]
)


class Cut(Options):
    budget: float | None = option(default=None, above=0, at_most=1, help="Share that may stay.")
    of: Literal["parameters", "macs", "latency"] = option(default="parameters", help="What the budget counts.")
    round_to: int = option(default=1, at_least=1, help="Widths are a multiple of this.")
    widths: tuple[int, ...] = option(default=(), at_least=1, separator=",", help="Widths.")
    alpha: tuple[float, ...] = option(default=(1.0,), parse=parse_numbers, help="Weights.")
    kernel: int = option(default=1, odd=True, at_least=1, help="Kernel size.")
    fast: bool = option(default=False, help="No repair.")
    name: str | int | None = option(default=None, help="A layer, by name or number.")
    more: Mapping[str, Any] | None = option(default=None, help="Arguments of something else.")
    where: Path | None = option(default=None, help="A folder.")

    def rules(self):
        if self.fast and self.budget is None:
            yield "`fast` needs a `budget`"


def complaint(**given: Any) -> str:
    with pytest.raises(RequestError) as caught:
        Cut(**given)
    return str(caught.value)


# what is refused, and in which words


def test_all_problems_are_told_at_once():
    told = complaint(budget=2, of="mac", round_to=0, fast="yes")
    assert told == (
        "budget is 2; it must be above 0 and at most 1; of is 'mac'; it must be one of parameters, macs, latency; "
        "did you mean 'macs'?; round_to is 0; it must be 1 or more; fast is 'yes'; it must be true or false."
    )
    assert complaint(fast=True) == "fast needs a budget."


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"budget": 0}, "above 0 and at most 1"),
        ({"budget": float("nan")}, "above 0 and at most 1"),
        ({"budget": float("inf")}, "above 0 and at most 1"),
        ({"budget": "half"}, "a number"),
        ({"budget": True}, "a number"),
        ({"round_to": 1.5}, "a whole number"),
        ({"round_to": None}, "a whole number"),
        ({"round_to": "2"}, "a whole number"),
        ({"kernel": 2}, "odd"),
        ({"of": 3}, "one of parameters, macs, latency"),
        ({"of": "flops"}, "one of parameters, macs, latency"),
        ({"widths": 3.5}, "a whole number"),
        ({"widths": [4, 0]}, "1 or more"),
        ({"widths": "4,8"}, "a list"),
        ({"name": 1.5}, "a word or a whole number"),
        ({"more": 3}, "Mapping"),
        ({"fast": 1}, "true or false"),
        ({"where": 3}, "a path"),
    ],
    ids=str,
)
def test_a_refusal_says_the_value_and_what_is_allowed(given, rule):
    (name,) = given
    told = complaint(**given)
    assert told.startswith(f"{name} is ") and f"; it must be {rule}" in told


def test_bounds_as_words():
    said = {
        "0 to 1": {"at_least": 0, "at_most": 1},
        "above 0 and below 1": {"above": 0, "below": 1},
        "2 or more": {"at_least": 2},
        "at most 3": {"at_most": 3},
        "a number": {},
    }
    assert {text: Setting("", **limits).bounds() for text, limits in said.items()} == {text: text for text in said}


def test_a_guess_only_where_one_is_near():
    assert "did you mean 'latency'?" in complaint(of="latencies") and "did you mean" not in complaint(of="xyz")


# values in their own types


def test_values_are_normal():
    cut = Cut(budget=np.float32(0.5), round_to=np.int64(2), widths=[np.int64(3), 4], alpha="0:1:0.5", where="a/b")
    assert cut == Cut(budget=0.5, round_to=2, widths=(3, 4), alpha=(0.0, 0.5, 1.0), where=Path("a/b"))
    assert type(cut.round_to) is int and type(cut.budget) is float and type(cut.widths[0]) is int
    assert Cut(budget=1).budget == 1.0 and type(Cut(budget=1).budget) is float
    assert Cut(name="conv1").name == "conv1" and Cut(name=2).name == 2


def test_frozen_equal_and_shown_by_what_was_changed():
    cut = Cut(budget=0.5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        cut.budget = 1.0
    assert cut == Cut(budget=0.5) != Cut() and hash(cut) == hash(Cut(budget=0.5))
    assert repr(cut) == "Cut(budget=0.5)" and cut.changed() == {"budget": 0.5}
    with pytest.raises(TypeError):
        Cut(0.5)


def test_words_as_values():
    fields = fields_of(Cut)
    assert fields["widths"].read(["4,8", "16"]) == (4, 8, 16) and fields["alpha"].read("0:1:0.5") == (0.0, 0.5, 1.0)
    assert fields["more"].read(["a=1", "b=x", "c=[1]"]) == {"a": 1, "b": "x", "c": [1]}
    assert fields["name"].read("3") == 3 and fields["name"].read("conv1") == "conv1"
    assert fields["where"].read("x") == Path("x") and fields["round_to"].read("x") == "x"  # `problem` refuses it
    with pytest.raises(RequestError, match="NAME=VALUE, not 'a'"):
        fields["more"].read(["a"])


# from a saved record


def test_from_a_dictionary():
    assert Cut.from_dict({"budget": 0.5, "widths": [3]}) == Cut(budget=0.5, widths=(3,))
    with pytest.raises(RequestError, match="unknown option 'buget'; did you mean 'budget'"):
        Cut.from_dict({"buget": 0.5})
    with pytest.raises(RequestError, match=r"budget is 2; it must be above 0.*of is 'x'"):
        Cut.from_dict({"budget": 2, "of": "x"})

    class Needs(Options):
        model: str = option(help="A model folder.")

    with pytest.raises(RequestError, match="model is missing; A model folder"):
        Needs.from_dict({})


# a function that takes them


@takes(Cut)
def cut(model: str, /, classes: str = "all", *, device: str = "cpu", options: Cut) -> tuple[str, str, str, Cut]:
    return model, classes, device, options


def test_a_function_takes_the_fields_as_keywords():
    assert cut("a", budget=0.5) == ("a", "all", "cpu", Cut(budget=0.5))
    assert cut("a", "b", device="x", options=Cut(budget=0.5), round_to=8)[3] == Cut(budget=0.5, round_to=8)
    with pytest.raises(RequestError, match="budget is 2"):
        cut("a", budget=2)
    with pytest.raises(RequestError, match="budget is 2"):
        cut("a", options=Cut(), budget=2)


def test_the_signature_shows_every_field_with_its_default():
    parameters = inspect.signature(cut).parameters
    assert list(parameters) == ["model", "classes", *fields_of(Cut), "device", "options"]
    assert {n: p.default for n, p in parameters.items() if n in fields_of(Cut)} == {
        name: field.default for name, field in fields_of(Cut).items()
    }
    assert all(p.kind is p.KEYWORD_ONLY for n, p in parameters.items() if n in fields_of(Cut))
    assert parameters["options"].default is None and cut.options == {"options": Cut}


def test_an_unexpected_keyword_is_refused_with_the_nearest():
    with pytest.raises(TypeError, match=r"cut\(\) got an unexpected keyword argument 'buget'; did you mean 'budget'\?"):
        cut("a", buget=1)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'xyz'$"):
        cut("a", xyz=1)


def test_two_classes_and_what_is_left_over():
    class Run(Options):
        device: str = option(default="cpu", help="Where.")

    @takes(options=Cut, running=Run)
    def both(*, options: Cut, running: Run, **others: Any) -> Any:
        return options, running, others

    assert both(budget=1, device="x", other=3) == (Cut(budget=1), Run(device="x"), {"other": 3})


# --options FILE on a command


@pytest.fixture
def model(tmp_path):
    return brickwork.save(zoo.build("lenet", num_classes=10, seed=0), tmp_path / "model")


def evaluated(run, model, tmp_path, text: str, *typed: object) -> tuple[int, str, str]:
    (tmp_path / "o.yaml").write_text(text)
    return run("eval", model, "digits@3", "--options", tmp_path / "o.yaml", "--json", *typed)


def test_options_from_a_file_and_what_is_typed_wins(run, model, tmp_path):
    code, out, err = evaluated(run, model, tmp_path, "split: train\nbatch-size: 7\nseed: 3\n")
    assert code == 0 and json.loads(out)["split"] == "train", err
    code, out, err = evaluated(run, model, tmp_path, "split: train\n", "--split", "test")
    assert code == 0 and json.loads(out)["split"] == "test", err


def test_a_file_may_say_every_option_of_the_command(run, model, tmp_path):
    text = f"classes: 0,1\ndata: digits@5\nout: {tmp_path / 'part'}\nkeep: 0.5\ndepth: conv2\nrepair: none\n"
    (tmp_path / "o.yaml").write_text(text)
    code, out, err = run("disassemble", model, "--options", tmp_path / "o.yaml", "--json")
    assert code == 0, err
    assert json.loads(out)["options"]["depth"] == "conv2" and (tmp_path / "part" / "config.json").exists()
    (tmp_path / "info.yaml").write_text("input_shape: 3x40x40\n")
    code, out, err = run("info", "resnet8", "--options", tmp_path / "info.yaml", "--json")
    assert code == 0 and json.loads(out)["input_shape"] == [3, 40, 40], err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("splt: train\n", "o.yaml: there is no option 'splt'; did you mean 'split'?"),
        ("split: trian\n", "o.yaml: --split is 'trian'; it must be one of test, train, all; did you mean 'train'?"),
        ("batch_size: 0\nseed: x\n", "o.yaml: --batch-size is 0; it must be 1 or more; "),
        ("batch_size: 0\nseed: x\n", "o.yaml: --seed is 'x'; it must be a whole number"),
        ("batch_size: 1.5\n", "o.yaml: --batch-size is 1.5; it must be a whole number"),
        ("- split\n", "it must hold options, as in seed: 1"),
        ("split: [\n", "o.yaml"),
    ],
    ids=["key", "choice", "two, first", "two, second", "type", "list", "no YAML"],
)
def test_a_wrong_file_is_refused_by_name(run, model, tmp_path, text, message):
    code, out, err = evaluated(run, model, tmp_path, text)
    assert code == 2 and message in err and out == "" and err.count("\n") == 1 and "unexpected" not in err, err


def test_a_file_that_is_not_there(run, model, tmp_path):
    code, out, err = run("eval", model, "digits@3", "--options", tmp_path / "none.yaml")
    assert code == 2 and "none.yaml" in err and out == "" and err.count("\n") == 1


# every options class of the package


def classes() -> list[type[Options]]:
    for module in MODULES:
        importlib.import_module(module)
    for path in sorted((SOURCE / "continual").glob("*.py")):  # its methods are options classes
        importlib.import_module(
            f"brickwork.continual.{path.stem}" if path.stem != "__init__" else "brickwork.continual"
        )
    for verb in cli.VERBS:
        cli.find(verb)
    found, left = [], [Options]
    while left:
        for cls in left.pop().__subclasses__():
            left.append(cls)
            if cls.__module__.startswith("brickwork.") and not inspect.isabstract(cls):
                found.append(cls)
    return sorted(set(found), key=lambda cls: (cls.__module__, cls.__name__))


CLASSES = [pytest.param(cls, id=f"{cls.__module__.removeprefix('brickwork.')}.{cls.__name__}") for cls in classes()]


def test_there_are_many():
    assert {"brickwork.bricks.options", "brickwork.model_options", "brickwork.training.options"} <= set(MODULES)
    assert len(CLASSES) > 20


@pytest.mark.parametrize("cls", CLASSES)
def test_an_options_class_explains_itself(cls):
    assert cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}(")
    assert fields_of(cls) or cls.__module__.startswith("brickwork.continual.")  # a method may have no options
    for name, field in fields_of(cls).items():
        text = field.setting.help
        assert re.fullmatch(r"\S.*[.…]", text, re.DOTALL), (name, text)
        first = text.split()[0]
        assert first[0].isupper() or not first[0].isascii() or "(" in first or ":" in first, (name, text)


@pytest.mark.parametrize("cls", CLASSES)
def test_defaults_are_good_and_survive_json(cls):
    needed = {n: EXAMPLES[n] for n, f in fields_of(cls).items() if f.required}
    options = cls(**needed)
    assert set(options.changed()) == set(needed)  # a default is normal already
    again = cls.from_dict(json.loads(json.dumps(options.to_dict())))
    assert again == options and again.to_dict() == options.to_dict()


#: for options without a default
EXAMPLES = {"name": "a", "data": "digits", "out": "x", "models": ["a"], "to": "onnx"}


@pytest.mark.parametrize("cls", CLASSES)
def test_a_changed_option_survives_json(cls):
    """For every field a value that differs from its default, one at a time, where rules allow it alone."""
    needed = {n: EXAMPLES[n] for n, f in fields_of(cls).items() if f.required}
    tried = 0
    for name, field in fields_of(cls).items():
        for value in _others(field):
            try:
                options = cls(**{**needed, name: value})
            except RequestError:
                continue
            assert cls.from_dict(json.loads(json.dumps(options.to_dict()))) == options
            tried += 1
            break
    assert tried or all(field.kinds[0] not in (int, float, bool, str) for field in fields_of(cls).values())


def _others(field) -> list[Any]:
    setting = field.setting
    if setting.choices:
        values: list[Any] = [choice for choice in setting.choices if choice != field.default]
    elif bool in field.kinds:
        values = [not field.default]
    elif float in field.kinds or int in field.kinds:
        values = [1, 3, 0.5, 0.001, 20]
    elif dict in field.kinds:
        values = [{"a": (0, 1)}]
    else:
        values = ["a", Path("a"), "ray"]
    return [[value] for value in values] if field.many else values


@pytest.mark.parametrize("module", MODULES)
def test_options_are_read_without_torch(module):
    code = f"import sys, {module}; heavy = {{'torch', 'numpy'}} & set(sys.modules); assert not heavy, heavy"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
