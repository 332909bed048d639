"""One small model and its folder, for tests that save, damage and load."""

import sys
from pathlib import Path

import pytest

import brickwork
from brickwork import zoo

sys.path.insert(0, str(Path(__file__).parent))  # helpers beside the tests are imported by their bare names
pytest.register_assert_rewrite("folder_tools")


@pytest.fixture
def model():
    return zoo.build("lenet", num_classes=3, in_channels=1, seed=0)


@pytest.fixture
def folder(model, tmp_path):
    return brickwork.save(model, tmp_path / "model")
