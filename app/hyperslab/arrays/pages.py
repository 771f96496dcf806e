"""Memory in huge pages, where the system has them (ADR 0028)."""

from __future__ import annotations

import mmap
from contextlib import suppress
from typing import Any, Final

import numpy as np

HUGE_PAGE: Final = 2 << 20
"""Of x86-64 and of arm64 with pages of 4 KiB. Where it is another size, nothing is lost but the gain."""
WORTH_HUGE: Final = 1 << 20


def make_room(nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """At least ``nbytes`` of new memory with anything in it; from `WORTH_HUGE` on in whole huge pages.

    numpy asks for huge pages as well, but only from 4 MiB on, and for what lies between two of them it gets none.
    [numpy, "Global state": NUMPY_MADVISE_HUGEPAGE]
    """
    if nbytes < WORTH_HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(nbytes, np.uint8)
    whole = -(-nbytes // HUGE_PAGE) * HUGE_PAGE
    mapped = mmap.mmap(-1, whole + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # pages exist once touched
    with suppress(OSError):  # a kernel that was built without them
        mapped.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(mapped, np.uint8)
    first = -memory.ctypes.data % HUGE_PAGE
    return memory[first : first + whole]
