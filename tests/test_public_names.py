"""The public names, in one place: adding or losing one is a decision, not an accident."""

import importlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import brickwork

PUBLIC = {
    "Blueprint",
    "Brick",
    "CovLasso",
    "Delta",
    "DependencyMap",
    "KernelPool",
    "Routes",
    "TransplantNet",
    "__version__",
    "adapt",
    "assemble",
    "assign",
    "compress",
    "delta",
    "disassemble",
    "distil",
    "errors",
    "increment",
    "join",
    "load",
    "merge",
    "routes",
    "save",
    "sweep",
    "trace",
    "transfer",
    "treat",
    "zoo",
}


def test_the_list():
    assert set(brickwork.__all__) == PUBLIC
    assert dir(brickwork) == sorted(brickwork.__all__)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_name_is_there(name):
    assert getattr(brickwork, name) is not None


def test_the_type_checker_sees_the_same_names():
    text = Path(brickwork.__file__).read_text()
    block = text.split("if TYPE_CHECKING:")[1]
    seen = {line.rsplit(" as ", 1)[1] for line in block.splitlines() if " as " in line}
    assert seen == PUBLIC - {"__version__"}
    assert (Path(brickwork.__file__).parent / "py.typed").exists()


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        brickwork.lod  # noqa: B018


def test_version_is_the_packages():
    assert brickwork.__version__ == version("brickwork")


def test_importing_brickwork_does_not_import_torch():
    code = "import sys, brickwork, brickwork.errors, brickwork.atomic; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("package", ["zoo", "store"])
def test_all_of_the_packages_is_true(package):
    module = importlib.import_module(f"brickwork.{package}")
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
