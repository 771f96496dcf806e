"""What the event loop does itself, and what it leaves to threads."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from hyperslab.api import exchange
from hyperslab.api.app import create_app
from hyperslab.api.options import ApiOptions
from hyperslab.api.threads import Threads
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.storage import StoreConfig, open_store
from tests.api.support import serving
from tests.arrays.counting import CountingStore
from tests.arrays.support import zarr_array
from tests.server import served


class StalledStore(CountingStore):
    """A store on the network that does not answer once it ``stalls``, until it is to ``go_on``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(open_store(StoreConfig(name="remote", url=str(folder), writable=True)), cheap_stat=False)
        self.stalls = False
        self.go_on = threading.Event()

    def before(self, operation: str, keys: Sequence[str]) -> None:
        if self.stalls and (keys or operation == "check"):
            self.go_on.wait(60)


def test_a_store_that_does_not_answer_holds_up_no_other(tmp_path: Path) -> None:
    for name in ("local", "remote"):
        zarr_array(tmp_path / name, np.zeros((4, 4)), (4, 4))
    local = open_store(StoreConfig(name="local", url=str(tmp_path / "local"), writable=True))
    remote = StalledStore(tmp_path / "remote")
    service = build([MountedStore("local", local, writable=True), MountedStore("remote", remote, writable=True)])
    with served(create_app(service, ApiOptions(request_threads=2))) as url, ThreadPoolExecutor(12) as pool:
        reading = "/v1/slice/{}/a?select=3", "/v1/metadata/{}", "/zarr/{}/a/.zarray", "/v1/tile/{}/a/info.json"
        remote.stalls = True
        try:
            asked = [pool.submit(httpx.get, url + target.format("remote"), timeout=90) for target in 2 * reading]
            asked += [pool.submit(_write, url, f"remote/{name}") for name in ("a", "b", "c", "a")]
            wait(asked, timeout=1)
            assert not any(request.done() for request in asked)

            for target in reading:
                assert httpx.get(url + target.format("local"), timeout=30).status_code == 200
            assert _write(url, "local/a").status_code == 204
            ready = httpx.get(f"{url}/readyz", timeout=30).json()["stores"]
        finally:
            remote.go_on.set()

    assert (ready["local"]["ready"], ready["remote"]["ready"]) == (True, False)
    assert [request.result().status_code for request in asked] == [200] * 8 + [204, 404, 404, 204]


def _write(url: str, path: str) -> httpx.Response:
    return httpx.put(f"{url}/v1/slice/{path}?select=3", json=3, timeout=90)


@pytest.mark.parametrize("cached", [400, 10, 0, None])
def test_what_is_small_is_read_by_a_thread_if_it_is_not_in_the_memory_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: int | None
) -> None:
    """``cached``: bytes of the file in the page cache, of 400; None if the file system cannot tell."""
    values = np.arange(100, dtype="<i4").reshape(10, 10)
    zarr_array(tmp_path, values, (10, 10), compressors=None)
    hops, tried, run, preadv = [], [], Threads.run, os.preadv

    async def counted(pool: Threads, fn: Any, *args: Any, **named: Any) -> Any:
        hops.append(fn)
        return await run(pool, fn, *args, **named)

    def partly(descriptor: int, buffers: Any, offset: int, flags: int = 0) -> int:
        if not flags:
            return preadv(descriptor, buffers, offset)
        tried.append(offset)
        if not cached:
            raise OSError(errno.EOPNOTSUPP if cached is None else errno.EAGAIN, "not at once")
        return preadv(descriptor, [buffers[0][:cached]], offset)

    monkeypatch.setattr(Threads, "run", counted)
    monkeypatch.setattr(os, "preadv", partly)
    monkeypatch.setattr(os, "RWF_NOWAIT", 8, raising=False)
    monkeypatch.setattr(Threads, "pause", 3600.0)
    with serving(tmp_path, ApiOptions(answer_cache_bytes=0), cache_bytes=0) as served_on:
        client = served_on.http
        client.get("/v1/metadata/data/a")
        hops.clear()
        missing = client.get("/zarr/data/a/1.0")
        hops_of_missing = len(hops)
        found = client.get("/zarr/data/a/0.0")

        assert (missing.status_code, hops_of_missing) == (404, 0)
        assert (found.content, len(hops)) == (values.tobytes(), 0 if cached == 400 else 1)
        hops.clear()
        for row in (3, 4):
            assert client.get(f"/v1/slice/data/a?select={row}").content == values[row].tobytes()
        assert (len(hops), len(tried)) == ((0, 3) if cached == 400 else (2, 1)), "a slow disk is tried once"


def test_nothing_is_read_on_the_loop_while_threads_have_work() -> None:
    async def run() -> list[str | None]:
        pool, go_on = Threads(4), threading.Event()
        waiting = asyncio.create_task(pool.run(go_on.wait, 60))
        await asyncio.sleep(0)
        found = [pool.at_once(lambda: "read")]
        go_on.set()
        await waiting
        found.append(pool.at_once(lambda: "read"))
        pool.close()
        return found

    assert asyncio.run(run()) == [None, "read"]


def test_calls_that_take_long_leave_their_turns_to_others() -> None:
    async def run() -> list[bool]:
        pool, go_on = Threads(32), threading.Event()
        waiting = [asyncio.create_task(pool.run(go_on.wait, 20)) for _ in range(24)]
        await asyncio.sleep(0)
        await pool.run(go_on.set)  # by who came last
        found = await asyncio.gather(*waiting)
        pool.close()
        return found

    assert asyncio.run(run()) == [True] * 24


@pytest.mark.parametrize("seconds", [60.0, 0.0])
def test_calls_for_many_small_chunks_run_one_after_another_but_not_for_ever(seconds: float) -> None:
    async def run() -> int:
        pool, first, both = Threads(32), threading.Event(), threading.Barrier(2)
        pool.alone_seconds = seconds
        started = []

        def work(call: int) -> None:
            started.append(call)
            if seconds:
                first.wait(20)
            else:
                both.wait(20)  # breaks if the other one does not begin

        calls = [asyncio.create_task(pool.run_alone(work, call)) for call in range(2)]
        for _ in range(4):
            await pool.run(lambda: None)  # others are answered
        before = len(started)
        first.set()
        await asyncio.gather(*calls)
        pool.close()
        assert started == [0, 1] or not seconds
        return before

    assert asyncio.run(run()) == 1 or not seconds


def test_requests_for_many_small_chunks_run_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = list[str]()

    async def run_alone(pool: Threads, fn: Any, *args: Any, **named: Any) -> Any:
        alone.append(fn.__name__)
        return await pool.run(fn, *args, **named)

    monkeypatch.setattr(Threads, "run_alone", run_alone)
    monkeypatch.setattr(exchange, "MANY", 99)
    for name, chunk in (("few", 4), ("many", 2)):
        zarr_array(tmp_path / name, np.zeros((20, 20)), (chunk, chunk))
    with serving(tmp_path) as served_on:
        for name in ("few", "many"):
            path, points = (
                f"data/{name}/a",
                {"coordinates": [[i // 20, i % 20] for i in range(50 if name == "few" else 400)]},
            )
            served_on.http.head(f"/v1/slice/{path}")
            served_on.http.get(f"/v1/slice/{path}", headers={"If-None-Match": "*"})
            served_on.http.get(f"/v1/plan/{path}")
            served_on.http.post(f"/v1/points/{path}", json=points)
            assert (len(alone) > 0) == (name == "many"), alone
    assert {"work", "boxes", "parse", "plan_points", "read"} <= {*alone}
