"""What readers on one replica see while others write through another."""

from __future__ import annotations

import threading
from itertools import count, product
from typing import Any

import aiohttp
import httpx
import numpy as np
import pytest
import zarr

from tests.layouts import definition
from tests.server import Server

NDArray = np.ndarray[Any, Any]

COLUMNS = 6
APPENDS = {"disk": 20, "bucket": 4}
WHERE = pytest.mark.parametrize(("store", "layout"), [*product(("disk", "bucket"), ("v2", "shards"))])


def make(server: Server, path: str, layout: str, shape: list[int], stored: list[int]) -> None:
    answer = httpx.put(f"{server.url}/v1/metadata/{path}", json=definition(layout, shape, stored))
    assert answer.status_code == 201, answer.text


def ask(method: str, server: Server, path: str, select: str = "") -> httpx.Response:
    """A slice, asked for again where it was written again and again while it was read."""
    url = f"{server.url}/v1/slice/{path}"
    while (answer := httpx.request(method, url, params={"select": select}, timeout=60)).status_code == 503:
        pass
    assert answer.status_code == 200, answer.text
    return answer


def read(server: Server, path: str, select: str = "") -> NDArray:
    answer = ask("GET", server, path, select)
    shape = [int(size) for size in answer.headers["array-shape"].strip("[]").split(",")]
    return np.frombuffer(answer.content, "<i4").reshape(shape)


def read_with_zarr(server: Server, path: str) -> NDArray:
    """Again where a shard was put meanwhile: Zarr asks for its index and then for ranges."""

    def version() -> str:
        return ask("HEAD", server, path).headers["etag"] if path.endswith("shards") else ""

    while True:
        before = version()
        try:
            values: NDArray = np.asarray(zarr.open_array(f"{server.url}/zarr/{path}", mode="r")[...])
        except (RuntimeError, ValueError, aiohttp.ClientError):
            if version() == before:
                raise
            continue
        if version() == before:
            return values


@WHERE
def test_who_polls_during_appends_never_sees_fill_values(replicas: list[Server], store: str, layout: str) -> None:
    """Nor rows that go away again: through our slices as through plain keys."""
    path = f"{store}/polled/{layout}"
    make(replicas[0], path, layout, [0, COLUMNS], [4, 4])
    ended = threading.Event()

    def write() -> None:
        for number in range(APPENDS[store]):
            rows = np.full((1 + number % 3, COLUMNS), number + 1, "<i4")
            answer = httpx.post(f"{replicas[0].url}/v1/append/{path}", content=rows.tobytes(), timeout=60)
            assert answer.status_code == 201, answer.text
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    longest = 0
    for turn in count():
        last = ended.is_set() or not writer.is_alive()
        found = read_with_zarr(replicas[1], path) if turn % 4 == 3 else read(replicas[1], path)
        assert found.all(), found
        assert len(found) >= longest
        longest = len(found)
        if last:
            break
    writer.join()

    assert ended.is_set()
    assert longest == sum(1 + number % 3 for number in range(APPENDS[store]))


@WHERE
def test_what_one_replica_cut_off_never_shows_through_the_other(
    replicas: list[Server], store: str, layout: str
) -> None:
    """The other has it all in its cache."""
    path = f"{store}/cut/{layout}"
    make(replicas[0], path, layout, [12, 10], [5, 4])
    document = f"{replicas[0].url}/v1/metadata/{path}"
    for rows, columns in ((7, 10), (12, 3), (1, 1)):
        httpx.put(f"{replicas[0].url}/v1/slice/{path}", content="9", headers={"Content-Type": "application/json"})
        assert (read(replicas[1], path) == 9).all()
        assert httpx.patch(document, json={"shape": [rows, columns]}).status_code == 200
        assert httpx.patch(document, json={"shape": [12, 10]}).status_code == 200

        expected = np.zeros((12, 10), "<i4")
        expected[:rows, :columns] = 9
        for found in (read(replicas[1], path), read(replicas[0], path), read_with_zarr(replicas[1], path)):
            np.testing.assert_array_equal(found, expected)
