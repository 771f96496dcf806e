"""Writes that wait for other writers: reads go on, other nodes can be written, and there is an end to the queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from hyperslab.api.options import ApiOptions
from hyperslab.api.threads import WriteThreads
from hyperslab.errors import Overloaded
from hyperslab.storage import StoreConfig
from tests.api.support import serving

DEFINITION = {"shape": [4], "chunks": [4], "dtype": "<i4"}
ROWS = np.ones(4, "<i4").tobytes()


@pytest.fixture
def go_on() -> threading.Event:
    """What those in the threads wait for."""
    return threading.Event()


@pytest.fixture(params=[30])
def threads(go_on: threading.Event, request: pytest.FixtureRequest) -> Iterator[WriteThreads]:
    threads = WriteThreads(4, patience=request.param)
    yield threads
    go_on.set()
    threads.close()


async def test_one_node_leaves_a_thread_to_the_others(threads: WriteThreads, go_on: threading.Event) -> None:
    waiting = [asyncio.create_task(threads.run("s/a", go_on.wait, 60)) for _ in range(10)]
    await asyncio.sleep(0)

    assert await threads.run("s/b", lambda: "written") == "written"
    assert not any(task.done() for task in waiting)
    go_on.set()
    assert all(await asyncio.gather(*waiting))
    assert threads._nodes == {}


@pytest.mark.parametrize("threads", [0.05], indirect=True)
async def test_a_write_that_waits_too_long_for_a_thread_is_refused_and_the_others_are_served(
    threads: WriteThreads, go_on: threading.Event
) -> None:
    waiting = [asyncio.create_task(threads.run("s/a", go_on.wait, 60)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="s/a"):
        await threads.run("s/a/", lambda: "never")
    go_on.set()
    assert all(await asyncio.gather(*waiting))

    assert await threads.run("s/a", lambda: "written") == "written"


async def test_an_error_frees_the_thread_as_a_result_does(threads: WriteThreads) -> None:
    for _ in range(20):
        with pytest.raises(ZeroDivisionError):
            await threads.run("s/a", lambda: 1 // 0)


def test_other_arrays_stay_readable_while_appends_wait_for_one_that_is_locked(tmp_path: Path) -> None:
    config = StoreConfig(name="data", url=str(tmp_path), writable=True, durability="rename")
    options = ApiOptions(request_threads=2, queue_seconds=0.2)
    with serving(config, options) as found, ThreadPoolExecutor(8) as pool:
        url, store = found.url, found.store
        for name in ("a", "other"):
            assert httpx.put(f"{url}/v1/metadata/data/{name}", json=DEFINITION).status_code == 201
        with store.lock("a/.zarray"):  # as the holder of a lease has it that nobody renews
            appends = [pool.submit(httpx.post, f"{url}/v1/append/data/a", content=ROWS, timeout=60) for _ in range(5)]
            refused = [done.result() for done in _first(4, appends)]
            read = httpx.get(f"{url}/v1/slice/data/other", timeout=60)
            written = httpx.put(f"{url}/v1/slice/data/other", content=ROWS, timeout=60)
        last = [append.result().status_code for append in appends]

    assert [(answer.status_code, answer.headers["Retry-After"]) for answer in refused] == [(503, "1")] * 4
    assert (read.status_code, written.status_code) == (200, 204)
    assert sorted(last) == [201, 503, 503, 503, 503]


def _first(count: int, futures: list[Any]) -> list[Any]:
    """The first futures that are done."""
    done: set[Any] = set()
    while len(done) < count:
        more = wait([f for f in futures if f not in done], timeout=60, return_when=FIRST_COMPLETED).done
        assert more, f"{len(done)} of {count} are done"
        done |= more
    return list(done)
