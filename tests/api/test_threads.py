"""What the event loop does itself, and what it leaves to threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from numcodecs import Blosc

from hyperslab.api import threads as threads_module
from hyperslab.api.app import create_app
from hyperslab.api.options import ApiOptions
from hyperslab.api.routes import health
from hyperslab.api.threads import Threads
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import MOST_BYTES, Capabilities, Entry, Part, Stored
from tests.api.support import WatchedStore
from tests.arrays.counting import CountingStore
from tests.arrays.support import age, zarr_array
from tests.server import served

LONGER = 0.002
"""Seconds: more than a turn has to spare."""


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class TestSpareTime:
    """Of an event loop."""

    def run(self, scene: Callable[[Threads], Awaitable[None]]) -> None:
        async def play() -> None:
            threads = Threads(2)
            await scene(threads)
            threads.close()

        asyncio.run(play())

    def test_is_there_for_a_moment_in_each_turn(self) -> None:
        async def scene(threads: Threads) -> None:
            for _ in range(3):
                assert threads.spare()
                spin(LONGER)
                assert not threads.spare()
                await asyncio.sleep(0)

        self.run(scene)

    def test_is_there_for_several_who_need_little(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threads_module, "_TURN_SECONDS", 30.0)

        async def scene(threads: Threads) -> None:
            assert all(threads.spare() for _ in range(10))

        self.run(scene)

    def test_is_waited_for_in_the_order_of_coming(self) -> None:
        done: list[int] = []
        turns: list[int] = []

        async def scene(threads: Threads) -> None:
            async def work(number: int) -> None:
                await threads.turn()
                done.append(number)
                turns.append(turn)
                spin(LONGER)

            turn = 0
            working = [asyncio.create_task(work(number)) for number in range(5)]
            while not all(task.done() for task in working):
                turn += 1
                await asyncio.sleep(0)

        self.run(scene)

        assert done == [0, 1, 2, 3, 4]
        assert len(set(turns)) == 5

    def test_who_comes_later_does_not_overtake(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threads_module, "_TURN_SECONDS", 0.0)

        async def scene(threads: Threads) -> None:
            async def take() -> None:
                assert threads.spare()

            async def come_late() -> None:
                monkeypatch.setattr(threads_module, "_TURN_SECONDS", 30.0)  # there is time, and somebody waits for it
                assert not threads.spare()

            await asyncio.gather(take(), threads.turn(), come_late())

        self.run(scene)

    def test_who_waits_no_longer_is_passed_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threads_module, "_TURN_SECONDS", 0.0)

        async def scene(threads: Threads) -> None:
            async def take() -> None:
                assert threads.spare()

            async def leave() -> None:
                gone.cancel()

            taking, gone, patient, leaving = map(asyncio.create_task, (take(), threads.turn(), threads.turn(), leave()))
            await asyncio.wait_for(asyncio.gather(taking, patient, leaving), 30)
            assert gone.cancelled()

        self.run(scene)


class TestReads:
    """Of 1 MiB in eight chunks, most of a millisecond's work; nothing is cached."""

    VALUES = np.random.default_rng(3).integers(0, 9, (8, 32_768)).astype("<i4")
    ROWS = "/v1/slice/data/a?select=:,100:200"
    MORE = "/v1/slice/data/a?select=:,300:400"

    @pytest.fixture
    def store(self, tmp_path: Path) -> WatchedStore:
        zarr_array(tmp_path, self.VALUES, (1, 32_768), compressors=Blosc())
        age(tmp_path)
        return WatchedStore(tmp_path)

    def readers(self, store: WatchedStore, *targets: str) -> set[int]:
        """Who reads when all is warm and these are asked for at the same time; 0 stands for the event loop."""

        read_by: set[int] = set()

        async def play() -> set[int]:
            service = build([MountedStore("data", store)], cache_bytes=0)
            app = create_app(service, ApiOptions(answer_cache_bytes=0))
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
                for _ in range(2):
                    for target in targets:
                        await client.get(target)
                store.before_read = lambda: read_by.add(threading.get_ident())
                answers = await asyncio.gather(*map(client.get, targets))
            service.close()
            for answer, first in zip(answers, (100, 300), strict=False):
                found = np.frombuffer(answer.content, "<i4").reshape(8, 100)
                np.testing.assert_array_equal(found, self.VALUES[:, first : first + 100])
            return {0 if reader == threading.get_ident() else reader for reader in read_by}

        return asyncio.run(play())

    def test_one_alone_is_read_by_the_event_loop(self, store: WatchedStore) -> None:
        assert self.readers(store, self.ROWS) == {0}

    def test_several_at_once_are_read_by_it_one_after_the_other(
        self, store: WatchedStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(threads_module, "_TURN_SECONDS", 0.0)

        assert self.readers(store, self.ROWS, self.MORE) == {0}


class StalledStore(CountingStore):
    """A store on the network that does not answer once it ``stalls``, until it is to ``go_on``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(open_store(StoreConfig(name="far", url=str(folder), writable=True)))
        self.stalls = False
        self.go_on = threading.Event()

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, cheap_stat=False)

    def versions(self, prefix: str, keys: Sequence[str]) -> list[str | None]:
        self._stall()
        return super().versions(prefix, keys)

    def get(self, key: str, most: int = MOST_BYTES) -> Stored | None:
        self._stall()
        return super().get(key, most)

    def get_part(self, key: str, start: int, stop: int) -> Part | None:
        self._stall()
        return super().get_part(key, start, stop)

    def stat(self, key: str) -> Entry | None:
        self._stall()
        return super().stat(key)

    def check(self) -> None:
        self._stall()
        super().check()

    def _stall(self) -> None:
        if self.stalls:
            self.go_on.wait(60)


def test_a_store_that_does_not_answer_holds_up_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_READY_SECONDS", 0.2)
    for name in ("near", "far"):
        zarr_array(tmp_path / name, np.zeros((4, 4)), (4, 4))
    near = open_store(StoreConfig(name="near", url=str(tmp_path / "near"), writable=True))
    far = StalledStore(tmp_path / "far")
    service = build([MountedStore("near", near, writable=True), MountedStore("far", far, writable=True)])
    with served(create_app(service, ApiOptions(request_threads=2))) as url, ThreadPoolExecutor(12) as pool:
        reading = "/v1/slice/{}/a?select=3", "/v1/metadata/{}", "/zarr/{}/a/.zarray", "/v1/tile/{}/a/info.json"
        far.stalls = True
        try:
            asked = [pool.submit(httpx.get, url + target.format("far"), timeout=90) for target in 2 * reading]
            asked += [pool.submit(_write, url, f"far/{name}") for name in ("a", "b", "c", "a")]
            wait(asked, timeout=1)
            assert not any(request.done() for request in asked)

            for target in reading:
                assert httpx.get(url + target.format("near"), timeout=30).status_code == 200
            assert _write(url, "near/a").status_code == 204
            ready = httpx.get(f"{url}/readyz", timeout=30).json()["stores"]
        finally:
            far.go_on.set()

    assert (ready["near"]["ready"], ready["far"]["ready"]) == (True, False)


def _write(url: str, path: str) -> httpx.Response:
    return httpx.put(f"{url}/v1/slice/{path}?select=3", json=3, timeout=90)
