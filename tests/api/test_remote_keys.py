"""Stored keys of a bucket: how many requests they take, and that no byte is fetched twice."""

from __future__ import annotations

import http.client
import json
import math
import random
import struct
from collections.abc import Iterator

import pytest

from hyperslab.storage import open_store
from tests.api.support import RawAnswer, request, serving
from tests.documents import LITTLE, sharding, zarr_json, zarray
from tests.faults import Before, DropHeaders, FaultProxy
from tests.s3 import S3Bucket, S3Server

MIB = 1 << 20
ARRAY = zarray([10 * MIB], [MIB], "|u1")
BIG = random.Random(0).randbytes(10 * MIB)
VALUES = {
    "a/.zarray": json.dumps(ARRAY).encode(),
    "a/0": b"0123456789",
    "a/1": b"",
    "a/2": BIG[:MIB],
    "a/3": BIG[: MIB + 1],
    "a/4": BIG,
}


class Remote:
    """A service whose store is a bucket behind a proxy."""

    def __init__(self, url: str, server: S3Server, bucket: S3Bucket, proxy: FaultProxy) -> None:
        self.url, self.proxy = url, proxy
        self._server, self._bucket = server, bucket

    def put(self, key: str, value: bytes) -> None:
        self._server.client.put_object(Bucket=self._bucket.name, Key=key, Body=value)

    def get(self, key: str, method: str = "GET", **headers: str) -> tuple[RawAnswer, list[str]]:
        """The answer for a stored key, and what the bucket was asked for it: methods with their ranges."""
        return self.ask(f"/zarr/data/{key}", method, **headers)

    def ask(self, target: str, method: str = "GET", **headers: str) -> tuple[RawAnswer, list[str]]:
        self.proxy.seen.clear()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = request(self.url, target, method, sent)
        return answer, [" ".join([seen.method, seen.headers.get("range", "")]).strip() for seen in self.proxy.seen]


@pytest.fixture(scope="module")
def service(s3_server: S3Server) -> Iterator[Remote]:
    bucket = s3_server.new_bucket()
    with FaultProxy(s3_server.url) as proxy:
        store = open_store(bucket.at(proxy.url).config(name="data", timeout=60.0, retries=0))
        with serving(store, writable=False) as service:
            found = Remote(service.url, s3_server, bucket, proxy)
            for key, value in VALUES.items():
                found.put(key, value)
            yield found


@pytest.fixture
def remote(service: Remote) -> Iterator[Remote]:
    """The service, whose bucket is put in order after each test."""
    yield service
    service.proxy.heal()
    for key in ("a/0", "a/4"):
        service.put(key, VALUES[key])


FIRST = f"GET bytes=0-{MIB - 1}"


@pytest.mark.parametrize(
    ("key", "asked"),
    [
        ("a/0", [FIRST]),
        ("a/.zarray", [FIRST]),
        ("a/2", [FIRST]),
        ("a/3", [FIRST, f"GET bytes={MIB}-{MIB}"]),
        ("a/4", [FIRST, f"GET bytes={MIB}-{9 * MIB - 1}", f"GET bytes={9 * MIB}-{10 * MIB - 1}"]),
        ("a/1", [FIRST, "HEAD"]),
    ],
)
def test_a_value_comes_by_one_request_and_a_large_one_by_ranges_that_touch(
    remote: Remote, key: str, asked: list[str]
) -> None:
    answer, found = remote.get(key)

    assert (answer.status, answer.body) == (200, VALUES[key])
    assert answer.headers["content-length"] == str(len(VALUES[key]))
    assert found == asked


def test_tag_and_date_are_those_that_looking_tells(remote: Remote) -> None:
    read, _ = remote.get("a/0")
    looked, asked = remote.get("a/0", "HEAD")

    assert asked == ["HEAD"]
    for name in ("etag", "last-modified", "content-length", "content-type", "cache-control"):
        assert read.headers[name] == looked.headers[name]


def test_a_missing_key_takes_one_request(remote: Remote) -> None:
    """The first below an array takes a look at that, too: it could be a group that has a child of this name."""
    first, _ = remote.get("a/8")
    answer, asked = remote.get("a/9")

    assert (first.status, answer.status, asked) == (404, 404, [FIRST])
    refused, asked = remote.get("b/9", accept="application/octet-stream")
    assert (refused.status, asked) == (404, [FIRST])


def test_a_copy_that_is_good_takes_one_look(remote: Remote) -> None:
    first, _ = remote.get("a/4")

    again, asked = remote.get("a/4", if_none_match=first.headers["etag"])
    refused, asked_too = remote.get("a/4", if_match='"other"')

    assert (again.status, asked) == (304, ["HEAD"])
    assert (refused.status, asked_too) == (412, ["HEAD"])


def test_a_stored_chunk_takes_one_request_beside_the_look_at_its_array(remote: Remote) -> None:
    remote.ask("/v1/metadata/data/a")

    answer, asked = remote.ask("/v1/chunk/data/a/0?format=stored")

    assert (answer.status, answer.body) == (200, VALUES["a/0"])
    assert sorted(asked) == [FIRST, "HEAD", "HEAD", "HEAD", "HEAD"]


@pytest.mark.parametrize(
    ("key", "sent", "part", "asked"),
    [
        ("a/0", "bytes=3-5", slice(3, 6), ["GET bytes=3-5"]),
        ("a/0", "bytes=3-99", slice(3, 10), ["GET bytes=3-99"]),
        ("a/0", "bytes=3-", slice(3, 10), [f"GET bytes=3-{MIB + 2}"]),
        ("a/0", "bytes=-4", slice(6, 10), ["HEAD", "GET bytes=6-9"]),
        ("a/4", "bytes=5-2097156", slice(5, 2 * MIB + 5), [f"GET bytes=5-{MIB + 4}", f"GET bytes={MIB + 5}-2097156"]),
    ],
)
def test_one_range_takes_no_look_before(remote: Remote, key: str, sent: str, part: slice, asked: list[str]) -> None:
    answer, found = remote.get(key, range=sent)

    start, stop, _ = part.indices(len(VALUES[key]))
    assert (answer.status, answer.body) == (206, VALUES[key][part])
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(VALUES[key])}"
    assert found == asked


def test_ranges_that_cannot_be_met_or_are_out_of_date_are_what_they_are_elsewhere(remote: Remote) -> None:
    tag = remote.get("a/0")[0].headers["etag"]

    beyond, _ = remote.get("a/0", range="bytes=10-")
    endless, _ = remote.get("a/0", range="bytes=99999999999999999999-")
    several, _ = remote.get("a/0", range="bytes=0-1,8-9")
    current, asked = remote.get("a/0", range="bytes=2-3", if_range=tag)
    outdated, _ = remote.get("a/0", range="bytes=2-3", if_range='"other"')
    of_nothing, _ = remote.get("a/1", range="bytes=0-5")

    for refused in (beyond, endless):
        assert (refused.status, refused.headers["content-range"]) == (416, "bytes */10")
    assert (several.status, several.headers["content-type"].partition(";")[0]) == (206, "multipart/byteranges")
    assert (current.status, current.body, asked) == (206, b"23", ["GET bytes=2-3"])
    assert (outdated.status, outdated.body) == (200, VALUES["a/0"])
    assert (of_nothing.status, of_nothing.body) == (200, b"")


def test_the_bytes_are_of_the_version_that_the_tag_stands_for(remote: Remote) -> None:
    """The bucket is written to at the moment in which the key is asked for."""
    remote.proxy.inject(Before(lambda: remote.put("a/0", b"another value")), method="GET", path="a/0")

    answer, _ = remote.get("a/0")

    assert answer.body == b"another value"
    assert answer.headers["etag"] == remote.get("a/0", "HEAD")[0].headers["etag"]


def test_two_versions_are_never_mixed(remote: Remote) -> None:
    """The bucket is written to between the beginning of a large value and the rest."""
    remote.proxy.inject(Before(lambda: None), method="GET", path="a/4")
    remote.proxy.inject(Before(lambda: remote.put("a/4", BIG[::-1])), method="GET", path="a/4")

    with pytest.raises((http.client.IncompleteRead, ConnectionError)) as cut:
        remote.get("a/4")

    if isinstance(cut.value, http.client.IncompleteRead):
        assert BIG[:MIB].startswith(cut.value.partial)


def test_a_bucket_that_knows_no_ranges_is_asked_for_the_whole_value(remote: Remote) -> None:
    remote.proxy.inject(DropHeaders(("Range",)), times=math.inf)

    small, large = remote.get("a/0")[0], remote.get("a/4")[0]

    assert (small.status, small.body) == (200, VALUES["a/0"])
    assert (large.status, large.body) == (200, BIG)


def test_documents_that_the_bucket_lacks_are_made(remote: Remote) -> None:
    answer, _ = remote.get(".zmetadata")

    assert answer.status == 200
    assert json.loads(answer.body)["metadata"]["a/.zarray"] == ARRAY


def test_a_chunk_of_a_shard_is_a_request_more_than_the_look_at_the_array(remote: Remote) -> None:
    """The first one needs the index; what is cached of it is checked by the request for the chunk itself."""
    document = zarr_json([4], [4], "uint8", codecs=[sharding([2], index=[LITTLE])])

    def shard(first: bytes) -> bytes:
        return first + b"cd" + struct.pack("<4Q", 0, 2, 2, 2)

    remote.put("s/zarr.json", json.dumps(document).encode())
    remote.put("s/c/0", shard(b"ab"))

    def of_shard(target: str) -> tuple[bytes, int]:
        answer, _ = remote.ask(target)
        return answer.body, sum("/s/c/0" in seen.path for seen in remote.proxy.seen)

    assert of_shard("/zarr2/data/s/0")[0] == b"ab"
    assert of_shard("/zarr2/data/s/1") == (b"cd", 1)
    assert of_shard("/v1/chunk/data/s/0?format=stored") == (b"ab", 1)
    remote.put("s/c/0", shard(b"AB"))
    assert of_shard("/zarr2/data/s/0")[0] == b"AB"
    assert of_shard("/zarr2/data/s/0") == (b"AB", 1)
