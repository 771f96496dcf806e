"""``/v1/points`` with values: scattered points are written, under conditions too."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.api.support import saved, writable
from tests.arrays.support import snapshot

POINTS = "/v1/points/data/a"
WRITING = {"values": "1"}
NPY = {"Content-Type": "application/x-npy"}
CORNERS = [[0, 0], [-1, -1]]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    """A writable service with an array of 6 x 8 zeros, ``<i4``, in chunks of 4 x 4."""
    with writable(tmp_path) as found:
        found.put("/v1/metadata/data/a", json={"shape": [6, 8], "chunks": [4, 4], "dtype": "<i4"})
        yield found


def put(client: httpx.Client, points: Any, values: Any, **headers: str) -> httpx.Response:
    document = {"coordinates": points, "values": values}
    return client.post(POINTS, params=WRITING, json=document, headers=headers)


def gather(client: httpx.Client, points: Any = CORNERS) -> httpx.Response:
    return client.post(POINTS, params={"format": "json"}, json={"coordinates": points})


def test_points_are_written_as_npy_and_as_json(client: httpx.Client) -> None:
    body = saved(np.array([[0, 1], [5, 7]]), np.array([3, 4], "<i4"))

    assert client.post(POINTS, params=WRITING, content=body, headers=NPY).status_code == 204
    assert put(client, [[2, 2], [3, 3]], [5, 6]).status_code == 204
    assert put(client, [[1, 1], [1, 2]], 7).status_code == 204

    assert gather(client, [[0, 1], [5, 7], [2, 2], [3, 3], [1, 1], [1, 2], [0, 0]]).json() == [3, 4, 5, 6, 7, 7, 0]


def test_a_tag_lets_one_write_through_and_gives_the_next(client: httpx.Client) -> None:
    """Whoever has read, or written, the very points may write them; nobody else may."""
    read = gather(client).headers["etag"]

    first = put(client, CORNERS, [1, 2], **{"If-Match": read})
    stale = put(client, CORNERS, [3, 4], **{"If-Match": read})
    second = put(client, CORNERS, [5, 6], **{"If-Match": first.headers["etag"]})

    assert (first.status_code, stale.status_code, second.status_code) == (204, 412, 204)
    assert stale.json()["current"] == stale.headers["etag"] == first.headers["etag"]
    assert gather(client).json() == [5, 6]


def test_increments_under_if_match_are_never_lost(client: httpx.Client) -> None:
    def increment(_: int) -> None:
        while True:
            now = gather(client)
            values = [value + 1 for value in now.json()]
            if put(client, CORNERS, values, **{"If-Match": now.headers["etag"]}).status_code == 204:
                return

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(increment, range(12)))

    assert gather(client).json() == [12, 12]


def test_what_does_not_fit_is_refused_and_changes_no_byte(client: httpx.Client, tmp_path: Path) -> None:
    put(client, CORNERS, [1, 2])
    before = snapshot(tmp_path)
    corner = [[0, 0]]
    for points, values in ((corner, [1, 2]), (corner, [[1]]), (corner, 1.5), (corner, None), ([[0]], [1])):
        answer = put(client, points, values)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad-body"), (points, values)
    outside = put(client, [[0, 8]], [1])

    assert (outside.status_code, outside.json()["code"]) == (422, "index-out-of-range")
    assert snapshot(tmp_path) == before


def test_the_point_of_an_array_without_axes_is_read_and_written(client: httpx.Client) -> None:
    filters = [{"id": "json2"}]
    client.put("/v1/metadata/data/scalar", json={"shape": [], "dtype": "<i4"})
    client.put("/v1/metadata/data/list", json={"shape": [], "dtype": "|O", "filters": filters})
    for name, value in (("scalar", 7), ("list", [1, [2]])):
        url = f"/v1/points/data/{name}"
        written = client.post(url, params=WRITING, json={"coordinates": [[]], "values": [value]})
        read = client.post(url, params={"format": "json"}, json={"coordinates": [[]]})
        twice = client.post(url, json={"coordinates": [[], []]})

        assert written.status_code == 204
        assert read.json() == [value]
        assert (twice.status_code, twice.json()["code"]) == (400, "bad-body")
