"""What holds for every command: its help shows its own options and nothing else, and every example can be typed."""

from __future__ import annotations

import collections
import shlex

import click
import pytest

from brickwork import cli
from brickwork.cli.command import Group, spelling
from brickwork.options import fields_of

COMMANDS = [pytest.param(words, command, id=" ".join(words)) for words, command in cli.walk()]
GROUPS = [verb for verb in cli.VERBS if isinstance(cli.find(verb), Group)]


def headings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]


def shown(text: str) -> set[str]:
    """The options that a help explains."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("  -")]
    return {word.rstrip(",") for line in lines for word in line.split("  ")[0].split() if word.startswith("-")}


def names_of(command: click.Command) -> list[str]:
    return [n for p in command.params if isinstance(p, click.Option) for n in (*p.opts, *p.secondary_opts)]


@pytest.mark.parametrize(("words", "command"), COMMANDS)
def test_a_command_explains_its_own_options_and_no_others(run, words, command):
    code, out, err = run(*words, "-h")
    assert code == 0 and err == ""
    assert shown(out) == {*names_of(command), "-h", "--help"}
    for options in command.options_classes:
        assert {spelling(name) for name in fields_of(options)} <= shown(out)
    assert all(len(line) <= 80 for line in out.splitlines() if not line.startswith("  brickwork "))


@pytest.mark.parametrize(("words", "command"), COMMANDS)
def test_no_two_options_of_a_command_are_the_same(words, command):
    twice = [name for name, count in collections.Counter(names_of(command)).items() if count > 1]
    assert not twice
    assert len({p.name for p in command.params}) == len(command.params)


@pytest.mark.parametrize(("words", "command"), COMMANDS)
def test_the_examples_of_a_help_can_be_typed(run, words, command):
    """Each stands on one line, calls this command, and click takes it apart."""
    _, out, _ = run(*words, "-h")
    examples = [line.strip() for line in out.splitlines() if line.startswith("  brickwork ")]
    assert examples or words in NO_EXAMPLE
    for line in examples:
        typed = shlex.split(line)
        assert tuple(typed[1 : 1 + len(words)]) == words
        command.make_context(" ".join(words), typed[1 + len(words) :])


#: said whole by its name
NO_EXAMPLE = {("demo",), ("info",)}


@pytest.mark.parametrize("verb", GROUPS)
def test_a_group_lists_its_actions(run, verb):
    code, out, _ = run(verb, "-h")
    assert code == 0 and headings(out) == ["Options:", "Commands:"] and shown(out) == {"-h", "--help"}
    listed = [line for line in out.split("Commands:\n")[1].splitlines() if not line.startswith("   ")]
    assert [line.split()[0] for line in listed] == list(cli.find(verb).find)
    assert all(len(line.split()) > 2 for line in listed) and "..." not in listed[0]


@pytest.mark.parametrize("verb", GROUPS)
def test_an_option_of_another_action_is_refused(run, verb):
    """For every action one option that it does not have and another does."""
    actions = {name: set(names_of(make())) for name, make in cli.find(verb).find.items()}
    for action, own in actions.items():
        foreign = sorted(set().union(*actions.values()) - own)
        if foreign:
            owners = [name for name, names in actions.items() if foreign[0] in names]
            code, out, err = run(verb, action, foreign[0], "x")
            assert code == 2 and out == "" and err.count("\n") == 1
            said = f"no such option {foreign[0]!r}; it belongs to brickwork {verb} {', '.join(owners)}"
            assert said in err and f"`brickwork {verb} {action} -h`" in err


@pytest.mark.parametrize("verb", GROUPS)
def test_a_group_alone_shows_its_help(run, verb):
    code, out, err = run(verb)
    assert code == 2 and f"Usage: brickwork {verb}" in out + err


def test_headings(run):
    _, printed, _ = run("train", "-h")
    assert headings(printed) == ["Arguments:", "The training:", "Classes kept apart:", "How it runs:", "Options:"]
    training = printed.split("The training:")[1].split("Classes kept apart:")[0]
    assert "--epochs" in training and "--cut" not in training


def test_a_line_is_not_broken_within_an_option():
    """A hyphen at the end of a line would leave half of --batch-size there."""
    for _, command in cli.walk():
        with click.Context(command) as context:
            assert not [line for line in command.get_help(context).splitlines() if line.endswith("-")]


def test_an_option_typed_twice_is_refused_where_it_takes_one_value(run, tmp_path):
    out = tmp_path / "a"
    code, printed, err = run("train", "lenet", "digits", "--lr", "1", "--out", out, "--lr", "2", "--epochs", "-1")
    assert code == 2 and printed == "" and not out.exists()
    assert "--epochs is '-1'; it must be 0 or more; --lr is given 2 times; give it once" in err
