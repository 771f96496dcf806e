"""Retries with exponential backoff and jitter."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator


def backoff(failures: int, first: float = 0.1, longest: float = 2.0) -> float:
    """Seconds to wait after a number of failures (from 1): ``first``, doubled with each further one up to ``longest``,
    times a random factor from 0.5 to 1."""
    return min(longest, first * 2.0 ** (failures - 1)) * random.uniform(0.5, 1.0)


def attempts(limit: int, first: float = 0.1, longest: float = 2.0) -> Iterator[int]:
    """Numbers of attempts below ``limit``, sleeping for `backoff` between them."""
    for failures in range(limit):
        if failures:
            time.sleep(backoff(failures, first, longest))
        yield failures
