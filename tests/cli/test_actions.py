"""Help of verbs with actions: who takes what, and one action's options explained."""

import importlib

import pytest
import typer

from brickwork import cli

ACTIONS = [
    pytest.param(verb, action, id=f"{verb} {action}")
    for verb in ("depend", "pool", "transplant")
    for action in importlib.import_module(f"brickwork.cli.{verb}").TAKES
]


def options_of(verb):
    """{name in Python: as typed} of the verb's options."""
    command = typer.main.get_command(cli.application([verb])).commands[verb]
    return {p.name: max(p.opts, key=len) for p in command.params if p.param_type_name == "option"}


@pytest.mark.parametrize(("verb", "action"), ACTIONS)
def test_an_action_explains_its_own_options_and_no_others(run, verb, action):
    module, said = importlib.import_module(f"brickwork.cli.{verb}"), options_of(verb)
    code, printed, _ = run(verb, action, "-h")
    lines = {line.split()[0] for line in printed.splitlines() if line.startswith("  --")}
    assert code == 0
    assert lines == {said[n] for n in module.TAKES[action] | module.EVERYWHERE if n in said}
    examples = [line for line in printed.splitlines() if line.startswith(f"  brickwork {verb} ")]
    assert all(line.split()[2] == action for line in examples)


@pytest.mark.parametrize("verb", ["depend", "pool", "transplant"])
def test_a_verb_names_the_options_of_every_action(run, verb):
    module, said = importlib.import_module(f"brickwork.cli.{verb}"), options_of(verb)
    code, printed, _ = run(verb, "-h")
    assert code == 0
    table = printed.split("Options of each action")[1].split("\nOptions:")[0]
    rows, last = {}, ""
    for line in table.splitlines()[1:]:
        words = line.split()
        if words and not line.startswith("    "):
            last = words.pop(0)
        rows.setdefault(last, set()).update(words)
    rows.pop("", None)
    assert rows == {str(a): {said[n] for n in names} for a, names in module.TAKES.items()}


def test_headings(run):
    _, printed, _ = run("train", "-h")
    assert [line for line in printed.splitlines() if line.endswith(":") and not line.startswith(" ")] == [
        "Arguments:",
        "The training:",
        "Classes kept apart:",
        "How it runs:",
        "Options:",
    ]
    training = printed.split("The training:")[1].split("Classes kept apart:")[0]
    assert "--epochs" in training and "--cut" not in training


def test_an_option_of_another_action_is_refused(run, tmp_path):
    code, _, complaint = run("depend", "show", tmp_path, "--device", "cpu")
    assert code == 2 and "--device belongs to depend fit and add, not to depend show." in complaint
