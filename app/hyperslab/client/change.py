"""Read, change, write on condition that nothing changed in between, and again where something did."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from hyperslab.errors import Overloaded, PreconditionFailed, WriteConflict

T = TypeVar("T")

ATTEMPTS: Final = 100
"""That many times others may come first; each time, one of them has written."""
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.5


def until_undisturbed(attempt: Callable[[], T]) -> T:
    """The result of the first ``attempt`` that nobody comes in the way of.

    Where others keep coming, raises what the last attempt did: `PreconditionFailed`, `WriteConflict` or `Overloaded`.
    """
    for number in range(1, ATTEMPTS):
        try:
            return attempt()
        except (PreconditionFailed, WriteConflict):
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**number)
            time.sleep(random.uniform(0, pause))
        except Overloaded as busy:  # refused before anything was done
            time.sleep(busy.retry_after + random.uniform(0, _FIRST_PAUSE))
    return attempt()
