"""What is a verb on the command line is a function in Python under the same word, with the same options, and an example."""

from __future__ import annotations

import doctest
import inspect

import click
import pytest

import brickwork
from brickwork import cli
from brickwork.cli.merging import ImagesOptions
from brickwork.cli.parameters import Reading, Running
from brickwork.cli.transplant import NetRunning
from brickwork.continual.options import SplitOptions
from brickwork.dependencies.options import CutLinkOptions
from brickwork.engine.options import EngineOptions
from brickwork.model_options import DataSplitOptions
from brickwork.options import fields_of

#: verbs that are no operation on networks, and why
TOOLS = {
    "demo": "a tour through the others",
    "data list": "what brickwork.data.load knows by name",
    "data fetch": "brickwork.data.load fetches by itself",
    "report": "a page of files that others wrote; in Python every result has plot() and _repr_html_",
    "studio": "a page that calls the others",
    "study": "a table of a paper, in brickwork_lab",
    "bench": "a measurement against peers, in brickwork_lab",
    "depend show": "DependencyMap.equation and .plot",
    "transplant list": "TransplantNet.to_dict and its repr",
    "transplant show": "connect by several ways, and a picture",
    "pool eval": "brickwork.eval of PoolFolder.rebuild",
    "pool rebuild": "PoolFolder.rebuild",
    "pool info": "PoolFolder.to_dict",
    "pool show": "a picture of a PoolFolder",
    "pool rm": "PoolFolder.remove",
}
#: options classes of a command that its function has no use for: folders, images and devices by name, or functions by name
ONLY_TYPED = {
    "train": {CutLinkOptions},  # makes the function that is `penalty` in Python
    "merge": {ImagesOptions},  # `data` in Python
    "depend fit": {DataSplitOptions},  # logits in Python
    "transplant add": {NetRunning},
    "continual": {SplitOptions, EngineOptions},  # split_classes makes the tasks in Python; other processes load folders
    "sweep": {EngineOptions},  # likewise; sweep_folders in Python
}
FOLDERS = {
    Reading,
    Running,
}  # how folders are read and replaced, and where: arguments of `load`, `save` and of functions
#: a verb whose package has the function, or whose word Python keeps for itself
CALLED = {"continual": "continual run", "import": "import_model", "export": "export_model"}

OPERATIONS = [
    pytest.param(" ".join(words), command, id=" ".join(words))
    for words, command in cli.walk()
    if " ".join(words) not in TOOLS
]


def function_of(name: str):
    found = brickwork
    for word in CALLED.get(name, name).split():
        found = getattr(found, word.replace("-", "_"))
    return found


def test_every_tool_is_a_command():
    assert set(TOOLS) <= {" ".join(words) for words, _ in cli.walk()}


@pytest.mark.parametrize(("name", "command"), OPERATIONS)
def test_a_verb_is_a_function_with_the_same_options_class(name, command):
    function = function_of(name)
    assert callable(function) and not isinstance(function, click.Command)
    wanted = set(command.options_classes) - FOLDERS - ONLY_TYPED.get(name, set())
    own = set(getattr(function, "options", {}).values())
    assert wanted <= own


@pytest.mark.parametrize(("name", "command"), OPERATIONS)
def test_an_option_is_a_keyword_with_the_same_default(name, command):
    """By the signature that help() and completion show."""
    parameters = inspect.signature(function_of(name)).parameters
    for cls in set(command.options_classes) - FOLDERS - ONLY_TYPED.get(name, set()):
        for option, field in fields_of(cls).items():
            default = inspect.Parameter.empty if field.required else field.default
            assert parameters[option].default == default and parameters[option].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize(("name", "command"), OPERATIONS)
def test_a_function_has_an_example(name, command):
    """pytest runs it, with those of all modules."""
    assert doctest.DocTestParser().get_examples(inspect.getdoc(function_of(name)) or ""), name


@pytest.mark.parametrize("name", [n for n in brickwork.__all__ if inspect.isfunction(getattr(brickwork, n))])
def test_every_public_function_has_an_example(name):
    assert doctest.DocTestParser().get_examples(inspect.getdoc(getattr(brickwork, name)) or "")
