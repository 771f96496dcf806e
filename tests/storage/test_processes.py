"""Several processes on one folder, some of which are killed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Store
from tests.storage.workers import KEYS, value_of

PROJECT = Path(__file__).parents[2]


@contextmanager
def worker(job: str, root: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that does a job of `tests.storage.workers`; it is killed at the end if it is still there."""
    command = [sys.executable, "-m", "tests.storage.workers", job, str(root), *arguments]
    with subprocess.Popen(
        command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreConfig("disk", str(tmp_path), writable=True, durability="rename"))


def value(store: Store, key: str) -> bytes:
    stored = store.get(key)
    assert stored is not None
    return bytes(stored.data)


def test_a_killed_writer_leaves_every_key_old_or_new(tmp_path: Path, store: Store) -> None:
    chance = random.Random(20)
    for _ in range(12):
        store.delete_prefix("")
        with worker("write", tmp_path) as process:
            told = [lines(process.stdout).readline()]
            time.sleep(chance.uniform(0, 0.04))
            process.kill()
            told += lines(process.stdout).readlines()

        acknowledged = len(told)
        assert told == [f"{number}\n" for number in range(1, acknowledged + 1)]
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
        assert [process.wait(60) for process in workers] == [0, 0, 0, 0]

    assert value(store, "counter") == b"100"


def test_of_processes_that_create_one_key_one_wins(tmp_path: Path, store: Store) -> None:
    with ExitStack() as stack:
        workers = [stack.enter_context(worker("create", tmp_path, f"w{i}")) for i in range(4)]
        won = [lines(process.stdout).read().split() for process in workers]

    assert sorted(key for keys in won for key in keys) == sorted(f"k{i}" for i in range(20))
    assert all(value(store, key) == f"w{i}".encode() for i, keys in enumerate(won) for key in keys)


@pytest.mark.parametrize("key", ["a/.zarray", "a/0.0"])
def test_a_killed_process_lets_go_of_its_locks(tmp_path: Path, store: Store, key: str) -> None:
    with worker("hold", tmp_path, key) as process, ThreadPoolExecutor(1) as pool:
        assert lines(process.stdout).readline() == "held\n"
        waiting = pool.submit(store.lock(key).__enter__)
        assert not waiting.done()

        process.kill()

        waiting.result(timeout=60)


def test_a_lock_of_a_live_process_keeps_others_out(tmp_path: Path, store: Store) -> None:
    with worker("hold", tmp_path, "a/.zarray") as process, ThreadPoolExecutor(1) as pool:
        assert lines(process.stdout).readline() == "held\n"
        waiting = pool.submit(store.lock("a/.zarray", shared=True).__enter__)
        with store.lock("b/.zarray"), store.lock("a/0.0"):
            time.sleep(0.1)
        assert not waiting.done()

        lines(process.stdin).close()

        waiting.result(timeout=60)


def test_an_exclusive_lock_is_not_starved_by_shared_ones(tmp_path: Path, store: Store) -> None:
    with ExitStack() as stack:
        workers = [stack.enter_context(worker("share", tmp_path, "a/.zarray")) for _ in range(3)]
        assert {lines(process.stdout).readline() for process in workers} == {"sharing\n"}

        pool = stack.enter_context(ThreadPoolExecutor(1))
        lock = store.lock("a/.zarray")
        pool.submit(lock.__enter__).result(timeout=60)

        lock.__exit__(None, None, None)
        for process in workers:
            lines(process.stdin).close()
            assert process.wait(60) == 0
