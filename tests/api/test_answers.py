"""Answers that are given once more are as fresh, and as well conditioned, as new ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import zarr

from hyperslab.api.options import ApiOptions
from tests.api.support import Running, running, write_array

VALUES = np.arange(100, dtype="<i4").reshape(10, 10)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    write_array(tmp_path, "a", VALUES, (5, 5))
    with running(tmp_path) as found:
        yield found


URLS = ["/v1/slice/data/a?select=0:5,0:5", "/v1/chunk/data/a/0.0", "/zarr/data/a/0.0", "/v1/slice/data/a?format=npy"]


@pytest.mark.parametrize("url", URLS)
def test_the_third_answer_equals_the_first_and_reads_nothing(server: Running, url: str) -> None:
    with httpx.Client(base_url=server.url) as client:
        first, third = client.get(url), client.get(url)
        server.store.gets.clear()
        fourth = client.get(url)

    assert server.store.gets == []
    assert third.content == fourth.content == first.content
    same = {
        name: value for name, value in fourth.headers.items() if name not in ("date", "array-chunks", "server-timing")
    }
    assert same == {name: first.headers[name] for name in same}
    if "array-chunks" in first.headers:
        assert fourth.headers["array-chunks"].endswith("bytes=0")


@pytest.mark.parametrize("url", URLS)
def test_a_write_behind_our_back_is_seen_by_the_next_request(server: Running, tmp_path: Path, url: str) -> None:
    with httpx.Client(base_url=server.url) as client:
        before = [client.get(url) for _ in range(3)][-1]
        zarr.open_array(str(tmp_path / "a"), mode="r+", zarr_format=2)[0, 0] = 99
        after = client.get(url)
        unchanged = client.get(url, headers={"If-None-Match": before.headers["etag"]})

    assert after.content != before.content
    assert after.headers["etag"] != before.headers["etag"]
    assert unchanged.status_code == 200


@pytest.mark.parametrize("url", URLS)
def test_conditions_and_ranges_work_on_what_is_kept(server: Running, url: str) -> None:
    with httpx.Client(base_url=server.url) as client:
        kept = [client.get(url) for _ in range(3)][-1]
        tag = kept.headers["etag"]

        same = client.get(url, headers={"If-None-Match": tag})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
        assert client.get(url, headers={"If-None-Match": f'"other", {tag}'}).status_code == 304
        assert client.get(url, headers={"If-None-Match": '"other"'}).content == kept.content
        assert client.get(url, headers={"If-Match": '"other"'}).status_code == 412
        part = client.get(url, headers={"Range": "bytes=2-5"})
        assert (part.status_code, part.content) == (206, kept.content[2:6])
        assert client.head(url).headers["content-length"] == str(len(kept.content))


def test_another_accept_header_is_another_answer(server: Running) -> None:
    url = "/v1/slice/data/a?select=0,0:3"
    with httpx.Client(base_url=server.url) as client:
        raw = [client.get(url) for _ in range(3)][-1]
        json = client.get(url, headers={"Accept": "application/json"})

    assert raw.content == VALUES[0, :3].tobytes()
    assert json.json() == [0, 1, 2]


def test_nothing_is_kept_where_the_operator_gives_no_memory(tmp_path: Path) -> None:
    write_array(tmp_path, "a", VALUES, (5, 5))
    options = ApiOptions(answer_cache_bytes=0)
    with running(tmp_path, options, cache_bytes=0) as server, httpx.Client(base_url=server.url) as client:
        for _ in range(3):
            server.store.gets.clear()
            client.get(URLS[0])

        assert server.store.chunk_gets() == ["a/0.0"]
