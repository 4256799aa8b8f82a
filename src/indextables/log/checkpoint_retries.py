"""Trying again: what a checkpoint writes is the same whenever it is written."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from indextables import config as keys
from indextables.config import Config
from indextables.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageRefusedError,
)


def with_retries(
    write: Callable[[], None], *, config: Config, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Call until it succeeds or the attempts are used up; the last error is raised.

    An object that exists, or does not, is an answer and no failure of the store; a full disk stays
    full.
    """
    attempts = config[keys.STATE_RETRY_ATTEMPTS]
    for attempt in range(1, attempts + 1):
        try:
            return write()
        except (ObjectExistsError, ObjectNotFoundError, StorageRefusedError):
            raise
        except StorageError:
            if attempt == attempts:
                raise
        base = config[keys.STATE_RETRY_BASE_DELAY] * 2 ** min(attempt - 1, 32)
        pause_ms = min(config[keys.STATE_RETRY_MAX_DELAY], base)
        sleep(pause_ms / 1000 * random.uniform(0.75, 1.25))
    return None


def put_once(put: Callable[[], None], *, config: Config) -> bool:
    """Put-if-absent with retries: False where the object was there.

    An attempt whose answer was lost may have written it; that counts as there, too.
    """
    try:
        with_retries(put, config=config)
    except ObjectExistsError:
        return False
    return True
