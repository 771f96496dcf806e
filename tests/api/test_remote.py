"""Stores in which each request takes milliseconds: what can be asked for at once is, and no more than that."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import numpy as np
import pytest
import zarr

from tests.api.support import Running, request, running
from tests.arrays.support import zarr_array

VALUES = np.arange(60 * 50, dtype="<i4").reshape(60, 50)
DOCUMENTS = 4
"""Keys whose versions together are that of an array."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    zarr_array(tmp_path, VALUES, (20, 25))
    return tmp_path


@pytest.fixture(params=[0, 1 << 24], ids=["no cache", "cache"])
def remote(folder: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    """An array of 3 by 2 chunks that was opened already."""
    with running(folder, remote=True, cache_bytes=request.param) as service:
        read(service, "select=0,0")
        yield service


def read(service: Running, query: str) -> bytes:
    answer = request(service.url, f"/v1/slice/data/a?{query}")
    assert answer.status == 200, answer.body
    return answer.body


def counted(service: Running, work: Callable[[], object]) -> tuple[int, int]:
    """How many chunks are read meanwhile, and how many versions are looked up."""
    gets, looked_up = len(service.store.chunk_gets()), len(service.store.looked_up)
    work()
    return len(service.store.chunk_gets()) - gets, len(service.store.looked_up) - looked_up


def test_the_tag_is_that_of_a_look_up(remote: Running) -> None:
    for query in ("", "select=10:50,20:30", "format=npy", "format=json", "dtype=<f4", "format=csv&select=:,3"):
        target = f"/v1/slice/data/a?{query}"

        tag = request(remote.url, target).headers["etag"]

        assert request(remote.url, target, "HEAD").headers["etag"] == tag
        assert request(remote.url, target, headers={"If-None-Match": tag}).status == 304
        assert request(remote.url, target, headers={"If-Match": tag}).status == 200
        assert request(remote.url, target, headers={"Range": "bytes=4-7", "If-Range": tag}).status == 206


def test_chunks_are_fetched_without_a_look_at_their_versions(folder: Path) -> None:
    with running(folder, remote=True, cache_bytes=0) as service:
        read(service, "select=0,0")

        assert counted(service, lambda: read(service, "")) == (6, DOCUMENTS)


def test_of_cached_chunks_only_the_versions_are_asked_for(folder: Path) -> None:
    with running(folder, remote=True) as service:
        read(service, "select=:30,0")

        assert counted(service, lambda: read(service, "select=:,0")) == (1, DOCUMENTS + 2)
        assert counted(service, lambda: read(service, "select=:,0")) == (0, DOCUMENTS + 3)


def test_documents_of_a_picture_are_looked_up_while_its_chunks_are(remote: Running) -> None:
    path, looking, asking = "/v1/tile/data/a/0/0/0.png?rescale=0,", threading.Event(), threading.Event()
    assert request(remote.url, f"{path}10").status == 200

    def before_versions(keys: Sequence[str]) -> None:
        own, other = (looking, asking) if any(key.endswith(".zarray") for key in keys) else (asking, looking)
        own.set()
        assert other.wait(30)

    remote.store.before_versions = before_versions

    assert request(remote.url, f"{path}20").status == 200


@pytest.mark.parametrize("of", ["0/0/0.png", "0/0/0.npy", "info.json", "legend.png"])
def test_a_picture_that_was_replaced_since_is_drawn_as_it_is_now(remote: Running, folder: Path, of: str) -> None:
    path = f"/v1/tile/data/a/{of}"
    before = request(remote.url, path)
    shutil.rmtree(folder / "a")
    zarr_array(folder, np.arange(40 * 70, dtype="<u2").reshape(40, 70) * 3, (20, 25))

    after = request(remote.url, path)

    with running(folder) as local:
        expected = request(local.url, path)
    assert (before.status, after.status, expected.status) == (200, 200, 200)
    assert before.body != after.body or of == "legend.png"
    assert after.body.replace(remote.url.encode(), b"") == expected.body.replace(local.url.encode(), b"")


def test_documents_are_looked_up_while_chunks_are_fetched(remote: Running) -> None:
    looking, fetching = threading.Event(), threading.Event()

    def before_versions(keys: Sequence[str]) -> None:
        if any(key.endswith(".zarray") for key in keys):
            looking.set()
            assert fetching.wait(30)

    def before_chunk(_: str) -> None:
        fetching.set()
        assert looking.wait(30)

    remote.store.before_versions, remote.store.before_chunk = before_versions, before_chunk

    assert read(remote, "select=30:") == VALUES[30:].tobytes()
    assert fetching.is_set()


def test_what_was_written_since_is_read(remote: Running, folder: Path) -> None:
    before = request(remote.url, "/v1/slice/data/a").headers["etag"]
    zarr.open_array(str(folder / "a"), mode="r+")[:20, :25] = -1

    after = request(remote.url, "/v1/slice/data/a")

    assert after.headers["etag"] != before
    assert np.frombuffer(after.body, "<i4").reshape(60, 50)[0, 0] == -1


@pytest.mark.parametrize("shape", [(80, 50), (30, 50)], ids=["grown", "shrunk"])
def test_an_array_that_was_resized_since_has_its_new_shape(
    remote: Running, folder: Path, shape: tuple[int, int]
) -> None:
    zarr.open_array(str(folder / "a"), mode="r+").resize(shape)
    rows = min(60, shape[0])

    answer = request(remote.url, "/v1/slice/data/a")

    assert answer.headers["array-shape"] == f"[{shape[0]},{shape[1]}]"
    assert np.array_equal(np.frombuffer(answer.body, "<i4").reshape(shape)[:rows], VALUES[:rows])


def test_an_index_counts_in_the_array_as_it_is_now(remote: Running, folder: Path) -> None:
    assert request(remote.url, "/v1/slice/data/a?select=70").status == 422
    zarr.open_array(str(folder / "a"), mode="r+").resize((80, 50))
    assert request(remote.url, "/v1/slice/data/a?select=70").status == 200
    zarr.open_array(str(folder / "a"), mode="r+").resize((10, 50))
    assert request(remote.url, "/v1/slice/data/a?select=70").status == 422


def test_an_array_that_was_replaced_since_is_read_as_it_is_now(remote: Running, folder: Path) -> None:
    shutil.rmtree(folder / "a")
    zarr_array(folder, np.full((4, 4), 2.5), (2, 2))

    answer = request(remote.url, "/v1/slice/data/a")

    assert answer.headers["array-dtype"] == '"<f8"'
    assert np.frombuffer(answer.body, "<f8").tolist() == [2.5] * 16


def test_an_array_that_was_deleted_since_is_gone_and_a_group_in_its_place_is_no_array(
    remote: Running, folder: Path
) -> None:
    shutil.rmtree(folder / "a")
    assert request(remote.url, "/v1/slice/data/a").status == 404
    zarr.create_group(str(folder / "a"), zarr_format=2)
    assert request(remote.url, "/v1/slice/data/a").status == 422


def test_absent_chunks_hold_the_fill_value_and_are_in_the_tag(remote: Running, folder: Path) -> None:
    (folder / "a" / "1.1").unlink()

    answer = request(remote.url, "/v1/slice/data/a")

    assert not np.frombuffer(answer.body, "<i4").reshape(60, 50)[20:40, 25:].any()
    assert request(remote.url, "/v1/slice/data/a", "HEAD").headers["etag"] == answer.headers["etag"]


def test_what_came_with_the_data_is_remembered_where_the_operator_allows(folder: Path) -> None:
    with running(folder, remote=True, mount={"recheck": 3600.0}) as service:
        read(service, "")

        assert counted(service, lambda: read(service, "")) == (0, 0)


def test_a_large_answer_is_streamed(remote: Running, folder: Path) -> None:
    zarr.create_array(str(folder / "huge"), shape=(33 << 20,), chunks=(1 << 20,), dtype="|u1", zarr_format=2)

    assert request(remote.url, "/v1/slice/data/huge").body == bytes(33 << 20)


def test_memory_is_given_back(folder: Path) -> None:
    zarr_array(folder, np.ones((600, 1000), "<i4"), (300, 1000), name="large")
    with running(folder, remote=True, cache_bytes=0) as service:
        for _ in range(2):
            assert len(request(service.url, "/v1/slice/data/large").body) == 2_400_000
        zarr.open_array(str(folder / "large"), mode="r+").resize((500, 1000))
        assert len(request(service.url, "/v1/slice/data/large").body) == 2_000_000
        assert service.service.in_flight.room == service.service.in_flight.limit


def test_points_are_read_without_a_look_at_the_versions_of_their_chunks(folder: Path) -> None:
    body = json.dumps({"coordinates": [[0, 0], [59, 49], [30, 7], [59, 49]]}).encode()

    def points() -> httpx.Response:
        return httpx.post(f"{service.url}/v1/points/data/a", content=body)

    with running(folder, remote=True, cache_bytes=0) as service:
        answer = points()
        assert np.frombuffer(answer.content, "<i4").tolist() == [
            VALUES[0, 0],
            VALUES[59, 49],
            VALUES[30, 7],
            VALUES[59, 49],
        ]
        assert counted(service, points)[0] == 3
        assert counted(service, points) == (3, DOCUMENTS)
        before = answer.headers["etag"]
        zarr.open_array(str(folder / "a"), mode="r+")[:20, :25] = -1
        assert points().headers["etag"] != before
        after = points()
        assert np.frombuffer(after.content, "<i4")[0] == -1

    with running(folder) as service:
        assert points().headers["etag"] == after.headers["etag"]
