"""Locks between threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hyperslab.storage.fence import Fence
from hyperslab.storage.locks import FileLocks, KeyedLocks
from tests.server import wait_until


def start(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("first", [False, True])
def test_waiters_are_served_in_the_order_they_came(first: bool) -> None:
    """Whoever holds the key shared, or not; and keys that nobody holds take no memory."""
    locks, order = KeyedLocks(), list[str]()

    def visit(name: str) -> None:
        with locks.hold("k", shared=name.startswith("r")):
            order.append(name)

    threads = []
    with locks.hold("k", shared=first), locks.hold("l", shared=True), locks.hold("l", shared=True):
        for waiting, name in enumerate(["w1", "r1", "w2", "r2"]):
            threads.append(start(lambda name=name: visit(name)))  # type: ignore[misc]
            wait_until(lambda waiting=waiting: len(locks._queues["k"][0]) == waiting + 2)  # type: ignore[misc]
        assert (len(locks), order) == (2, [])
    for thread in threads:
        thread.join(60)

    assert order == ["w1", "r1", "w2", "r2"]
    assert len(locks) == 0


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
