"""The README's numbers are those of studies/results."""

import json
from pathlib import Path

import pytest

from brickwork.errors import BadFile, UnknownName
from brickwork_lab.studies.headlines import filled, main, with_blocks

ROOT = Path(__file__).parents[3]


def test_the_readme_is_up_to_date():
    template = (ROOT / "studies" / "headlines.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_blocks(readme, filled(template, ROOT / "studies" / "results")) == readme, "run `make results`"
    assert readme.count("<!-- end -->") == template.count("<!-- end -->") == 2


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "results").mkdir()
    rows = [
        {"what": "a", "ours": 50.04, "ours_each": [50.0, 50.08]},
        {"what": "b", "ours": 1},
        {"what": "b", "ours": 2},
    ]
    (tmp_path / "results" / "s.json").write_text(json.dumps({"rows": rows}))
    return tmp_path


def block(text):
    return f"<!-- one: made -->\n{text}\n<!-- end -->\n"


def test_a_block_is_filled_and_the_rest_of_the_page_stays(folder):
    (folder / "headlines.md").write_text("what it is\n" + block("now {s :: a}"))
    (folder / "page.md").write_text("before\n" + block("old") + "<!-- two: by hand -->\nkept {s :: no}\n<!-- end -->\n")
    main(str(folder), str(folder / "page.md"))
    said = (folder / "page.md").read_text()
    assert said == "before\n" + block("now 50.0 ± 0.04") + "<!-- two: by hand -->\nkept {s :: no}\n<!-- end -->\n"


@pytest.mark.parametrize(
    ("field", "fault", "said"),
    [
        ("{t :: a}", UnknownName, "unknown file of results 't'"),
        ("{s :: c}", UnknownName, "unknown row of s.json 'c'"),
        ("{s :: b}", BadFile, "several rows 'b'"),
        ("{s :: a :: hers}", UnknownName, "unknown column of the row 'hers'"),
        ("{s :: a :: what}", BadFile, "must be a number"),
        ("{s}", BadFile, "FILE :: ROW"),
    ],
)
def test_a_field_that_names_no_number_is_refused(folder, field, fault, said):
    with pytest.raises(fault, match=said):
        filled(block(field), folder / "results")


def test_a_page_without_the_block_is_refused(folder):
    with pytest.raises(BadFile, match="no block 'one'"):
        with_blocks("nothing", filled(block("{s :: a}"), folder / "results"))
