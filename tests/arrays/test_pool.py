"""Chunks on the threads of a store."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from hyperslab.arrays.cost import Cancel
from hyperslab.arrays.pool import WorkerPool
from hyperslab.errors import Cancelled


def test_every_item_is_worked_on_once() -> None:
    pool = WorkerPool(4, "test")
    seen: list[int] = []

    pool.each(range(1000), 1000, seen.append)
    pool.close()

    assert sorted(seen) == list(range(1000))


def test_the_first_error_ends_the_work_and_is_raised() -> None:
    pool = WorkerPool(4, "test")
    seen: list[int] = []

    def work(item: int) -> None:
        seen.append(item)
        if item == 10:
            raise ValueError(item)

    with pytest.raises(ValueError, match="10"):
        pool.each(range(10_000), 10_000, work)
    pool.close()

    assert len(seen) < 10_000


def test_a_cancelled_run_ends() -> None:
    pool, cancel = WorkerPool(2, "test"), Cancel()
    seen: list[int] = []

    def work(item: int) -> None:
        seen.append(item)
        cancel.set()

    with pytest.raises(Cancelled):
        pool.each(range(10_000), 10_000, work, cancel)
    pool.close()

    assert len(seen) <= 3


def fail(_: object) -> None:
    raise AssertionError


class TestGathering:
    """Others fetch what the caller uses."""

    @pytest.fixture
    def pool(self) -> Iterator[WorkerPool]:
        pool = WorkerPool(4, "test")
        yield pool
        pool.close()

    @pytest.mark.parametrize("waiting", [1, 1000])
    def test_every_item_is_fetched_and_used_once_and_by_the_caller(self, pool: WorkerPool, waiting: int) -> None:
        fetched: list[int] = []
        used: list[int] = []
        users = set()

        def fetch(item: int) -> int:
            fetched.append(item)
            return -item

        def use(result: int) -> None:
            used.append(result)
            users.add(threading.get_ident())

        pool.gather(iter(range(1000)), 1000, fetch, use, waiting=waiting)

        assert sorted(fetched) == list(range(1000))
        assert sorted(used) == list(range(-999, 1))
        assert users == {threading.get_ident()}

    def test_nothing_is_fetched_where_there_is_nothing(self, pool: WorkerPool) -> None:
        pool.gather(iter(()), 0, fail, fail, waiting=1)

    def test_what_takes_long_is_fetched_by_all_threads_at_once(self, pool: WorkerPool) -> None:
        all_of_them = threading.Barrier(4, timeout=30)

        pool.gather(iter(range(4)), 4, lambda _: all_of_them.wait(), lambda _: None, waiting=1)

    def test_the_caller_fetches_where_all_others_are_busy(self, pool: WorkerPool) -> None:
        begun, done = threading.Barrier(5, timeout=30), threading.Event()

        def block(_: int) -> None:
            begun.wait()
            assert done.wait(30)

        other = threading.Thread(target=pool.each, args=(range(4), 4, block))
        other.start()
        begun.wait()
        fetchers: list[int] = []
        pool.gather(iter(range(100)), 100, lambda _: threading.get_ident(), fetchers.append, waiting=8)
        done.set()
        other.join()

        assert fetchers == 100 * [threading.get_ident()]

    def test_no_more_is_fetched_than_may_wait(self, pool: WorkerPool) -> None:
        fetched = [0]
        most = [0]

        def fetch(_: int) -> None:
            fetched[0] += 1

        def use(_: None) -> None:
            time.sleep(0.001)
            fetched[0] -= 1
            most[0] = max(most[0], fetched[0])

        pool.gather(iter(range(200)), 200, fetch, use, waiting=5)

        assert most[0] <= 5 + pool.width

    @pytest.mark.parametrize("fails", ["fetch", "use"])
    def test_an_error_is_raised_when_nobody_works_any_more(self, pool: WorkerPool, fails: str) -> None:
        begun: list[int] = []
        ended: list[int] = []

        def fetch(item: int) -> int:
            begun.append(item)
            time.sleep(0.01)
            ended.append(item)
            if fails == "fetch" and item == 5:
                raise ValueError(item)
            return item

        def use(item: int) -> None:
            if fails == "use" and item == 5:
                raise ValueError(item)

        with pytest.raises(ValueError, match="5"):
            pool.gather(iter(range(10_000)), 10_000, fetch, use, waiting=8)

        assert sorted(begun) == sorted(ended)
        assert len(begun) < 10_000

    def test_a_cancelled_one_ends(self, pool: WorkerPool) -> None:
        cancel, used = Cancel(), []

        def use(item: int) -> None:
            used.append(item)
            cancel.set()

        with pytest.raises(Cancelled):
            pool.gather(iter(range(10_000)), 10_000, lambda item: item, use, waiting=8, cancel=cancel)

        assert len(used) == 1

    def test_a_pool_of_one_thread_does_everything_itself(self) -> None:
        pool = WorkerPool(1, "test")
        fetchers: list[int] = []

        pool.gather(iter(range(10)), 10, lambda _: threading.get_ident(), fetchers.append, waiting=8)
        pool.close()

        assert fetchers == 10 * [threading.get_ident()]


class TestRelay:
    """One thread makes what the others work on."""

    @pytest.fixture
    def pool(self) -> Iterator[WorkerPool]:
        pool = WorkerPool(4, "test", near=True)
        yield pool
        pool.close()

    def test_every_item_is_worked_on_once(self, pool: WorkerPool) -> None:
        seen: list[int] = []

        pool.relay(iter(range(1000)), seen.append)

        assert sorted(seen) == list(range(1000))

    def test_items_are_made_by_the_caller_and_worked_on_by_others_too(self, pool: WorkerPool) -> None:
        makers, workers = set(), set()
        meeting = threading.Barrier(4, timeout=30)

        def make() -> Iterator[int]:
            for item in range(13):
                makers.add(threading.get_ident())
                yield item

        def work(item: int) -> None:
            workers.add(threading.get_ident())
            if item in (0, 1, 2, 12):  # three helpers begin, and have their fill while the caller makes the last one
                meeting.wait()

        pool.relay(make(), work)

        assert makers == {threading.get_ident()}
        assert len(workers) == 4

    def test_an_error_is_raised_when_nobody_works_any_more(self, pool: WorkerPool) -> None:
        working = [0]
        lock = threading.Lock()

        def work(item: int) -> None:
            with lock:
                working[0] += 1
            try:
                time.sleep(0.01)
                if item == 5:
                    raise ValueError(item)
            finally:
                with lock:
                    working[0] -= 1

        with pytest.raises(ValueError, match="5"):
            pool.relay(iter(range(100)), work)

        assert working == [0]

    def test_an_error_in_making_is_raised_when_nobody_works_any_more(self, pool: WorkerPool) -> None:
        begun, ended = [], []

        def make() -> Iterator[int]:
            yield from range(3)
            raise ValueError("no more")

        def work(item: int) -> None:
            begun.append(item)
            time.sleep(0.05)
            ended.append(item)

        with pytest.raises(ValueError, match="no more"):
            pool.relay(make(), work)

        assert sorted(begun) == sorted(ended)

    def test_a_cancelled_relay_ends(self, pool: WorkerPool) -> None:
        cancel = Cancel()
        seen: list[int] = []

        def work(item: int) -> None:
            seen.append(item)
            cancel.set()

        with pytest.raises(Cancelled):
            pool.relay(iter(range(10_000)), work, cancel)

        assert len(seen) < 100

    def test_a_brief_one_is_helped_by_threads_that_have_nothing_to_do(self, pool: WorkerPool) -> None:
        both, workers = threading.Barrier(2, timeout=30), set()

        def work(_: int) -> None:
            workers.add(threading.get_ident())
            both.wait()

        pool.relay(iter(range(2)), work, brief=True)

        assert len(workers) == 2

    @pytest.mark.parametrize("busy", ["each", "relay"])
    def test_a_brief_one_waits_for_nobody(self, pool: WorkerPool, busy: str) -> None:
        begun, done, workers = threading.Event(), threading.Event(), set()

        def wait(_: int) -> None:
            begun.set()
            assert done.wait(30)

        other = threading.Thread(
            target=(lambda: pool.each([1], 1, wait)) if busy == "each" else (lambda: pool.relay([1], wait))
        )
        other.start()
        assert begun.wait(30)
        pool.relay(iter(range(10)), lambda _: workers.add(threading.get_ident()), brief=True)
        done.set()
        other.join()

        assert workers == {threading.get_ident()}

    def test_a_brief_one_that_is_cancelled_while_others_are_busy_ends(self, pool: WorkerPool) -> None:
        cancel, seen = Cancel(), []

        def work(item: int) -> None:
            seen.append(item)
            cancel.set()

        def meanwhile(_: int) -> None:
            with pytest.raises(Cancelled):
                pool.relay(iter(range(10)), work, cancel, brief=True)

        pool.each([1], 1, meanwhile)

        assert seen == [0]

    def test_a_pool_of_one_thread_does_everything_itself(self) -> None:
        pool = WorkerPool(1, "test", near=True)
        workers: set[int] = set()

        pool.relay(iter(range(10)), lambda _: workers.add(threading.get_ident()))
        pool.close()

        assert workers == {threading.get_ident()}


def test_helpers_that_start_while_the_caller_is_kept_in_its_place_are_free() -> None:
    pool = WorkerPool(2, "test", near=True)
    masks: dict[int, object] = {}
    both = threading.Barrier(2, timeout=30)

    def work(item: int) -> None:
        masks[threading.get_ident()] = _allowed()
        if item in (0, 4):  # the helper has begun, and the caller works too
            both.wait()

    pool.relay(iter(range(5)), work)
    pool.close()

    del masks[threading.get_ident()]
    assert list(masks.values()) == [_allowed()]


def test_the_caller_may_run_anywhere_afterwards() -> None:
    pool = WorkerPool(4, "test", near=True)
    allowed = _allowed()
    masks: list[object] = []

    pool.each(range(100), 100, lambda _: masks.append(_allowed()))
    pool.relay(iter(range(100)), lambda _: masks.append(_allowed()))
    with pytest.raises(ZeroDivisionError):
        pool.each(range(100), 100, lambda item: masks.append(1 // item))
    pool.close()

    assert _allowed() == allowed


def _allowed() -> object:
    """The processors of the calling thread."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None


Run = Callable[[WorkerPool, Callable[[int], None]], None]

RUNS: dict[str, Run] = {
    "each": lambda pool, work: pool.each(range(10), 10, work),
    "relay": lambda pool, work: pool.relay(iter(range(10)), work),
}


def fill(pool: WorkerPool, run: Run) -> weakref.ref[NDArray[np.float64]]:
    """Let a pool fill a buffer that nobody else holds."""
    buffer = np.zeros(10)

    def work(item: int) -> None:
        buffer[item] = 1

    run(pool, work)
    assert buffer.all()
    return weakref.ref(buffer)


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_that_is_over_holds_no_buffer_while_its_helpers_wait_for_a_thread(kind: str) -> None:
    """Else a stream could not reuse its slabs while the pool is busy, and would take a new one for each piece."""
    pool = WorkerPool(2, "test")
    go_on, busy = threading.Event(), threading.Event()

    def wait(_: int) -> None:
        busy.set()
        go_on.wait(30)

    other = threading.Thread(target=pool.each, args=(range(2), 2, wait))
    other.start()
    assert busy.wait(30)

    gone = fill(pool, RUNS[kind])
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
    helpers.clear()
    pool.gather(range(100), 100, work, lambda _: None, waiting=100, nbytes=nbytes)
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
