"""Whoever fails lets go of what was read at once, and not when the collector of cycles comes by."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from types import FrameType

import pytest

from hyperslab.arrays.workers import WorkerPool
from hyperslab.cache import VersionedCache


class Broken(Exception):
    """What goes wrong here."""


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    found = WorkerPool(3, "test")
    yield found
    found.close()


def frames_left_by(work: Callable[[], object]) -> list[str]:
    """The functions whose frames only a cycle keeps once ``work`` has raised."""
    gc.collect()
    gc.freeze()  # all that is there already: looking through it again takes longer than everything else
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        assert _raises(work)
        gc.collect()
        return [found.f_code.co_name for found in gc.garbage if isinstance(found, FrameType)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


def _raises(work: Callable[[], object]) -> bool:
    """As ``pytest.raises``, which holds on to what was raised."""
    try:
        work()
    except Broken:
        return True
    return False


def fail(_: object = None) -> None:
    raise Broken


def settled(pool: WorkerPool, work: Callable[[], object]) -> None:
    """Let ``work`` raise once all threads have forgotten what they were asked for."""
    meet = Barrier(pool.width)
    try:
        work()
    finally:
        pool.each(range(pool.width), pool.width, lambda _: _wait(meet))


def _wait(barrier: Barrier) -> None:
    barrier.wait(30)


def test_work_on_many_threads(pool: WorkerPool) -> None:
    assert frames_left_by(lambda: settled(pool, lambda: pool.each(range(50), 50, fail))) == []


def test_who_loads_into_the_cache_and_who_waits_for_it() -> None:
    cache: VersionedCache[int] = VersionedCache(100)
    begun, go_on = Event(), Event()

    def load() -> tuple[int, str, int]:
        begun.set()
        assert go_on.wait(30)
        raise Broken

    def wait_for_it() -> None:
        begun.wait(30)
        cache.load("key", "1", load)

    def both() -> None:
        with ThreadPoolExecutor(2) as threads:
            leader = threads.submit(cache.load, "key", "1", load)
            follower = threads.submit(wait_for_it)
            begun.wait(30)
            go_on.set()
            failures = [type(leader.exception()), type(follower.exception())]
            del leader, follower
        assert failures == [Broken, Broken]
        raise Broken

    assert frames_left_by(both) == []
