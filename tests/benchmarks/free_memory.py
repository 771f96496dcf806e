"""Memory that nobody uses, as it is on a machine of one's own.

A virtual machine may give memory that has lain idle for some seconds back to its host. To use it again then costs ten
times as much (here 64 MiB took 8 ms, and 90 to 150 after a pause of four seconds): who comes after a program that took
long would pay for that.
"""

from __future__ import annotations

import mmap
from typing import Final

_SPARE: Final = 64 << 20
_WORTH_IT: Final = 1 << 20


def touch_free_memory(nbytes: int) -> None:
    """Use as much memory as an answer of ``nbytes`` needs, and some more, and let it go again."""
    if nbytes < _WORTH_IT:
        return
    with mmap.mmap(-1, nbytes + _SPARE) as memory:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)  # as numpy does
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1
