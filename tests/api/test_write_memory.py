"""Writes count what decoding and encoding take before they begin."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from hyperslab.api.options import ApiOptions
from tests.api.support import serving
from tests.arrays.counting import CountingStore
from tests.arrays.support import local_store

CHUNK = 1 << 20
JSON = {"Content-Type": "application/json"}


class HeldStore(CountingStore):
    """A folder in which chunks are not stored before they may be."""

    def __init__(self, root: Path) -> None:
        super().__init__(local_store(root))
        self.arrived, self.may_go = threading.Event(), threading.Event()

    def before(self, operation: str, keys: Sequence[str]) -> None:
        if operation == "put" and not keys[0].rpartition("/")[2].startswith("."):
            self.arrived.set()
            assert self.may_go.wait(30)


WRITES: dict[str, Callable[[httpx.Client, int], httpx.Response]] = {
    "a cell": lambda http, i: http.put(f"/v1/slice/data/a?select={i * CHUNK}", content="1", headers=JSON),
    "a chunk as it is stored": lambda http, i: http.put(f"/v1/chunk/data/a/{i}?format=stored", content=bytes(CHUNK)),
    "a key": lambda http, i: http.put(f"/zarr/data/a/{i}", content=bytes(CHUNK)),
    "a point": lambda http, i: http.post(
        "/v1/points/data/a?values=1", json={"coordinates": [[i * CHUNK]], "values": [1]}, headers=JSON
    ),
    "an append": lambda http, _: http.post("/v1/append/data/a", content="[1]", headers=JSON),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_of_a_large_chunk_holds_what_it_takes(
    tmp_path: Path, write: Callable[[httpx.Client, int], httpx.Response]
) -> None:
    store = HeldStore(tmp_path)
    with (
        serving(store, ApiOptions(queue_seconds=0.1), bytes_in_flight=CHUNK, slab_bytes=CHUNK // 8) as found,
        ThreadPoolExecutor(1) as pool,
    ):
        http, service = found.http, found.service
        http.put(
            "/v1/metadata/data/a", json={"shape": [8 * CHUNK], "chunks": [CHUNK], "dtype": "|u1", "compressor": None}
        )
        first = pool.submit(write, http, 0)
        assert store.arrived.wait(30)
        assert service.in_flight.held >= 4 * CHUNK
        assert write(http, 1).json()["code"] == "overloaded"
        store.may_go.set()

        assert first.result().is_success
        assert write(http, 1).is_success
        assert service.in_flight.held == 0
