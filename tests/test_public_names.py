"""The public names, in one place: adding or losing one is a decision, not an accident."""

import ast
import importlib
import inspect
import subprocess
import sys
import types
from importlib.metadata import version
from pathlib import Path

import pytest

import brickwork
from brickwork_lab import stubs

PUBLIC = {
    # what is done, by the words of the command line
    *("train", "eval", "info", "load", "save", "import_model", "export_model"),
    *("disassemble", "assemble", "increment", "compress", "routes", "treat", "distil", "transfer", "adapt", "forget"),
    *("synthesise",),
    *("delta", "assign", "merge", "sweep", "cancel"),
    *("depend", "transplant", "pool", "continual", "lora"),
    *("trace", "join"),
    # what comes of it
    *("Blueprint", "Brick", "CovLasso", "Delta", "DependencyMap", "KernelPool", "Routes", "TransplantNet"),
    # what it is done with
    *("data", "zoo", "errors", "__version__"),
}
PACKAGES = (*(name.removeprefix("brickwork.") for name in stubs.PACKAGES if "." in name), "zoo")


def test_the_list():
    assert set(brickwork.__all__) == PUBLIC
    assert set(dir(brickwork)) == PUBLIC


def test_completion_shows_the_public_names_alone_whatever_was_imported():
    """Modules that are loaded become attributes of the package; `brickwork.<tab>` does not show them."""
    importlib.import_module("brickwork.bricks.disassembly")
    assert set(dir(brickwork)) == PUBLIC and not hasattr(brickwork, "numpy")


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_name_is_there(name):
    assert getattr(brickwork, name) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_a_package_is_there(package):
    module = importlib.import_module(f"brickwork.{package}")
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert set(module.__all__) <= set(dir(module))


def test_a_type_checker_is_told():
    assert (Path(brickwork.__file__).parent / "py.typed").exists()


# the stubs, which say the names and the options of functions


@pytest.mark.parametrize("package", stubs.PACKAGES)
def test_a_stub_is_up_to_date(package):
    assert stubs.stub_file(package).read_text(encoding="utf-8") == stubs.stub(package), "run: make stubs"


@pytest.mark.parametrize("package", stubs.PACKAGES)
def test_a_stub_says_every_option_with_its_default(package):
    """Read as Python: the names, their order and their defaults are those of the function."""
    module = importlib.import_module(package)
    written = [n for n in ast.parse(stubs.stub_file(package).read_text("utf-8")).body if isinstance(n, ast.FunctionDef)]
    elsewhere = {id(getattr(m, n)) for m in map(importlib.import_module, stubs.PACKAGES[1:]) for n in m.__all__}
    assert {n.name for n in written} == {
        n
        for n in module.__all__
        if isinstance(getattr(module, n), types.FunctionType)
        and hasattr(getattr(module, n), "options")
        and not (package == "brickwork" and id(getattr(module, n)) in elsewhere)  # written out in its own package
    }
    for node in written:
        real = inspect.signature(getattr(module, node.name)).parameters
        arguments = node.args
        assert [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)] == [
            name for name, p in real.items() if p.kind is not p.VAR_KEYWORD
        ]
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            expected = real[argument.arg].default
            if default is None:
                assert expected is inspect.Parameter.empty
            elif not (isinstance(default, ast.Constant) and default.value is Ellipsis):
                assert ast.literal_eval(default) == expected


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        brickwork.lod  # noqa: B018


def test_version_is_the_packages():
    assert brickwork.__version__ == version("brickwork")


def test_importing_brickwork_does_not_import_torch():
    code = "import sys, brickwork, brickwork.errors, brickwork.atomic; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
