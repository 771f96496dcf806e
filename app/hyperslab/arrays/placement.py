"""On which processors the threads of one read run: beside each other.

Threads that hand something to each other (here: the interpreter) wake each other up, and Linux may wake a thread on the
processor of the one that wakes it. Where it takes idle processors of a virtual machine for ones that the host has taken
away, it does so nearly always: a helper waits behind its caller, or the caller behind it, for some 3 ms, which is as
long as many reads take. See ADR 0022 for what was measured.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final


def run_anywhere() -> None:
    """Let the calling thread use every processor of the process: a new thread is where its maker was kept."""
    if _ALL:
        _place(_ALL, [_CALLER])


@contextmanager
def side_by_side(helpers: Iterable[int]) -> Iterator[None]:
    """Keep the calling thread on its processor for as long as the block lasts, and ``helpers`` (native ids of threads
    of this process) away from there until they are placed again. Does nothing where the system cannot do that."""
    here = _CURRENT()
    allowed = os.sched_getaffinity(0) if here >= 0 else set()
    others = allowed - {here}
    if not others or not _place(others, helpers):
        yield
        return
    _place({here}, [_CALLER])
    try:
        yield
    finally:
        _place(allowed, [_CALLER])


def _place(where: Iterable[int], threads: Iterable[int]) -> bool:
    """False where the system refuses: then threads run where it likes."""
    try:
        for thread in threads:
            os.sched_setaffinity(thread, where)
    except OSError:
        return False
    return True


def _find_current() -> Callable[[], int]:
    """Tells on which processor the calling thread runs; -1 where that, or placing threads, is not to be had."""
    if sys.platform == "linux":
        current = getattr(ctypes.PyDLL(None), "sched_getcpu", None)
        if current is not None:
            found: Callable[[], int] = current
            return found
    return lambda: -1


_CALLER: Final = 0
_CURRENT: Final = _find_current()
_ALL: Final = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset[int]()
