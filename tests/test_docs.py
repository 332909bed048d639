"""Every python block of docs/*.md runs and prints what the page says (doctest)."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))


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
