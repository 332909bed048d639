"""Every python block of docs/*.md runs and prints what the page says (doctest); commands take the options that are shown."""

from __future__ import annotations

import base64
import doctest
import functools
import hashlib
import importlib.util
import io
import re
from pathlib import Path

import click
import numpy as np
import pytest
from PIL import Image

from brickwork.cli import VERBS, application

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
#: options of other programs that the pages show
FOREIGN = {"--folder", "--minutes", "--nproc-per-node", "--address", "--head"}


def blocks(page: Path) -> str:
    """The python blocks of a page with everything else blanked out, so that line numbers stay."""
    text, kept, inside = page.read_text(encoding="utf-8"), [], False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line.strip() == "```python" if not inside else False
            line = ""
        kept.append(line if inside else "")
    return "\n".join(kept) + "\n"


def test_there_are_pages():
    assert {"blueprint.md", "moments.md"} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run(page):
    examples = doctest.DocTestParser().get_doctest(blocks(page), {}, page.name, str(page), 0)
    assert examples.examples or "```python" not in page.read_text(encoding="utf-8"), "a block without >>>"
    problems: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples, out=problems.append)
    assert not problems, "".join(problems)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_are_good(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def options_of(command: click.Command) -> set[str]:
    return {"-h", "--help"} | {
        n for p in command.params if isinstance(p, click.Option) for n in p.opts + p.secondary_opts
    }


@functools.cache
def known_options() -> dict[str, dict[str, set[str]]]:
    """verb: action ("" where it has none): its options."""
    context, found = click.Context(application()), {}
    for verb in VERBS:
        command = context.command.get_command(context, verb)
        if isinstance(command, click.Group):
            actions = {name: command.get_command(context, name) for name in command.list_commands(context)}
        else:
            actions = {"": command}
        found[verb] = {name: options_of(action) for name, action in actions.items()}
    return found


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Every `brickwork VERB …` of a page: the verb and the words behind it, lines that go on joined."""
    typed = re.findall(r"brickwork ([a-z]+)\b([^`#\n]*)", re.sub(r"\\\n\s*", " ", text))
    return [(verb, words.split()) for verb, words in typed if verb in VERBS]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_commands_of_a_page_take_the_options_it_shows(page):
    text, wrong = page.read_text(encoding="utf-8"), []
    for verb, words in commands(text):
        actions = known_options()[verb]
        named = [a for word in words[:1] for a in word.split("|") if a in actions]
        allowed = set().union(*(actions[a] for a in named or actions))
        typed = [re.split(r"[=.,;:)]", word)[0] for word in words if re.match(r"--[a-z]", word)]
        wrong += [f"brickwork {verb} {' '.join(named)} {name}" for name in typed if name not in allowed]
    everything = set().union(*(options for actions in known_options().values() for options in actions.values()))
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text)) - FOREIGN
    assert not wrong and mentioned <= everything | {"--version"}, (wrong, mentioned - everything)


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch):
    if importlib.util.find_spec("timm") is None:
        pytest.skip("needs the extra timm")
    monkeypatch.chdir(tmp_path)
    [block] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(block, names)
    assert names["both"].training is False and (tmp_path / "folder" / "config.json").exists()


def test_what_the_layout_names_is_there():
    """`bricks/widths.py:within` in docs/layout.md is a file with that name in it; files of a row lie in the row's folder."""
    wrong = []
    for line in (ROOT / "docs" / "layout.md").read_text(encoding="utf-8").splitlines():
        inside = re.match(r"\| `([\w/]+)/`", line)
        for path, name in re.findall(r"`([\w/]+\.py)(?::([\w.]+))?`", line):
            homes = [ROOT / "tests" / Path(path).name, ROOT / "src" / "brickwork" / path]
            if inside:
                folders = re.findall(r"`([\w/]+)/`", line)
                homes = [ROOT / "src" / top / path for folder in folders for top in (f"brickwork/{folder}", folder)]
            file = next((home for home in homes if home.is_file()), None)
            defined = [re.compile(rf"^\s*(def |class )?{part}\b", re.M) for part in name.split(".") if part]
            if file is None or not all(one.search(file.read_text(encoding="utf-8")) for one in defined):
                wrong.append(f"{path}:{name}")
    assert not wrong


def test_the_pictures_of_the_pages_are_those_of_the_results():
    from brickwork_lab.studies.pictures import pictures

    pages = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    for name, text in pictures(ROOT / "studies" / "results").items():
        drawn = (ROOT / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8")
        assert _with_pixels(drawn) == _with_pixels(text), f"{name}: run `make results`"
        assert f"images/{name}.svg)" in pages


def _with_pixels(svg):
    """Pictures inside as their pixels: compressed bytes differ from one zlib to the next."""

    def pixels(match):
        with Image.open(io.BytesIO(base64.b64decode(match[1]))) as picture:
            return hashlib.sha256(np.asarray(picture).tobytes()).hexdigest()

    return re.sub(r"base64,([^\"]+)", pixels, svg)
