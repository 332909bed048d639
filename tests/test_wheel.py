"""What `pip install` gets: the wheel is built, holds what is not Python too, and imports where nothing else is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import click
import pytest

pytest.importorskip("build")
ROOT = Path(__file__).parents[1]
#: files that are no Python and that the packages read
DATA = ("py.typed", "*.pyi", "*.css", "*.js", "*.html", "*.json")
#: run in a bare environment that sees the wheel and click, and neither torch nor NumPy
PROBE = """
import sys
sys.path[:0] = [{wheel!r}, {click!r}]
import brickwork, brickwork.options, brickwork.errors, brickwork.bricks.options, brickwork.cli
assert brickwork.__file__.startswith({wheel!r}), brickwork.__file__
assert "disassemble" in dir(brickwork) and not {{"torch", "numpy", "typer"}} & set(sys.modules)
print(brickwork.__version__)
brickwork.cli.main({arguments!r})
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of a copy of the sources, so that the tree is left as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    [path] = folder.glob("*.whl")
    return path


def test_the_wheel_holds_every_file_of_the_packages(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    source = ROOT / "src"
    wanted = {str(p.relative_to(source)) for pattern in ("*.py", *DATA) for p in source.rglob(pattern)}
    assert not {name for name in wanted if ".egg-info" not in name} - held
    assert any(name.endswith("licenses/LICENSE") for name in held)
    assert {name.split("/")[0] for name in held} == {
        "brickwork",
        "brickwork_lab",
        f"{wheel.name.split('-py3')[0]}.dist-info",
    }


@pytest.mark.parametrize(
    "arguments", [["--help"], ["disassemble", "--help"], ["pool", "learn", "--help"]], ids=" ".join
)
def test_the_wheel_imports_in_a_bare_environment(wheel, tmp_path, arguments):
    """Only click beside it: names are loaded on first use, and help needs no torch."""
    venv.create(tmp_path / "bare", with_pip=False)
    unpacked, beside = tmp_path / "unpacked", tmp_path / "beside"
    zipfile.ZipFile(wheel).extractall(unpacked)
    shutil.copytree(Path(click.__file__).parent, beside / "click")
    probe = PROBE.format(wheel=str(unpacked), click=str(beside), arguments=arguments)
    command = [tmp_path / "bare" / "bin" / "python", "-I", "-c", probe]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    version, *help_text = done.stdout.splitlines()
    assert version == tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert help_text[0].startswith("Usage: brickwork") and len(help_text) > 20
