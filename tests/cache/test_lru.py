"""The cache is bounded in bytes, never mixes versions, and loads once however many ask."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from hyperslab.cache import LoadResult, Vanished, VersionedCache
from hyperslab.errors import Cancelled, StoreError


def test_many_threads_load_a_missing_value_once() -> None:
    cache: VersionedCache[str] = VersionedCache(100)
    barrier = Barrier(8)
    calls: list[int] = []

    def load() -> tuple[str, str, int]:
        calls.append(1)
        Event().wait(0.05)
        return "value", "v", 5

    def ask(_: int) -> str:
        barrier.wait()
        return cache.load("key", "v", load).value

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))

    assert answers == ["value"] * 8
    assert len(calls) == 1


def test_a_failed_load_fails_for_all_who_wait_and_is_tried_again_later() -> None:
    cache: VersionedCache[str] = VersionedCache(100)

    def fail() -> tuple[str, str, int]:
        raise StoreError("store", "key", "down")

    with pytest.raises(StoreError):
        cache.load("key", "v", fail)

    assert cache.load("key", "v", lambda: ("value", "v", 5)) == ("value", "v", False)


def test_a_cancelled_leader_hands_over_to_the_next() -> None:
    cache: VersionedCache[str] = VersionedCache(100)
    leading, follow = Event(), Event()

    def cancelled() -> tuple[str, str, int]:
        leading.set()
        follow.wait(60)
        raise Cancelled

    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(cache.load, "key", "v", cancelled)
        leading.wait(60)
        follower = pool.submit(cache.load, "key", "v", lambda: ("value", "v", 5))
        follow.set()

        with pytest.raises(Cancelled):
            leader.result(60)
        assert follower.result(60) == ("value", "v", False)


def _ask_while_loading(first: Callable[[], tuple[str, str, int]]) -> tuple[Future[LoadResult[str]], LoadResult[str]]:
    """Two calls for version X: one whose loader does ``first``, and one that begins while that is under way and whose
    own loader would find X."""
    cache: VersionedCache[str] = VersionedCache(100)
    leading, go_on = Event(), Event()

    def slowly() -> tuple[str, str, int]:
        leading.set()
        assert go_on.wait(60)
        return first()

    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(cache.load, "key", "X", slowly)
        assert leading.wait(60)
        follower = pool.submit(cache.load, "key", "X", lambda: ("x", "X", 1))
        while cache.stats().misses < 2:
            Event().wait(0.001)
        go_on.set()
        return leader, follower.result(60)


def test_who_asked_after_another_version_was_loaded_does_not_get_it() -> None:
    """X was there, then Y, then X again: what was read in between is older than a call that begins at the end."""
    leader, answer = _ask_while_loading(lambda: ("y", "Y", 1))

    assert leader.result() == ("y", "Y", False)
    assert answer == ("x", "X", False)


def test_who_asked_after_a_value_had_vanished_looks_again() -> None:
    def find_nothing() -> tuple[str, str, int]:
        raise Vanished

    leader, answer = _ask_while_loading(find_nothing)

    assert isinstance(leader.exception(), Vanished)
    assert answer.value == "x"


def test_a_version_that_is_gone_is_answered_with_what_was_loaded_after_the_question() -> None:
    cache: VersionedCache[str] = VersionedCache(100)

    assert cache.load("key", "X", lambda: ("y", "Y", 1)) == ("y", "Y", False)
    assert cache.load("key", "Y", lambda: ("never", "Y", 1)) == ("y", "Y", True)
