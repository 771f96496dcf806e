"""What the worker processes of test_processes.py do: `work`."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection

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


class Teller:
    """The way to who has started this process: to tell something, and to wait until it wants an end."""

    def __init__(self, told: Connection, ended: Connection) -> None:
        self._told, self._ended = told, ended

    def tell(self, line: str) -> None:
        self._told.send(line)

    def wait(self) -> None:
        with suppress(EOFError):
            self._ended.recv()


def write(store: Store, teller: Teller) -> None:
    """Write and tell what is stored, for ever."""
    for number in count(1):
        key = KEYS[number % len(KEYS)]
        with store.lock(key):
            stored = store.get(key)
            condition = (ABSENT if stored is None else stored.version) if number % 2 else None
            store.put(key, value_of(number), if_version=condition)
        teller.tell(f"{number}")


def count_by_condition(store: Store, _: Teller, times: str) -> None:
    """Add to a counter by conditional puts."""
    for _number in range(int(times)):
        increment(store, "counter")


def count_under_lock(store: Store, _: Teller, times: str) -> None:
    """Add to a counter by plain puts under its lock."""
    for _number in range(int(times)):
        with store.lock("counter"):
            stored = store.get("counter")
            assert stored is not None
            store.put("counter", str(int(bytes(stored.data)) + 1).encode())


def create(store: Store, teller: Teller, name: str) -> None:
    """Try to be the first at twenty keys; tell which were won."""
    for i in range(20):
        with suppress(VersionConflict):
            store.put(f"k{i}", name.encode(), if_version=ABSENT)
            teller.tell(f"k{i}")


def hold(store: Store, teller: Teller, key: str) -> None:
    """Take a lock and keep it."""
    with store.lock(key):
        teller.tell("held")
        teller.wait()


def share(store: Store, teller: Teller, key: str) -> None:
    """Take a shared lock again and again, so that somebody always has it, until the end."""
    waiting = threading.Thread(target=teller.wait, daemon=True)
    waiting.start()
    teller.tell("sharing")
    while waiting.is_alive():
        with store.lock(key, shared=True):
            time.sleep(0.01)


def work(job: str, root: str, told: Connection, ended: Connection, *arguments: str) -> None:
    """Open the folder and do the job."""
    jobs = {f.__name__: f for f in (write, count_by_condition, count_under_lock, create, hold, share)}
    store = open_store(StoreConfig("disk", root, writable=True, durability="rename"))
    jobs[job](store, Teller(told, ended), *arguments)
