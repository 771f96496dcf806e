"""Several processes on one folder, some of which are killed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Store
from tests.server import FORKED
from tests.storage import support
from tests.storage.workers import KEYS, value_of, work


@dataclass(frozen=True, slots=True)
class Worker:
    """A process, what it tells, and what ends with it when it is to end."""

    process: BaseProcess
    told: Connection
    ending: Connection

    def line(self) -> str:
        found: str = self.told.recv()
        return found

    def lines(self) -> list[str]:
        """All that it has told when it ends."""
        found = list[str]()
        try:
            while True:
                found.append(self.line())
        except (EOFError, OSError):  # the pipe ends with the process, perhaps in the middle of a message
            return found

    def end(self) -> int | None:
        self.ending.close()
        self.process.join(60)
        return self.process.exitcode


@contextmanager
def worker(job: str, root: Path, *arguments: str) -> Iterator[Worker]:
    """A process that does a job of `tests.storage.workers`; it is killed at the end if it is still there."""
    (told, tells), (ended, ending) = FORKED.Pipe(duplex=False), FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=work, args=(job, str(root), tells, ended, *arguments), daemon=True)
    process.start()
    tells.close()
    ended.close()
    with told, ending:
        try:
            yield Worker(process, told, ending)
        finally:
            process.kill()
            process.join()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreConfig("disk", str(tmp_path), writable=True, durability="rename"))


def test_a_killed_writer_leaves_every_key_old_or_new(tmp_path: Path, store: Store) -> None:
    chance = random.Random(20)
    for _ in range(12):
        store.delete_prefix("")
        with worker("write", tmp_path) as process:
            told = [process.line()]
            time.sleep(chance.uniform(0, 0.04))
            process.process.kill()
            told += process.lines()

        acknowledged = len(told)
        assert told == [f"{number}" for number in range(1, acknowledged + 1)]
        for key in KEYS:
            check_whole_and_recent(store, key, acknowledged)
            with store.lock(key):
                store.put(key, b"the next writer finds it free")
        assert {entry.key for entry in store.list_prefix("")} <= set(KEYS)


def check_whole_and_recent(store: Store, key: str, acknowledged: int) -> None:
    """The last write that was acknowledged is there, or the one that was under way when the writer was killed."""
    numbers = [n for n in range(acknowledged, 0, -1) if KEYS[n % len(KEYS)] == key]
    possible: set[bytes | None] = {value_of(numbers[0])} if numbers else {None}
    if KEYS[(acknowledged + 1) % len(KEYS)] == key:
        possible.add(value_of(acknowledged + 1))
    stored = store.get(key)
    assert (None if stored is None else bytes(stored.data)) in possible


@pytest.mark.parametrize("job", ["count_by_condition", "count_under_lock"])
def test_processes_that_count_lose_nothing(tmp_path: Path, store: Store, job: str) -> None:
    store.put("counter", b"0")

    with ExitStack() as stack:
        workers = [stack.enter_context(worker(job, tmp_path, "25")) for _ in range(4)]
        assert [process.end() for process in workers] == [0, 0, 0, 0]

    assert support.value_of(store, "counter") == b"100"


def test_of_processes_that_create_one_key_one_wins(tmp_path: Path, store: Store) -> None:
    with ExitStack() as stack:
        workers = [stack.enter_context(worker("create", tmp_path, f"w{i}")) for i in range(4)]
        won = [process.lines() for process in workers]

    assert sorted(key for keys in won for key in keys) == sorted(f"k{i}" for i in range(20))
    assert all(support.value_of(store, key) == f"w{i}".encode() for i, keys in enumerate(won) for key in keys)


@pytest.mark.parametrize("key", ["a/.zarray", "a/0.0"])
def test_a_killed_process_lets_go_of_its_locks(tmp_path: Path, store: Store, key: str) -> None:
    with worker("hold", tmp_path, key) as process, ThreadPoolExecutor(1) as pool:
        assert process.line() == "held"
        waiting = pool.submit(store.lock(key).__enter__)
        assert not waiting.done()

        process.process.kill()

        waiting.result(timeout=60)


def test_a_lock_of_a_live_process_keeps_others_out(tmp_path: Path, store: Store) -> None:
    with worker("hold", tmp_path, "a/.zarray") as process, ThreadPoolExecutor(1) as pool:
        assert process.line() == "held"
        waiting = pool.submit(store.lock("a/.zarray", shared=True).__enter__)
        with store.lock("b/.zarray"), store.lock("a/0.0"):
            time.sleep(0.1)
        assert not waiting.done()

        process.end()

        waiting.result(timeout=60)


def test_an_exclusive_lock_is_not_starved_by_shared_ones(tmp_path: Path, store: Store) -> None:
    with ExitStack() as stack:
        workers = [stack.enter_context(worker("share", tmp_path, "a/.zarray")) for _ in range(3)]
        assert {process.line() for process in workers} == {"sharing"}

        pool = stack.enter_context(ThreadPoolExecutor(1))
        lock = store.lock("a/.zarray")
        pool.submit(lock.__enter__).result(timeout=60)

        lock.__exit__(None, None, None)
        assert [process.end() for process in workers] == [0, 0, 0]
