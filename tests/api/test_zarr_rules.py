"""The sixteen rules that real Zarr clients need, each with the client that breaks without it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.api.support import Running, request, running, write_array

ORIGIN = {"Origin": "https://viewer.example"}
VARYING = {"date", "server-timing", "array-chunks"}


def steady(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in VARYING}


@pytest.mark.parametrize(
    "target",
    [
        *("/zarr/data/cube/9.9.9", "/zarr/data/sparse/0.0", "/zarr/data/cube/.zgroup"),
        *("/zarr/data/nothing/.zarray", "/zarr/data/nothing/here/at/all", "/zarr/nostore/.zgroup"),
        *("/zarr/data/cube/.zmetadata", "/zarr/data/group/floats/0", "/zarr/data/group/floats"),
    ],
)
def test_01_a_missing_key_is_404_and_nothing_else(example: Running, target: str) -> None:
    """Every client but two fails on 403, 500, HTML or a redirect."""
    accept = {"Accept": "application/json"}

    answer = request(example.url, target, headers=accept)

    assert answer.status == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert json.loads(answer.body)["code"] in ("key-not-found", "node-not-found")


@pytest.mark.parametrize(
    "target",
    [
        "/zarr/data/.zattrs",
        "/zarr/data/cube/.zarray",
        "/zarr/data/cube/0.0.0",
        "/zarr/data/.zmetadata",
        "/zarr/data/",
        "/zarr/data/cube/8.8.8",
    ],
)
def test_02_head_has_the_status_and_the_headers_of_get(example: Running, target: str) -> None:
    """zarr.js, TensorStore and obstore ask with HEAD first."""
    get, head = request(example.url, target), request(example.url, target, "HEAD")

    assert head.status == get.status
    assert steady(head.headers) == steady(get.headers)
    assert head.body == b""


@pytest.mark.parametrize(
    ("spec", "part"),
    [("5-9", slice(5, 10)), ("5-", slice(5, None)), ("-7", slice(-7, None)), ("0-99999999", slice(None))],
)
def test_04_ranges_are_cut_from_stored_keys(example: Running, example_store: Path, spec: str, part: slice) -> None:
    """Without, zarrita and fsspec silently hand back the whole object."""
    stored = (example_store / "cube" / "0.0.0").read_bytes()

    answer = request(example.url, "/zarr/data/cube/0.0.0", headers={"Range": f"bytes={spec}"})

    start, stop, _ = part.indices(len(stored))
    assert answer.status == 206
    assert answer.body == stored[part]
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(stored)}"
    assert answer.headers["accept-ranges"] == "bytes"
    beyond = request(example.url, "/zarr/data/cube/0.0.0", headers={"Range": f"bytes={len(stored)}-"})
    assert (beyond.status, beyond.headers["content-range"]) == (416, f"bytes */{len(stored)}")


@pytest.mark.parametrize("target", ["/zarr/data/cube/0.0.0", "/zarr/data/cube/.zarray", "/zarr/data/.zmetadata"])
def test_05_nothing_is_ever_content_encoded(example: Running, target: str) -> None:
    """zarrita's ranges do not fit the lengths of compressed answers."""
    plain = request(example.url, target)

    answer = request(example.url, target, headers={"Accept-Encoding": "gzip, deflate, br, zstd"})

    assert "content-encoding" not in answer.headers
    assert answer.body == plain.body


@pytest.mark.parametrize(
    "target", ["/zarr/data/cube/0.0.0", "/zarr/data/cube/.zarray", "/zarr/data/.zmetadata", "/zarr/data/"]
)
def test_06_tags_are_strong_and_spare_the_body(example: Running, target: str) -> None:
    """TensorStore throws weak tags away and then never revalidates."""
    first = request(example.url, target)
    etag = first.headers["etag"]

    again = request(example.url, target, headers={"If-None-Match": etag})
    other = request(example.url, target, headers={"If-Match": '"other"'})

    assert re.fullmatch(r'"[\x21\x23-\x7e]+"', etag)
    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == etag
    assert other.status == 412
    assert other.headers["etag"] == etag
    assert parsedate_to_datetime(first.headers["date"]).timestamp() <= time.time() + 1


def test_06_a_stored_key_tells_when_it_was_written(example: Running, example_store: Path) -> None:
    written = (example_store / "cube" / "0.0.0").stat().st_mtime

    answer = request(example.url, "/zarr/data/cube/0.0.0")
    again = request(
        example.url, "/zarr/data/cube/0.0.0", headers={"If-Modified-Since": answer.headers["last-modified"]}
    )

    assert parsedate_to_datetime(answer.headers["last-modified"]).timestamp() == int(written)
    assert again.status == 304


@pytest.mark.parametrize(("target", "status"), [("/zarr/data/cube/0.0.0", 200), ("/zarr/data/cube/7.7.7", 404)])
def test_07_answers_carry_cors(example: Running, target: str, status: int) -> None:
    """To a browser an answer without is a network error, and a missing chunk breaks the picture. That others have the
    header, too, `tests.api.test_corpus` demands of each."""
    answer = request(example.url, target, headers=ORIGIN)

    assert answer.status == status
    assert answer.headers["access-control-allow-origin"] == "*"
    exposed = {name.strip() for name in answer.headers["access-control-expose-headers"].split(",")}
    assert exposed >= {"Content-Length", "Content-Range", "Content-Encoding", "ETag", "Accept-Ranges", "Last-Modified"}


def test_07_a_preflight_is_answered_with_the_methods_there_are_and_the_headers_asked_for(example: Running) -> None:
    asked = {**ORIGIN, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "range, x-token"}

    answer = request(example.url, "/zarr/data/cube/0.0.0", "OPTIONS", asked)

    assert answer.status == 204
    assert answer.headers["access-control-allow-headers"] == "range, x-token"
    methods = answer.headers["access-control-allow-methods"].split(", ")
    assert methods == ["GET", "HEAD", "PUT", "DELETE", "PROPFIND", "OPTIONS"]


@pytest.mark.parametrize(
    ("name", "target"),
    [("image.zarr", "image.zarr/.zgroup"), ("my group", "my%20group/.zgroup?token=a%ZZb&token=c&x")],
)
def test_08_14_a_node_keeps_its_name_and_the_query_is_not_looked_at(tmp_path: Path, name: str, target: str) -> None:
    """itk-vtk-viewer takes nothing else than ``.zarr`` for Zarr; zarrita has a fixture with escapes in its name, and
    copies its query onto every key."""
    (tmp_path / name).mkdir()
    (tmp_path / name / ".zgroup").write_text('{"zarr_format": 2}')

    with running(tmp_path) as found:
        assert request(found.url, f"/zarr/data/{target}").status == 200


@pytest.mark.parametrize(
    "target", ["/zarr/data", "/zarr/data/group", "/zarr", "/v1/metadata/data/", "/v1/slice/data/cube/?select=0,0,0"]
)
def test_09_nothing_is_ever_redirected(example: Running, target: str) -> None:
    """neuroglancer takes a redirect to a directory for a missing key."""
    assert request(example.url, target).status == 200


def test_11_every_group_has_consolidated_metadata(example: Running) -> None:
    """Without, xarray shows an empty dataset and says nothing."""
    root = json.loads(request(example.url, "/zarr/data/.zmetadata").body)
    below = json.loads(request(example.url, "/zarr/data/group/.zmetadata").body)

    assert root["zarr_consolidated_format"] == 1
    expected = {".zgroup", ".zattrs", "cube/.zarray", "group/.zgroup", "group/floats/.zarray"}
    assert expected <= root["metadata"].keys()
    assert root["left_out"] == ["table/.zarray"], "zarr-python 3 would not open the group"
    assert root["metadata"]["cube/.zarray"] == json.loads(request(example.url, "/zarr/data/cube/.zarray").body)
    assert set(below["metadata"]) == {".zgroup", "floats/.zarray"}


def test_11_stored_consolidated_metadata_is_passed_through(tmp_path: Path) -> None:
    stored = b'{"metadata": {".zgroup": {"zarr_format": 2}},  "zarr_consolidated_format": 1}'
    (tmp_path / ".zgroup").write_text('{"zarr_format": 2}')
    (tmp_path / ".zmetadata").write_bytes(stored)

    with running(tmp_path) as found:
        assert request(found.url, "/zarr/data/.zmetadata").body == stored


@pytest.mark.parametrize("accept", ["text/html,application/xhtml+xml", "*/*", None])
def test_12_the_path_of_a_group_is_an_index_of_links(example: Running, accept: str | None) -> None:
    """fsspec and GDAL list directories that way; GDAL wants the title."""
    answer = request(example.url, "/zarr/data/", headers={} if accept is None else {"Accept": accept})

    page = answer.body.decode()
    assert answer.headers["content-type"].startswith("text/html")
    assert "<title>Index of /zarr/data</title>" in page
    links = re.findall(r'<a href="([^"]+)"', page)
    assert {".zgroup", ".zattrs", ".zmetadata", "cube/", "group/", "table/"} <= set(links)


def test_12_an_index_counts_no_chunks_and_its_links_hold_without_a_slash_at_the_end(example: Running) -> None:
    page = request(example.url, "/zarr/data/cube/").body.decode()

    assert re.findall(r'<a href="([^"]+)"', page) == [".zarray"]
    assert "Chunks are not listed here" in page, "those who copy by it would copy fill values"
    assert '<base href="/zarr/data/group/">' in request(example.url, "/zarr/data/group").body.decode()
    assert '<a href="data/"' in request(example.url, "/zarr/").body.decode()


def test_12_an_index_says_that_it_depends_on_what_is_accepted(example: Running) -> None:
    """A cache must not give it to those who want no HTML, and are told 404."""
    listed = request(example.url, "/zarr/data/")
    refused = request(example.url, "/zarr/data/", headers={"Accept": "application/json"})

    assert (listed.status, listed.headers["vary"]) == (200, "Accept")
    assert (refused.status, refused.headers["cache-control"]) == (404, "no-store")
    assert "vary" not in request(example.url, "/zarr/data/cube/.zarray").headers


def test_12_a_node_that_is_named_like_a_chunk_has_an_index_where_it_lies_in_a_group(tmp_path: Path) -> None:
    """And below an array, whatever its separator, is a chunk."""
    write_array(tmp_path, "0", np.zeros((2, 2), "|u1"), (1, 1))
    write_array(tmp_path, "0/1", np.zeros(1, "|u1"), (1,))
    with running(tmp_path) as found:
        status = {path: request(found.url, f"/zarr/data/{path}").status for path in ("0", "0/", "1", "0/1", "0/1.1.1")}
        assert status == {"0": 200, "0/": 200, "1": 404, "0/1": 404, "0/1.1.1": 404}


def test_15_metadata_passes_through_unchanged_and_is_read_leniently(example: Running, example_store: Path) -> None:
    """Python writes NaN into ``.zattrs``."""
    stored = (example_store / "empty" / ".zattrs").read_bytes()

    raw = request(example.url, "/zarr/data/empty/.zattrs")
    document = request(example.url, "/v1/metadata/data/empty")
    consolidated = request(example.url, "/zarr/data/.zmetadata")

    assert b"NaN" in stored
    assert raw.body == stored
    for made in (document.body, consolidated.body):
        json.loads(made, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert json.loads(document.body)["dimension_names"] == ["t", "x"]


def test_the_media_type_tells_metadata_from_chunks_and_a_store_that_changes_is_asked_each_time(
    example: Running,
) -> None:
    document, chunk = (request(example.url, f"/zarr/data/cube/{name}").headers for name in (".zarray", "0.0.0"))

    assert (document["content-type"], chunk["content-type"]) == ("application/json", "application/octet-stream")
    assert document["cache-control"] == chunk["cache-control"] == "no-cache, no-transform"


def test_files_that_a_listing_would_hide_are_not_served(tmp_path: Path) -> None:
    (tmp_path / ".zgroup").write_text('{"zarr_format": 2}')
    (tmp_path / ".env").write_text("SECRET=1")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("[core]")

    with running(tmp_path) as found:
        assert request(found.url, "/zarr/data/.env").status == 404
        assert request(found.url, "/zarr/data/.git/config").status == 404
        assert request(found.url, "/zarr/data/.hyperslab/x").status == 400


def test_a_key_written_by_others_is_seen_at_once(tmp_path: Path) -> None:
    (tmp_path / ".zgroup").write_text('{"zarr_format": 2}')
    with running(tmp_path) as found, httpx.Client(base_url=found.url) as client:
        before = client.get("/zarr/data/.zattrs")
        (tmp_path / ".zattrs").write_text('{"a": 1}')
        after = client.get("/zarr/data/.zattrs")
        (tmp_path / ".zattrs").write_text('{"a": 22}')
        later = client.get("/zarr/data/.zattrs", headers={"If-None-Match": after.headers["etag"]})

    assert (before.status_code, after.json(), later.json()) == (404, {"a": 1}, {"a": 22})
