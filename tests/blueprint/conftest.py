"""Helpers beside the tests are imported by their bare names; small networks run fastest on one thread."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("checks")
