"""``/v1/slice``: numpy's answers over HTTP, with the manners of RFC 9110."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab import RemoteArray
from hyperslab.api.options import ApiOptions
from hyperslab.wire import format_selection, parse_dtype
from tests.api.conftest import CUBE
from tests.api.support import npy, running, serving, write_array


def indices(size: int) -> st.SearchStrategy[Any]:
    bound = st.none() | st.integers(-size - 3, size + 3)
    step = st.none() | st.integers(-7, 7).filter(bool)
    lists = st.lists(st.integers(-size, size - 1), max_size=4)
    return st.integers(-size, size - 1) | st.builds(slice, bound, bound, step) | lists


@given(items=st.tuples(*[indices(size) for size in CUBE.shape]), form=st.sampled_from(["raw", "npy"]))
def test_any_selection_equals_numpy(client: httpx.Client, items: tuple[Any, ...], form: str) -> None:
    expected = CUBE
    for axis, item in reversed(list(enumerate(items))):
        expected = expected[(slice(None),) * axis + (np.array(item, int) if isinstance(item, list) else item,)]

    answer = client.get(f"/v1/slice/data/cube?select={quote(format_selection(items))}&format={form}")

    assert answer.status_code == 200
    shape = tuple(json.loads(answer.headers["array-shape"]))
    dtype = parse_dtype(answer.headers["array-dtype"])
    found = npy(answer.content) if form == "npy" else np.frombuffer(answer.content, dtype).reshape(shape)
    assert found.dtype == CUBE.dtype
    assert found.shape == shape
    np.testing.assert_array_equal(found, expected)


def test_a_dtype_of_any_length_breaks_no_client(tmp_path: Path) -> None:
    """Python's client gives up on lines of 64 KiB, curl on heads of 300 KiB, and our server on heads of 64 KiB."""
    values = np.zeros(6, [(f"{'long' * 100} {i}", "<i4") for i in range(200)])
    seventh = f"{'long' * 100} 7"
    values[seventh] = np.arange(6)
    write_array(tmp_path, "a", values[:4], (2,))
    with serving(tmp_path) as found:
        url = str(found.http.base_url).rstrip("/")
        target = f"/v1/slice/data/a?select={quote('1:4')}"
        plain = http.client.HTTPConnection(url.removeprefix("http://"))
        plain.request("GET", target)
        answer = plain.getresponse()
        assert (answer.status, answer.getheader("Array-Dtype")) == (200, None)
        assert sum(len(name) + len(value) for name, value in answer.getheaders()) < 1024
        assert answer.read() == values[1:4].tobytes()
        points = json.dumps({"coordinates": [[1]]}).encode()
        plain.request("POST", "/v1/points/data/a", points, {"Content-Type": "application/json"})
        assert plain.getresponse().read() == values[1:2].tobytes()
        plain.close()
        curl = subprocess.run(["curl", "-sS", f"{url}{target}"], capture_output=True, check=True)
        assert curl.stdout == values[1:4].tobytes()

        array = RemoteArray(f"{url}/v1/metadata/data/a")
        array.append(values[4:])
        array[:1] = values[3:4]
        values[0] = values[3]
        np.testing.assert_array_equal(array[...], values)
        np.testing.assert_array_equal(array[seventh][:], [3, 1, 2, 3, 4, 5])
        field = httpx.get(f"{url}/v1/slice/data/a", params={"field": seventh})
        assert field.headers["Array-Dtype"] == '"<i4"'


def test_numbers_too_large_for_the_dtype_asked_for_become_infinite(tmp_path: Path) -> None:
    write_array(tmp_path, "a", np.array([1e300, -1e300, 1]), (2,))

    with running(tmp_path) as found:
        values = np.frombuffer(httpx.get(f"{found.url}/v1/slice/data/a?dtype=%3Cf4").content, "<f4")

    assert values.tolist() == [np.inf, -np.inf, 1]


def test_server_timing_and_array_chunks_tell_a_cold_read_from_a_warm_one(example_store: Path) -> None:
    with running(example_store) as found, httpx.Client(base_url=found.url) as fresh:
        cold = fresh.get("/v1/slice/data/cube?select=0")
        warm = fresh.get("/v1/slice/data/cube?select=0")

    assert cold.headers["array-chunks"].startswith("touched=6, cached=0, bytes=")
    assert not cold.headers["array-chunks"].endswith("bytes=0")
    assert {"plan", "fetch", "decode"} <= {part.split(";")[0] for part in cold.headers["server-timing"].split(", ")}
    assert warm.headers["array-chunks"] == "touched=6, cached=6, bytes=0"


@pytest.mark.parametrize("form", ["npy", "csv"])
def test_head_is_get_without_a_body_and_reads_no_chunk(example_store: Path, form: str) -> None:
    target = f"/v1/slice/data/cube?select=3,:,5&format={form}"
    with running(example_store) as found, httpx.Client(base_url=found.url) as fresh:
        head = fresh.head(target)
        reads = found.store.chunk_gets()
        get = fresh.get(target)

    unknown = {"content-length"} if form in ("json", "csv") else set()
    varying = {"date", "server-timing", "array-chunks", *unknown}
    assert head.status_code == 200
    assert {k: v for k, v in head.headers.items() if k not in varying} == {
        k: v for k, v in get.headers.items() if k not in varying
    }
    assert reads == []
    assert head.content == b""


def test_a_304_reads_and_decodes_no_chunk(example_store: Path) -> None:
    target = "/v1/slice/data/cube?select=3&format=npy"
    with running(example_store) as found, httpx.Client(base_url=found.url) as fresh:
        etag = fresh.head(target).headers["etag"]
        answer = fresh.get(target, headers={"If-None-Match": f'"other", {etag}'})

        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
        assert answer.headers["cache-control"] == "no-cache, no-transform"
        assert found.store.chunk_gets() == []
        assert found.service.cache.stats().entries == 0


def test_the_tag_changes_with_what_is_asked_for_and_with_what_is_stored(tmp_path: Path) -> None:
    values = write_array(tmp_path, "a", np.arange(20, dtype="<i4"), (5,))
    with running(tmp_path) as found, httpx.Client(base_url=found.url) as fresh:

        def tag(query: str) -> str:
            return str(fresh.head(f"/v1/slice/data/a?{query}").headers["etag"])

        before = {
            query: tag(query)
            for query in ("select=0:5", "select=5:10", "select=0:5&format=npy", "select=0:5&format=json")
        }
        again = tag("select=0:5")
        (tmp_path / "a" / "0").write_bytes((tmp_path / "a" / "1").read_bytes())
        after = {query: tag(query) for query in before}
        body = fresh.get("/v1/slice/data/a?select=0:5&format=json").json()

    assert len(set(before.values())) == 4
    assert again == before["select=0:5"]
    assert after["select=5:10"] == before["select=5:10"]
    assert after["select=0:5"] != before["select=0:5"]
    assert body == values[5:10].tolist()


@pytest.mark.parametrize("form", ["raw", "npy", "json", "csv"])
def test_ranges_are_cut_from_computed_bytes(client: httpx.Client, form: str) -> None:
    target = f"/v1/slice/data/cube?select=0,3:19:2,::3&format={form}"
    whole = client.get(target)
    for spec, part in {"0-9": np.s_[:10], "100-": np.s_[100:], "-33": np.s_[-33:], "127-200": np.s_[127:201]}.items():
        found = client.get(target, headers={"Range": f"bytes={spec}", "If-Range": whole.headers["etag"]})

        assert (found.status_code, found.content) == (206, whole.content[part])
        assert found.headers["content-range"].endswith(f"/{len(whole.content)}")
        assert found.headers["etag"] == whole.headers["etag"]


@given(st.data())
def test_any_range_of_a_large_slice_is_read_in_small_slabs(tiny_slabs: httpx.Client, data: st.DataObject) -> None:
    whole = CUBE[::-1, 3:].tobytes()
    start = data.draw(st.integers(0, len(whole) - 1))
    stop = data.draw(st.integers(start + 1, len(whole)))

    answer = tiny_slabs.get("/v1/slice/data/cube?select=::-1,3:", headers={"Range": f"bytes={start}-{stop - 1}"})

    assert answer.status_code == 206
    assert answer.content == whole[start:stop]


@pytest.fixture(scope="module")
def tiny_slabs(example_store: Path) -> Iterator[httpx.Client]:
    """Nothing is cached and a slab holds a few rows, so that every answer is a stream of many."""
    with running(example_store, cache_bytes=0, slab_bytes=500) as found, httpx.Client(base_url=found.url) as fresh:
        yield fresh


@pytest.mark.parametrize("fixture", ["client", "tiny_slabs"])
def test_several_ranges_come_as_multipart(request: pytest.FixtureRequest, fixture: str) -> None:
    asked: httpx.Client = request.getfixturevalue(fixture)
    whole = npy_bytes = asked.get("/v1/slice/data/cube?format=npy").content

    answer = asked.get("/v1/slice/data/cube?format=npy", headers={"Range": "bytes=0-99,5000-5999,-10"})

    assert answer.status_code == 206
    assert answer.headers["content-length"] == str(len(answer.content))
    message = message_from_bytes(f"Content-Type: {answer.headers['content-type']}\r\n\r\n".encode() + answer.content)
    parts: Any = message.get_payload()
    assert [part.get_payload(decode=True) for part in parts] == [whole[:100], whole[5000:6000], npy_bytes[-10:]]
    assert [part["Content-Type"] for part in parts] == ["application/x-npy"] * 3


def test_an_answer_over_a_cap_is_refused_with_a_split_that_fits(example_store: Path) -> None:
    options = ApiOptions(max_response_bytes=10_000, max_json_bytes=2_000)
    with running(example_store, options) as found, httpx.Client(base_url=found.url) as fresh:
        refused = fresh.get("/v1/slice/data/cube?select=2:18,::2&format=npy")
        as_json = fresh.get("/v1/slice/data/cube?select=0&format=json")
        assert found.store.chunk_gets() == []
        parts = [
            np.frombuffer(fresh.get(f"/v1/slice/data/cube?select={quote(box)}").content, "<u2")
            for box in refused.json()["boxes"]
        ]

    assert (refused.status_code, refused.json()["code"]) == (413, "too-large")
    assert (refused.json()["limit"], refused.json()["requested"]) == (10_000, CUBE[2:18, ::2].nbytes)
    assert as_json.json()["limit"] == 2_000
    assert sum(part.nbytes for part in parts) == CUBE[2:18, ::2].nbytes
    assert all(part.nbytes <= 10_000 for part in parts)
