"""Packages that only some uses need: an extra of the installation brings each."""

from __future__ import annotations

import importlib.util

from indextables.errors import MissingPackageError


def is_installed(package: str) -> bool:
    """Whether a package can be imported."""
    return importlib.util.find_spec(package) is not None


def require(package: str, *, extra: str, for_what: str) -> None:
    """Refuse what cannot be done without a package, and say how to get it."""
    if not is_installed(package):
        raise MissingPackageError(package, extra=extra, for_what=for_what)
