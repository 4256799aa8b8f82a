"""What tests of statements share."""

from __future__ import annotations

import pytest


@pytest.fixture
def uri(tmp_path):
    """Where the table of a test is."""
    return str(tmp_path / "docs")
