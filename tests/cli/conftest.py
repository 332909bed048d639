"""Folders that several files of tests share."""

import sys
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # helpers beside the tests are imported by their bare names


@pytest.fixture(scope="session")
def transplant_folders(tmp_path_factory):
    from transplant_nets import make_folders

    return make_folders(tmp_path_factory.mktemp("models"))


@pytest.fixture
def transplant(run, transplant_folders, monkeypatch):
    """Run `brickwork transplant …` among the folders: (exit code, stdout, stderr)."""
    monkeypatch.chdir(transplant_folders)
    return partial(run, "transplant")
