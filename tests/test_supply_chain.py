"""The development environment is locked: every package with its version and hashes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCK = (ROOT / "requirements/dev.txt").read_text()
PINS = {
    canonicalize_name(m["name"]): m["version"]
    for m in re.finditer(r"^(?P<name>[\w.-]+)(?:\[[\w,]+\])?==(?P<version>[^\s;]+)", LOCK, re.M)
}


def required() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    texts = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    return [Requirement(text) for text in texts]


def test_the_lock_holds_every_requirement_within_its_range():
    for one in required():
        version = PINS.get(canonicalize_name(one.name))
        assert version is not None, f"{one.name} is not locked: run make lock"
        assert one.specifier.contains(version, prereleases=True), f"{one}: run make lock"


def test_every_locked_package_has_hashes():
    blocks = re.split(r"\n(?=[\w.-]+(?:\[[\w,]+\])?==)", LOCK)
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in LOCK, "a lock names no index"


def test_no_locked_package_is_known_to_be_vulnerable():
    command = [sys.executable, "-m", "pip_audit", "--require-hashes", "--disable-pip"]
    done = subprocess.run(
        [*command, "--format", "json", "--requirement", ROOT / "requirements/dev.txt"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if "No module named" in done.stderr:
        pytest.skip("pip-audit is not installed; `make audit` installs and runs it")
    if not done.stdout.startswith("{"):
        pytest.skip(f"no database of vulnerabilities answers here: {done.stderr[-200:]}")
    packages = json.loads(done.stdout)["dependencies"]
    audited = [one for one in packages if "skip_reason" not in one]
    if not audited:
        pytest.skip("the database of vulnerabilities knows none of the packages from here")
    assert [one for one in audited if one["vulns"]] == []
