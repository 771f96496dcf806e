"""Chunks on the threads of a store."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from numpy.typing import NDArray

from hyperslab.arrays import workers
from hyperslab.arrays.workers import Cancel, WorkerPool
from hyperslab.errors import Cancelled


def test_every_item_is_worked_on_once_until_an_error_or_a_cancellation_ends_the_work() -> None:
    pool, cancel = WorkerPool(4, "test"), Cancel()
    seen: list[int] = []

    def fail(item: int) -> None:
        seen.append(item)
        if item == 10:
            raise ValueError(item)

    def stop(item: int) -> None:
        seen.append(item)
        cancel.set()

    pool.each(range(1000), 1000, seen.append)
    assert sorted(seen) == list(range(1000))
    seen.clear()
    with pytest.raises(ValueError, match="10"):
        pool.each(range(10_000), 10_000, fail)
    assert len(seen) < 10_000
    seen.clear()
    with pytest.raises(Cancelled):
        pool.each(range(10_000), 10_000, stop, cancel)
    pool.close()
    assert len(seen) <= 5


def test_a_thread_that_works_for_long_between_checks_gives_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop would wait 100 ms for Python's lock, beside one that does little to each of many small chunks."""
    clock, slept = iter(n / 1024 for n in range(1, 1000)), list[float]()
    monkeypatch.setattr(workers, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(workers, "sleep", slept.append)
    cancel = Cancel()
    for _ in range(90):  # one of the clock's steps each, and one after each sleep
        cancel.check()
    assert len(slept) == 29  # not at the first
    cancel.set()
    with pytest.raises(Cancelled):
        cancel.check()


def test_a_run_that_is_over_holds_no_buffer_while_its_helpers_wait_for_a_thread() -> None:
    """Else a stream could not reuse its slabs while the pool is busy, and would take a new one for each piece."""
    pool = WorkerPool(2, "test")
    go_on, busy = threading.Event(), threading.Event()

    def wait(_: int) -> None:
        busy.set()
        go_on.wait(60)

    def fill() -> weakref.ref[NDArray[np.float64]]:
        buffer = np.zeros(10)
        pool.each(range(10), 10, lambda item: buffer.__setitem__(item, 1))
        assert buffer.all()
        return weakref.ref(buffer)

    other = threading.Thread(target=pool.each, args=(range(2), 2, wait))
    other.start()
    assert busy.wait(60)

    gone = fill()
    gc.collect()

    assert gone() is None
    go_on.set()
    other.join()
    pool.close()


@pytest.mark.parametrize(("nbytes", "most"), [(1, 14), (16 << 20, 4), (200 << 20, 1), (1 << 30, 0)])
def test_large_items_are_in_the_hands_of_few_threads(nbytes: int, most: int) -> None:
    pool = WorkerPool(16, "test")
    helpers: set[int] = set()

    def work(_: int) -> None:
        helpers.add(threading.get_ident())
        time.sleep(0.002)

    pool.each(range(100), 100, work, nbytes=nbytes)
    assert len(helpers - {threading.get_ident()}) <= most
    pool.close()


def test_reads_of_large_items_share_their_memory() -> None:
    pool, at_once, most, lock = WorkerPool(64, "test"), 0, 0, threading.Lock()

    def work(_: int) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.002)
        with lock:
            at_once -= 1

    readers = [
        threading.Thread(target=pool.each, args=(range(50), 50, work), kwargs={"nbytes": 16 << 20}) for _ in "abcdefgh"
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    pool.close()

    assert most <= len(readers) + (256 << 20) // (16 << 20)
    assert pool._in_hand == 0
