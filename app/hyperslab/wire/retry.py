"""Retry: numbered attempts, with exponential back-off and jitter between them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator


def backoff(failures: int, first: float = 0.1, longest: float = 2.0) -> float:
    """Seconds to wait after so many ``failures`` (from 1): ``first``, doubled with each more up to ``longest``, less a
    random part of up to a half."""
    return min(longest, first * 2.0 ** (failures - 1)) * random.uniform(0.5, 1.0)


def attempts(most: int, first: float = 0.1, longest: float = 2.0) -> Iterator[int]:
    """The numbers of ``most`` attempts, from 0; before each but the first, `backoff` is waited for."""
    for failures in range(most):
        if failures:
            time.sleep(backoff(failures, first, longest))
        yield failures
