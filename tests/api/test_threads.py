"""What the event loop does itself, and what it leaves to threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from numcodecs import Blosc

from hyperslab.api.app import create_app
from hyperslab.api.options import ApiOptions
from hyperslab.api.threads import Threads
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from tests.api.support import WatchedStore
from tests.arrays.support import age, zarr_array


class TestSpareTime:
    """Of an event loop."""

    def run(self, scene: Callable[[Threads], Awaitable[None]]) -> None:
        async def play() -> None:
            threads = Threads(2)
            await scene(threads)
            threads.close()

        asyncio.run(play())

    def test_is_there_once_a_turn(self) -> None:
        async def scene(threads: Threads) -> None:
            assert threads.spare()
            assert not threads.spare()
            await asyncio.sleep(0)
            assert threads.spare()

        self.run(scene)

    def test_is_not_there_while_a_thread_works(self) -> None:
        async def scene(threads: Threads) -> None:
            done = threading.Event()
            working = asyncio.create_task(threads.run(done.wait, 30))
            await asyncio.sleep(0)
            assert not threads.spare()
            done.set()
            await working
            assert threads.spare()

        self.run(scene)

    def test_is_there_after_work_that_failed(self) -> None:
        async def scene(threads: Threads) -> None:
            with pytest.raises(ZeroDivisionError):
                await threads.run(lambda: 1 // 0)
            assert threads.spare()

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

    def test_of_two_at_once_a_thread_reads_one(self, store: WatchedStore) -> None:
        readers = self.readers(store, self.ROWS, self.MORE)

        assert len(readers) == 2
        assert 0 in readers
