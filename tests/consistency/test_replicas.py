"""No lost updates: 4 worker processes × 2 replicas write the same chunks, and each cell holds what came last."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import urllib3
import zarr

from hyperslab import RemoteArray
from tests.layouts import definition
from tests.server import Server

NDArray = np.ndarray[Any, Any]

WORKERS = 4
SHAPE, CHUNKS = (48, 48), (16, 16)
CLIENTS = 8
ONE_SHARD = 320
"""Cells along each side of an array that is one shard."""
OPERATIONS = [
    ("disk", "v2", 10, 0),
    ("disk", "shards", 10, 10**5),
    ("bucket", "v2", 4, 0),
    ("bucket", "shards", 6, 10**5),
]
"""Store, layout, how many for each client, and how many cells all write at least; a test bucket takes some ten
milliseconds a request."""


class Client:
    """One writer that owns every eighth column: its boxes and cells share all chunks with those of the others."""

    def __init__(self, number: int, servers: list[Server], path: str, shape: tuple[int, ...]) -> None:
        self._number, self._shape, self.cells = number, shape, 0
        self._urls = [f"{server.url}/v1/slice/{path}" for server in servers]
        self._http = urllib3.PoolManager(retries=False)
        self._random = random.Random(number)
        self.model: NDArray = np.zeros(shape, "<i4")

    def run(self, operations: int) -> int:
        """Write boxes and cells through either replica; returns how many were acknowledged."""
        for value in range(1, operations + 1):
            self._write(value * 100 + self._number)
        return operations

    def _write(self, value: int) -> None:
        where: tuple[slice, slice]
        rows, columns = self._shape
        if self._random.random() < 0.5:
            row, column = self._random.randrange(rows), self._number + 8 * self._random.randrange(columns // 8)
            text, where = f"{row},{column}", (slice(row, row + 1), slice(column, column + 1))
        else:
            start, stop = sorted(self._random.sample(range(rows + 1), 2))
            text, where = f"{start}:{stop},{self._number}::8", (slice(start, stop), slice(self._number, None, 8))
        answer = self._http.request(
            "PUT",
            f"{self._random.choice(self._urls)}?select={text}",
            body=str(value),
            headers={"Content-Type": "application/json"},
        )
        assert answer.status == 204, answer.data
        self.model[where] = value
        self.cells += self.model[where].size


def make(
    server: Server, path: str, layout: str, shape: tuple[int, ...] = SHAPE, stored: tuple[int, ...] = CHUNKS
) -> RemoteArray:
    answer = urllib3.request("PUT", f"{server.url}/v1/metadata/{path}", json=definition(layout, shape, stored))
    assert answer.status == 201, answer.data
    return RemoteArray(f"{server.url}/v1/metadata/{path}")


def test_processes_of_two_replicas_write_shared_chunks_and_lose_nothing(replicas: list[Server]) -> None:
    """Each cell is written by one client only, last of all with what its model says; one chunk has cells of all, and of
    an array in shards all lie in one: zarr-python #3682 and #3514."""
    for store, layout, operations, cells in OPERATIONS:
        shape, stored = (SHAPE, CHUNKS) if layout != "shards" else ((ONE_SHARD, ONE_SHARD),) * 2
        array = make(replicas[0], f"{store}/a/{layout}", layout, shape, stored)
        clients = [Client(number, replicas, f"{store}/a/{layout}", shape) for number in range(CLIENTS)]
        with ThreadPoolExecutor(CLIENTS) as pool:
            acknowledged = sum(pool.map(lambda client, n=operations: client.run(n), clients))

        assert acknowledged == CLIENTS * operations
        assert sum(client.cells for client in clients) >= cells
        np.testing.assert_array_equal(array[...], sum(client.model for client in clients))


def test_increments_under_if_match_are_never_lost(replicas: list[Server]) -> None:
    """Read, add one, write on condition that nothing changed; who is told 412 reads again."""
    for store, layout, each in (("disk", "v2", 3), ("disk", "shards", 3), ("bucket", "v2", 1), ("bucket", "shards", 1)):
        array = make(replicas[0], f"{store}/counter/{layout}", layout)
        urls = [f"{server.url}/v1/slice/{store}/counter/{layout}?select=0:20,0:20" for server in replicas]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(partial(increment, urls, each), range(4)))

        assert np.unique(array[0:20, 0:20]).tolist() == [4 * each]


def increment(urls: list[str], times: int, seed: int) -> None:
    http, chance = urllib3.PoolManager(retries=False), random.Random(seed)
    done = 0
    while done < times:
        read = http.request("GET", chance.choice(urls))
        if read.status == 503:  # written again and again while it was read
            continue
        assert read.status == 200, read.data
        value = np.frombuffer(read.data, "<i4") + 1
        headers = {"If-Match": read.headers["ETag"], "Content-Type": "application/octet-stream"}
        answer = http.request("PUT", chance.choice(urls), body=value.tobytes(), headers=headers)
        assert answer.status in (204, 409, 412), answer.data
        done += answer.status == 204


def test_changes_through_clients_of_both_replicas_are_never_lost(replicas: list[Server]) -> None:
    """Boxes of four chunks, and an attribute."""
    for store, layout, each in (("disk", "v2", 3), ("disk", "shards", 3), ("bucket", "v2", 1), ("bucket", "shards", 1)):
        path = f"{store}/changed/{layout}"
        array = make(replicas[0], path, layout)

        def change(number: int, path: str = path, each: int = each) -> None:
            server = replicas[number % len(replicas)]
            with RemoteArray(f"{server.url}/v1/metadata/{path}") as mine:
                for _ in range(each):
                    mine.change(np.s_[10:20, 10:20], lambda values: values + 1)
                    mine.attrs.change(lambda now: {"n": now.get("n", 0) + 1})

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(change, range(4)))

        assert np.unique(array[10:20, 10:20]).tolist() == [4 * each]
        assert array.refresh().attrs == {"n": 4 * each}


def test_appenders_on_both_replicas_get_disjoint_regions(replicas: list[Server]) -> None:
    for store, layout, each in (("disk", "v2", 3), ("disk", "shards", 3), ("bucket", "v2", 1), ("bucket", "shards", 1)):
        array = make(replicas[0], f"{store}/log/{layout}", layout)
        array.resize((0, SHAPE[1]))
        urls = [f"{server.url}/v1/append/{store}/log/{layout}" for server in replicas]
        with ThreadPoolExecutor(4) as pool:
            offsets = [o for done in pool.map(partial(append, urls, each), range(4)) for o in done]

        array.refresh()
        values = array[...]
        assert sorted(offset for offset, _ in offsets) == list(range(0, 12 * each, 3))
        assert all((values[offset : offset + 3] == value).all() for offset, value in offsets)


def append(urls: list[str], times: int, seed: int) -> list[tuple[int, int]]:
    """Append three rows at a time; returns where each went."""
    http, chance = urllib3.PoolManager(retries=False), random.Random(seed)
    offsets = []
    for i in range(times):
        value = 1000 * (seed + 1) + i
        body = np.full((3, SHAPE[1]), value, "<i4").tobytes()
        answer = http.request("POST", chance.choice(urls), body=body, headers={"Idempotency-Key": f"{seed}-{i}"})
        assert answer.status == 201, answer.data
        offsets.append((answer.json()["offset"], value))
    return offsets


def test_a_shrink_on_one_replica_is_safe_from_writers_on_the_other(replicas: list[Server]) -> None:
    """Whatever the order, what lies outside is gone: growing again shows fill values only."""
    for store, layout in product(("disk", "bucket"), ("v2", "shards")):
        path = f"{store}/shrinking/{layout}"
        array = make(replicas[0], path, layout)
        with ThreadPoolExecutor(4) as pool:
            writes = [pool.submit(write_rows, replicas[1], path, row) for row in range(0, 48, 6)]
            pool.submit(array.resize, (20, 48)).result()
            statuses = [write.result() for write in writes]

        assert set(statuses) <= {204, 409, 422}
        array.resize((48, 48))
        array.refresh()
        assert not array[20:].any()


def write_rows(server: Server, path: str, row: int) -> int:
    url = f"{server.url}/v1/slice/{path}?select={row}:{row + 6}"
    return urllib3.request("PUT", url, body=b"7", headers={"Content-Type": "application/json"}).status


@pytest.mark.parametrize("separator", [".", "/"])
def test_what_zarr_python_writes_is_seen_by_both_replicas_at_once(
    replicas: list[Server], disk: Path, separator: str
) -> None:
    array = zarr.create_array(
        str(disk / "z"),
        shape=(8,),
        chunks=(4,),
        dtype="<i4",
        zarr_format=2,
        chunk_key_encoding={"name": "v2", "separator": separator},
        overwrite=True,
    )
    remote = [RemoteArray(f"{server.url}/zarr/disk/z") for server in replicas]
    for value in range(1, 6):
        array[:] = value

        assert [each[...].tolist() for each in remote] == [[value] * 8] * 2
