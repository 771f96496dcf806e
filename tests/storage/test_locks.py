"""Locks between threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hyperslab.storage.fence import Fence
from hyperslab.storage.locks import FileLocks, KeyedLocks


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(3_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come true in 30 s")


def start(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def test_keys_that_nobody_holds_take_no_memory() -> None:
    locks = KeyedLocks()

    with locks.hold("a"), locks.hold("b", shared=True), locks.hold("b", shared=True):
        assert len(locks) == 2

    assert len(locks) == 0


def test_waiters_are_served_in_the_order_they_came() -> None:
    locks, order = KeyedLocks(), list[str]()

    def visit(name: str, shared: bool) -> None:
        with locks.hold("k", shared=shared):
            order.append(name)

    threads = []
    with locks.hold("k"):
        for waiting, (name, shared) in enumerate([("r1", True), ("w1", False), ("r2", True), ("w2", False)]):
            threads.append(start(lambda name=name, shared=shared: visit(name, shared)))  # type: ignore[misc]
            wait_until(lambda waiting=waiting: len(locks._queues["k"].entries) == waiting + 2)  # type: ignore[misc]
    for thread in threads:
        thread.join(30)

    assert order == ["r1", "w1", "r2", "w2"]
    assert len(locks) == 0


def test_a_newcomer_does_not_overtake_a_waiting_writer() -> None:
    locks, order = KeyedLocks(), list[str]()

    def visit(name: str, shared: bool) -> None:
        with locks.hold("k", shared=shared):
            order.append(name)

    with locks.hold("k", shared=True):
        writer = start(lambda: visit("writer", False))
        wait_until(lambda: len(locks._queues["k"].entries) == 2)
        reader = start(lambda: visit("reader", True))
        wait_until(lambda: len(locks._queues["k"].entries) == 3)
        assert order == []
    writer.join(30)
    reader.join(30)

    assert order == ["writer", "reader"]


def most_beside_an_exclusive_holder(locks: KeyedLocks | FileLocks, key: str, *, times: int) -> int:
    """How many were inside together while one of them was to be alone, itself included; 0 where none was."""
    inside, found = list[bool](), list[int]()

    def visit(seed: int) -> None:
        for i in range(times):
            shared = (seed + i) % 3 > 0
            with locks.hold(key, shared=shared):
                inside.append(shared)
                if not all(inside):
                    found.append(len(inside))
                inside.remove(shared)

    threads = [start(lambda seed=seed: visit(seed)) for seed in range(6)]  # type: ignore[misc]
    for thread in threads:
        thread.join(60)
    return max(found, default=0)


def test_exclusive_holders_are_alone_whatever_else_goes_on() -> None:
    locks = KeyedLocks()

    assert most_beside_an_exclusive_holder(locks, "k", times=200) <= 1
    assert len(locks) == 0


def test_file_locks_hold_between_threads_too(tmp_path: Path) -> None:
    tmp_path.joinpath(".hyperslab").mkdir()
    locks = FileLocks(Fence(str(tmp_path)), ".hyperslab/locks")
    order: list[str] = []

    def visit() -> None:
        with locks.hold("a/.zarray"):
            order.append("second")

    with locks.hold("a/.zarray"):
        thread = start(visit)
        time.sleep(0.05)
        order.append("first")
    thread.join(30)

    assert order == ["first", "second"]


def test_a_lock_file_that_was_removed_is_not_waited_for(tmp_path: Path) -> None:
    locks = FileLocks(Fence(str(tmp_path)), "locks")
    with locks.hold("a/.zarray"):
        for path in (tmp_path / "locks").iterdir():
            path.unlink()

        with locks.hold("a/.zarray"):
            names = sorted(path.suffix for path in (tmp_path / "locks").iterdir())

    assert names == ["", ".gate"]


def test_lock_files_do_not_bring_back_a_root_that_is_gone(tmp_path: Path) -> None:
    locks = FileLocks(Fence(str(tmp_path / "gone")), ".hyperslab/locks")

    with pytest.raises(FileNotFoundError), locks.hold("a/.zarray"):
        pass

    assert list(tmp_path.iterdir()) == []


def test_lock_files_are_few_however_many_keys_were_locked(tmp_path: Path) -> None:
    locks = FileLocks(Fence(str(tmp_path)), "locks")
    with locks.hold("held/.zarray"):
        for i in range(400):  # two files each
            with locks.hold(f"{i}/.zarray", shared=True):
                pass
        most = len(list((tmp_path / "locks").iterdir()))
        locks.tidy()
        left = len(list((tmp_path / "locks").iterdir()))

    assert most <= 700
    assert left == 1  # the one that is held


def test_whoever_is_alone_is_alone_though_lock_files_go_meanwhile(tmp_path: Path) -> None:
    locks, done = FileLocks(Fence(str(tmp_path)), "locks"), threading.Event()

    def tidy() -> None:
        while not done.is_set():
            locks.tidy()

    tidying = start(tidy)
    assert most_beside_an_exclusive_holder(locks, "a/.zarray", times=100) <= 1
    done.set()
    tidying.join(30)
    locks.tidy()
    assert list((tmp_path / "locks").iterdir()) == []
