"""What the worker processes of test_processes.py do: ``python -m tests.storage.workers JOB ROOT [ARGUMENT]``."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from itertools import count

from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import ABSENT, Store, VersionConflict

KEYS = ("a/0.0", "a/0.1", "b/0/0", "c")


def value_of(number: int) -> bytes:
    """A value that shows whether it is whole: one number, many times; its size changes from write to write."""
    return f"{number:08d}".encode() * (200 + 37 * (number % 50))


def increment(store: Store, key: str) -> None:
    """Add one to a number in a store, by conditional puts alone."""
    while True:
        stored = store.get(key)
        assert stored is not None
        try:
            store.put(key, str(int(bytes(stored.data)) + 1).encode(), if_version=stored.version)
        except VersionConflict:
            continue
        return


def write(store: Store) -> None:
    """Write and tell what is stored, for ever."""
    for number in count(1):
        key = KEYS[number % len(KEYS)]
        with store.lock(key):
            stored = store.get(key)
            condition = (ABSENT if stored is None else stored.version) if number % 2 else None
            store.put(key, value_of(number), if_version=condition)
        tell(f"{number}")


def count_by_condition(store: Store, times: str) -> None:
    """Add to a counter by conditional puts."""
    for _ in range(int(times)):
        increment(store, "counter")


def count_under_lock(store: Store, times: str) -> None:
    """Add to a counter by plain puts under its lock."""
    for _ in range(int(times)):
        with store.lock("counter"):
            stored = store.get("counter")
            assert stored is not None
            store.put("counter", str(int(bytes(stored.data)) + 1).encode())


def create(store: Store, name: str) -> None:
    """Try to be the first at twenty keys; tell which were won."""
    for i in range(20):
        with suppress(VersionConflict):
            store.put(f"k{i}", name.encode(), if_version=ABSENT)
            tell(f"k{i}")


def hold(store: Store, key: str) -> None:
    """Take a lock and keep it."""
    with store.lock(key):
        tell("held")
        sys.stdin.read()


def share(store: Store, key: str) -> None:
    """Take a shared lock again and again, so that somebody always has it, until stdin ends."""
    waiting = threading.Thread(target=sys.stdin.read, daemon=True)
    waiting.start()
    tell("sharing")
    while waiting.is_alive():
        with store.lock(key, shared=True):
            time.sleep(0.01)


def tell(line: str) -> None:
    """One line on standard output, at once."""
    os.write(1, f"{line}\n".encode())


def main(job: str, root: str, *arguments: str) -> None:
    """Open the folder and do the job."""
    jobs = {f.__name__: f for f in (write, count_by_condition, count_under_lock, create, hold, share)}
    jobs[job](open_store(StoreConfig("disk", root, writable=True, durability="rename")), *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
