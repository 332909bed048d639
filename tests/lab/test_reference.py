"""`make docs`: a page per public package, with the options that functions take."""

import subprocess
import sys

import pytest

pytest.importorskip("pdoc")


@pytest.mark.timeout(120)
def test_the_reference_shows_public_names_with_their_options(tmp_path):
    code = f"from brickwork_lab.reference import main; main({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    page = (tmp_path / "brickwork.html").read_text(encoding="utf-8")
    assert 'id="disassemble"' in page and "Share of the channels of every layer that stays" in page
    pages = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.html")}
    assert {"brickwork/bricks.html", "brickwork/pools.html", "brickwork/errors.html"} <= pages
    assert "brickwork/pools/coder.html" not in pages  # nothing that a user does not need
    shown = (tmp_path / "brickwork" / "pools.html").read_text(encoding="utf-8")
    assert 'id="learn"' in shown and "Commitment weight" in shown and 'id="_' not in shown.replace('id="__', "")
