"""How many random examples a test tries: few in the ordinary run, many in the long one."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

QUICK = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


def examples(ordinary: int, long: int) -> settings:
    """So many examples, by the profile of the run."""
    is_long = settings.default is not None and settings.default.max_examples > 1000
    return settings(
        max_examples=long if is_long else ordinary, suppress_health_check=QUICK, deadline=None
    )
