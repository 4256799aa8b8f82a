"""Without Java a session says what to install."""

from __future__ import annotations

import pytest

import indextables
from indextables.errors import JavaMissingError


def test_a_session_without_java_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissingError, match="openjdk-17"):
        indextables.session("never started")
