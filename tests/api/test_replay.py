"""Cached responses are replayed, and nobody can tell but by the clock; and how the server treats connections."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import zarr
from starlette.types import Receive, Scope, Send

from hyperslab.api.app import create_app
from hyperslab.api.middleware.replay import WHO
from hyperslab.api.options import ApiOptions
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.storage import StoreConfig, open_store
from tests.api.support import RawAnswer, Running, dial, exchange, request, running, write_array
from tests.server import running_server, served

SLICE = "/v1/slice/data/a?select=0:5,0:5"
VALUES = np.arange(100, dtype="<i4").reshape(10, 10)
LARGE = np.arange(40_000, dtype="<i4").reshape(200, 200)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_array(tmp_path, "a", VALUES, (5, 5))
    write_array(tmp_path, "large", LARGE, (200, 200))
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[Running]:
    with running(folder) as found:
        yield found


def warmed(url: str, target: str, **headers: str) -> RawAnswer:
    """The response, which is cached from now on."""
    return [request(url, target, headers=headers) for _ in range(3)][-1]


def stable(answer: RawAnswer) -> tuple[int, dict[str, str], bytes]:
    """An answer without what differs from one to the next."""
    moving = ("date", "server-timing", "array-chunks")
    return answer.status, {name: value for name, value in answer.headers.items() if name not in moving}, answer.body


def asking(target: str, *lines: str, body: str = "") -> bytes:
    return "\r\n".join([f"GET {target} HTTP/1.1", "Host: x", *lines, "", body]).encode()


def test_what_is_cached_of_a_store_that_fails_is_a_problem(folder: Path) -> None:
    targets = (SLICE, "/v1/chunk/data/a/0.0", "/zarr/data/a/0.0", "/zarr/data/a/.zarray")
    headers: list[dict[str, str]] = [{}, {"If-None-Match": '"x"'}, {"Connection": "close"}]
    with running_server({"data": folder}) as server:
        expected = [warmed(server.url, target) for target in targets]
        gone = folder.rename(folder.with_name("gone"))
        answers = [request(server.url, target, headers=more) for target in targets for more in headers]
        gone.rename(folder)
        again = [request(server.url, target) for target in targets]

    assert {answer.status for answer in expected} == {200}
    for answer in answers:
        assert (answer.status, answer.headers["content-type"]) == (502, "application/problem+json")
        assert "access-control-allow-origin" in answer.headers
    assert list(map(stable, again)) == list(map(stable, expected))


def test_several_lines_of_accept_are_one_list_to_what_is_cached(folder: Path) -> None:
    with running_server({"data": folder}) as server:
        asked = asking(SLICE, "Accept: text/csv", "Accept: application/json;q=0.5", "Connection: keep-alive")
        for _ in range(3):
            both = exchange(server.url, asked.replace(b"keep-alive", b"close"))
            with dial(server.url) as connection:
                connection.sendall(asked)
                assert b"text/csv" in connection.recv(1 << 16)
        assert b"text/csv" in both

        alone = request(server.url, SLICE, headers={"Accept": "application/json;q=0.5"})

        assert (alone.headers["content-type"], json.loads(alone.body)) == ("application/json", VALUES[:5, :5].tolist())


URLS = [SLICE, "/v1/chunk/data/a/0.0", "/zarr/data/a/0.0", "/v1/slice/data/a?format=npy"]


@pytest.mark.parametrize("url", URLS)
def test_a_replayed_response_equals_the_first_and_reads_nothing(server: Running, url: str) -> None:
    with httpx.Client(base_url=server.url) as client:
        first, third = client.get(url), client.get(url)
        server.store.gets.clear()
        fourth = client.get(url)

    assert server.store.gets == []
    assert third.content == fourth.content == first.content
    moving = ("date", "array-chunks", "server-timing")
    assert all(value == first.headers[name] for name, value in fourth.headers.items() if name not in moving)
    if "array-chunks" in first.headers:
        assert fourth.headers["array-chunks"].endswith("bytes=0")


@pytest.mark.parametrize("url", URLS)
def test_a_write_behind_our_back_is_seen_by_the_next_request(server: Running, folder: Path, url: str) -> None:
    with httpx.Client(base_url=server.url) as client:
        before = [client.get(url) for _ in range(3)][-1]
        zarr.open_array(str(folder / "a"), mode="r+", zarr_format=2)[0, 0] = 99
        after = client.get(url)
        unchanged = client.get(url, headers={"If-None-Match": before.headers["etag"]})

    assert after.content != before.content
    assert after.headers["etag"] != before.headers["etag"]
    assert unchanged.status_code == 200


@pytest.mark.parametrize("url", URLS)
def test_conditions_and_ranges_work_on_what_is_cached(server: Running, url: str) -> None:
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


def test_tokens_are_asked_for_also_where_the_response_is_cached(folder: Path) -> None:
    with running(folder, ApiOptions(read_tokens=("secret",))) as found:
        kept = warmed(found.url, SLICE, Authorization="Bearer secret")
        without = request(found.url, SLICE)
        wrong = request(found.url, SLICE, headers={"Authorization": "Bearer guess"})
        again = request(found.url, SLICE, headers={"Authorization": "Bearer secret"})

    assert (kept.status, without.status, wrong.status, again.status) == (200, 401, 401, 200)
    assert again.body == kept.body


def test_metrics_count_replayed_responses(server: Running) -> None:
    tag = warmed(server.url, SLICE).headers["etag"]
    request(server.url, SLICE, headers={"If-None-Match": tag})
    text = request(server.url, "/metrics").body.decode()

    assert 'hyperslab_requests_total{method="GET",route="slice",status="200"} 3.0' in text
    assert 'hyperslab_requests_total{method="GET",route="slice",status="304"} 1.0' in text
    assert re.search(r'hyperslab_sent_bytes_total\{route="slice"\} 300.0', text)
    held = re.search(r"^hyperslab_answer_cache_bytes (\S+)$", text, re.MULTILINE)
    assert held is not None
    assert float(held[1]) > 100 + 2048 + 512  # with the objects of Python for each key


def test_a_304_is_replayed_though_its_body_was_never_sent(server: Running, folder: Path) -> None:
    with running(folder) as other:
        tags = {target: request(other.url, target).headers["etag"] for target in (SLICE, "/zarr/data/a/1.1")}
    for target, tag in tags.items():
        first, *others = (request(server.url, target, headers={"If-None-Match": tag}) for _ in range(3))
        assert first.status == 304
        assert list(map(stable, others)) == [stable(first)] * 2
        assert request(server.url, target).body == request(server.url, target).body
    assert "hyperslab_answer_cache_hits_total 8.0" in request(server.url, "/metrics").body.decode()

    zarr.open_array(folder / "a", mode="r+")[...] = VALUES + 1
    for target, tag in tags.items():
        assert request(server.url, target, headers={"If-None-Match": tag}).status == 200


def test_the_access_log_has_a_line_for_each_answer_whichever_way_it_took(folder: Path) -> None:
    with running_server({"data": folder}, access_log=True, log_level="info") as server:
        for _ in range(5):
            assert request(server.url, SLICE).status == 200
        lines = [line for line in server.log.splitlines() if SLICE in line]

    assert len(lines) == 5
    assert all(line.endswith(f'"GET {SLICE} HTTP/1.1" 200 OK') for line in lines)


def test_pipelined_requests_are_answered_in_order_whichever_way_each_takes(server: Running) -> None:
    warmed(server.url, SLICE)
    others = ["/v1/slice/data/a?select=9,9", SLICE, "/v1/slice/data/none", SLICE]
    received = exchange(server.url, b"".join(map(asking, [SLICE, *others])) + asking(SLICE, "Connection: close"))

    statuses = re.findall(rb"HTTP/1\.1 (\d+)", received)
    assert statuses == [b"200", b"200", b"200", b"404", b"200", b"200"]
    assert received.count(VALUES[:5, :5].tobytes()) == 4
    assert received.endswith(VALUES[:5, :5].tobytes())


def test_a_body_that_a_get_has_is_no_request(server: Running) -> None:
    warmed(server.url, SLICE)
    received = exchange(
        server.url, asking(SLICE, "Content-Length: 5", body="GET /") + asking(SLICE, "Connection: close")
    )

    assert re.findall(rb"HTTP/1\.1 (\d+)", received) == [b"200", b"200"]


def test_a_client_that_takes_nothing_is_not_written_to_without_end(server: Running) -> None:
    target = "/v1/slice/data/large"
    body = warmed(server.url, target).body
    count = 600
    with dial(server.url) as connection:
        connection.sendall(asking(target) * count)
        metrics = request(server.url, "/metrics").body.decode()
        found = re.search(r'requests_total\{method="GET",route="slice",status="200"\} (\S+)', metrics)
        assert found is not None
        received = len(connection.recv(1 << 20))

        assert float(found[1]) < count // 4  # the buffers of two sockets hold some dozens
        expected = count * len(body)
        while received < expected:
            received += len(connection.recv(1 << 20))


def test_an_idle_connection_is_closed_and_one_that_asks_again_in_time_is_kept(folder: Path) -> None:
    store = open_store(StoreConfig(name="data", url=str(folder), writable=True))
    service = build([MountedStore("data", store, writable=True)])
    body, asked = VALUES.tobytes(), asking(SLICE)
    put = f"PUT /v1/slice/data/a HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with served(create_app(service), timeout_keep_alive=2) as url:
        warmed(url, SLICE)
        with dial(url) as asking_again, dial(url) as uploading:
            uploading.sendall(asked + put + body[:10])
            assert receive(uploading, 1)[0][0] == 200
            for _ in range(3):
                asking_again.sendall(asked)
                assert receive(asking_again, 1)[0][0] == 200
                time.sleep(0.9)  # 2.7 seconds in all
            uploading.sendall(body[10:])

            assert receive(uploading, 1)[0][0] == 204
            assert asking_again.recv(1) == b""


def receive(connection: socket.socket, count: int) -> list[tuple[int, bytes]]:
    """Status and body of the next answers."""
    stream, found = connection.makefile("rb"), []
    for _ in range(count):
        status = int(stream.readline().split()[1])
        headers = dict(line.rstrip().lower().split(b": ", 1) for line in iter(stream.readline, b"\r\n"))
        found.append((status, stream.read(int(headers.get(b"content-length", 0)) if status == 200 else 0)))
    return found


def test_a_response_is_replayed_in_front_of_the_router_and_behind_all_else(folder: Path) -> None:
    service, called = build([MountedStore("data", open_store(StoreConfig(name="data", url=str(folder))))]), []
    app = create_app(service, ApiOptions(cors_origins=("http://a",), read_tokens=("secret",)))
    router = app.router.middleware_stack

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        called.append(scope["type"])
        await router(scope, receive, send)

    app.router.middleware_stack = counted
    with served(app) as url:
        sent = {"Authorization": "Bearer secret"}
        first = request(url, SLICE, headers=sent)
        tag = {"If-None-Match": first.headers["etag"]}
        ours, theirs = (request(url, SLICE, headers={**sent, "Origin": f"http://{host}"}) for host in "ab")
        unchanged = request(url, SLICE, headers={**sent, **tag})
        refused = request(url, SLICE, headers=tag)

    assert called == ["lifespan", "http"]
    assert [answer.status for answer in (ours, theirs, unchanged, refused)] == [200, 200, 304, 401]
    assert (ours.body, theirs.body, unchanged.body) == (first.body, first.body, b"")
    assert ours.headers["access-control-allow-origin"] == "http://a"
    assert "access-control-allow-origin" not in theirs.headers
    assert {"date", "vary"} <= theirs.headers.keys()


def test_who_asks_is_part_of_what_is_stored(folder: Path) -> None:
    """Where a middleware says who it is; so far, all who may read see the same."""
    service, called = build([MountedStore("data", open_store(StoreConfig(name="data", url=str(folder))))]), []
    app = create_app(service)
    router = app.router.middleware_stack

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        called.append(scope.get(WHO))
        await router(scope, receive, send)

    async def named(scope: Scope, receive: Receive, send: Send) -> None:
        who = dict(scope.get("headers", ())).get(b"x-who")
        await app(scope if who is None else {**scope, WHO: who}, receive, send)

    app.router.middleware_stack = counted
    with served(named) as url:
        for who in ("a", "b", "a", "b"):
            assert request(url, SLICE, headers={"X-Who": who}).body == VALUES[:5, :5].tobytes()

    assert called == [None, b"a", b"b"]


def test_the_path_that_a_proxy_cuts_off_is_not_part_of_what_is_cached(folder: Path) -> None:
    with running(folder, root_path="/api") as found:
        kept = warmed(found.url, SLICE)
        elsewhere = request(found.url, f"/api{SLICE}")

    assert kept.status == 200
    assert elsewhere.status == 404


def test_what_is_not_in_the_cache_is_missed_once(server: Running) -> None:
    warmed(server.url, "/v1/slice/data/a?select=0,0")  # the array is known then, and one of its chunks
    before = server.service.cache.stats()
    request(server.url, "/v1/slice/data/a?select=9,9")
    request(server.url, "/v1/slice/data/a?select=9,8")
    after = server.service.cache.stats()

    assert (after.misses - before.misses, after.hits - before.hits) == (1, 1)


def damage(chunk: Path) -> None:
    """Break a file so that its size and time do not tell."""
    before = chunk.stat()
    chunk.write_bytes(b"\0" * before.st_size)
    os.utime(chunk, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_damage_that_is_met_at_once_is_a_problem_and_no_broken_connection(bare: Running, folder: Path) -> None:
    warmed(bare.url, SLICE)
    damage(folder / "a" / "0.0")

    bare.store.gets.clear()
    answer = request(bare.url, "/v1/slice/data/a?select=1,1")

    assert (answer.status, answer.headers["content-type"]) == (502, "application/problem+json")
    assert bare.store.chunk_gets() == ["a/0.0"]  # though it was asked for before


@pytest.fixture
def bare(folder: Path) -> Iterator[Running]:
    """A service that has no memory for bodies or chunks."""
    with running(folder, ApiOptions(answer_cache_bytes=0), cache_bytes=0) as found:
        yield found
