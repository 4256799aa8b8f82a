"""Secrets in settings: found by their name, or by what the value looks like."""

from __future__ import annotations

import re
from collections.abc import Mapping

REDACTED = "***REDACTED***"

_NAME = re.compile(
    r"secret|password|passwd|passphrase|token|credential|signature|private|sas\b|"
    r"(access|account|api|shared|master|encryption)[._-]?key|connection[._-]?string",
    re.IGNORECASE,
)
# `user:password@host`, `-Dpassword=…`, `AccountKey=…` inside an otherwise harmless value.
_VALUE = re.compile(r"://[^/\s:@]+:[^/\s@]+@|(" + _NAME.pattern + r")[\w.-]*\s*[=:]", re.IGNORECASE)


def redacted(settings: Mapping[str, object]) -> dict[str, str]:
    """The settings with every secret replaced.

    >>> redacted({"fs.s3a.secret.key": "abc", "spark.app.name": "logs"})
    {'fs.s3a.secret.key': '***REDACTED***', 'spark.app.name': 'logs'}
    """
    return {
        name: REDACTED if _NAME.search(name) or _VALUE.search(str(value)) else str(value)
        for name, value in settings.items()
    }
