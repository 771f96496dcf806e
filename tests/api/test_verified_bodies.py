"""Chunks that change while a small answer is made: its tag is that of the bytes that were read."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numcodecs import Blosc

from hyperslab.api.app import create_app
from hyperslab.api.options import ApiOptions
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.storage import StoreConfig, open_store
from tests.api.support import HookedStore
from tests.arrays.support import LONG_AGO, age, zarr_array

VALUES = np.arange(400, dtype="<i4").reshape(20, 20)
SLICE = "/v1/slice/data/a?select=2:13,3:18"
BOX = (slice(2, 13), slice(3, 18))

Client = httpx.AsyncClient


@pytest.fixture(params=[Blosc(), None], ids=["Blosc", "uncompressed"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> HookedStore:
    zarr_array(tmp_path, VALUES, (5, 5), compressors=request.param, fill_value=7)
    age(tmp_path)
    return HookedStore(open_store(StoreConfig("data", str(tmp_path))))


@pytest.fixture
async def client(store: HookedStore) -> AsyncIterator[Client]:
    """A client of a service that caches nothing."""
    service = build([MountedStore("data", store)], cache_bytes=0)
    app = create_app(service, ApiOptions(answer_cache_bytes=0))
    async with Client(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        for _ in range(3):
            assert values(await client.get(SLICE)) == VALUES[BOX].tolist()
        store.lookups.clear()
        yield client


def values(answer: httpx.Response) -> Any:
    assert answer.status_code == 200
    return np.frombuffer(answer.content, "<i4").reshape(11, 15).tolist()


def replace(store: HookedStore, key: str, source: str | None) -> None:
    """Put another chunk in its place, or none."""
    path = Path(store.url.removeprefix("file://")) / key
    if source is None:
        path.unlink()
        return
    new = path.with_name("new")
    new.write_bytes((path.parent / source).read_bytes())
    os.utime(new, (LONG_AGO + 1, LONG_AGO + 1))  # not the time of the old file, whose inode it may get
    new.replace(path)


async def test_a_stored_key_is_not_looked_up_before(store: HookedStore, client: Client) -> None:
    first = [await client.get("/zarr/data/a/1.2") for _ in range(2)][-1]
    store.lookups.clear()
    again = await client.get("/zarr/data/a/1.2")

    assert (again.content, again.headers["etag"]) == (first.content, first.headers["etag"])
    assert "a/1.2" not in store.looked_up  # but the documents of its array are: a stream may write to it

    replace(store, "a/1.2", "3.3")
    after = await client.get("/zarr/data/a/1.2")
    assert after.content == (await client.get("/zarr/data/a/3.3")).content != first.content
    assert after.headers["etag"] != first.headers["etag"]


async def test_a_chunk_that_is_replaced_when_it_is_about_to_be_read_comes_with_its_own_tag(
    store: HookedStore, client: Client
) -> None:
    before = await client.get(SLICE)
    store.before_chunk = _once(lambda: replace(store, "a/1.2", "3.3"))
    during = await client.get(SLICE)
    after = await client.get(SLICE)

    expected = VALUES.copy()
    expected[5:10, 10:15] = VALUES[15:20, 15:20]
    assert values(during) == values(after) == expected[BOX].tolist()
    assert before.headers["etag"] != during.headers["etag"] == after.headers["etag"]


async def test_a_chunk_that_vanishes_is_seen_at_once_and_one_that_appears_by_the_next_request(
    store: HookedStore, client: Client
) -> None:
    first = await client.get(SLICE)
    gone, back = VALUES.copy(), VALUES.copy()
    gone[0:5, 5:10], back[0:5, 5:10] = 7, VALUES[15:20, 15:20]
    store.before_chunk = _once(lambda: replace(store, "a/0.1", None))
    without = await client.get(SLICE)
    assert values(without) == gone[BOX].tolist()

    store.before_chunk = _once(lambda: replace(store, "a/0.1", "3.3"))
    during, after = await client.get(SLICE), await client.get(SLICE)
    assert values(after) == back[BOX].tolist()
    assert (values(during), during.headers["etag"]) in (
        (values(without), without.headers["etag"]),
        (values(after), after.headers["etag"]),
    )
    assert len({answer.headers["etag"] for answer in (first, without, after)}) == 3


def _once(function: Callable[[], None]) -> Callable[[str], None]:
    """The function, which does nothing when it is called again."""
    waiting = [function]
    return lambda _: waiting.pop()() if waiting else None
