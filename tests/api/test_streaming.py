"""Answers larger than a slab: bounded, resumable, cut where reading fails, given up where the client leaves."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import zarr

from hyperslab.api.app import create_app
from hyperslab.api.options import ApiOptions
from hyperslab.errors import StoreError
from tests.api.support import Running, open_request, request, running, write_array
from tests.server import running_server, wait_until

VALUES = np.random.default_rng(7).integers(0, 2**16, (64, 128, 512), dtype="<u2")
"""8 MiB in 64 chunks of 128 KiB, one a plane."""
SLAB = 256 << 10
TARGET = "/v1/slice/data/a"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("large")
    write_array(found, "a", VALUES, (1, 128, 512), compressors=None)
    return found


@pytest.fixture
def large(folder: Path) -> Iterator[Running]:
    """Nothing is cached, two chunks a slab."""
    with running(folder, cache_bytes=0, slab_bytes=SLAB) as found:
        yield found


def fail_at(key: str) -> Callable[[str], None]:
    """A store that cannot answer for ``key``, once."""
    left = [key]

    def before_chunk(asked: str) -> None:
        if asked in left:
            left.remove(asked)
            raise StoreError("data", asked, "the disk is on fire")

    return before_chunk


def metric(running_: Running, name: str) -> float:
    lines = request(running_.url, "/metrics").body.decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{"))


def test_a_failure_before_the_first_slab_is_a_problem(large: Running) -> None:
    large.store.before_chunk = fail_at("a/0.0.0")

    answer = httpx.get(large.url + TARGET)

    assert (answer.status_code, answer.json()["code"]) == (502, "store-failed")
    assert answer.json()["key"] == "a/0.0.0"


def test_a_failure_after_the_first_slab_cuts_the_connection(large: Running) -> None:
    large.store.before_chunk = fail_at("a/40.0.0")

    with httpx.stream("GET", large.url + TARGET) as answer:
        received = bytearray()
        with pytest.raises(httpx.RemoteProtocolError):
            received.extend(b"".join(answer.iter_raw()))

    assert answer.status_code == 200
    assert answer.headers["content-length"] == str(VALUES.nbytes)
    assert metric(large, "hyperslab_cut_total") == 1


def test_curl_resumes_a_cut_download(large: Running, tmp_path: Path) -> None:
    large.store.before_chunk = fail_at("a/40.0.0")
    out = tmp_path / "a.npy"
    command = ["curl", "-sS", "-C", "-", "-o", str(out), f"{large.url}{TARGET}?format=npy"]

    first = subprocess.run(command, capture_output=True, check=False)
    cut_at = out.stat().st_size
    second = subprocess.run(command, capture_output=True, check=False)

    assert first.returncode == 18, first.stderr  # "partial file"
    assert 0 < cut_at < VALUES.nbytes
    assert second.returncode == 0, second.stderr
    np.testing.assert_array_equal(np.load(out), VALUES)


def test_a_resume_reads_only_what_is_missing(large: Running) -> None:
    start = 60 * VALUES[0].nbytes + 5

    answer = httpx.get(large.url + TARGET, headers={"Range": f"bytes={start}-"})

    assert answer.content == VALUES.tobytes()[start:]
    assert set(large.store.chunk_gets()) == {f"a/{i}.0.0" for i in range(60, 64)}


def test_the_work_ends_when_the_client_leaves_in_the_middle(large: Running) -> None:
    with open_request(large.url, TARGET) as connection:
        connection.recv(1000)

    wait_until(lambda: metric(large, "hyperslab_abandoned_total") == 1)
    assert len(large.store.chunk_gets()) < 64
    assert large.service.in_flight.held == 0


@pytest.mark.parametrize(
    "asked",
    [
        "HEAD /v1/slice/data/vast",
        "GET /v1/slice/data/vast",
        "GET /v1/plan/data/vast",
        "HEAD /v1/tile/data/plane/0/0/0.png?rescale=0,1",
        "GET /v1/tile/data/plane/0/0/0.npy",
        "GET /v1/tile/data/plane/thumbnail.png?rescale=0,1",
        "GET /v1/tile/data/plane_files/8/0_0.png?rescale=0,1",
        "GET /v1/tile/iiif/data/plane/full/max/0/default.png?rescale=0,1",
    ],
)
def test_the_work_ends_when_the_client_leaves_while_versions_are_looked_up(tmp_path: Path, asked: str) -> None:
    """So many chunks take minutes, those of a picture a while; nobody waits for them any more."""
    zarr.create_array(tmp_path / "vast", shape=(2**24,), chunks=(1,), dtype="<u1", zarr_format=2)
    zarr.create_array(tmp_path / "plane", shape=(256, 256), chunks=(1, 1), dtype="<u1", zarr_format=2)
    method, target = asked.split()
    with running(tmp_path) as found:
        with open_request(found.url, target, method=method):
            wait_until(lambda: len(found.store.looked_up) > 1_000)

        wait_until(lambda: metric(found, "hyperslab_abandoned_total") == 1)


@contextmanager
def held(found: Running) -> Iterator[threading.Event]:
    """Whoever reads a chunk waits for the end of the context; the event tells that somebody does."""
    reached, go_on = threading.Event(), threading.Event()

    def before_chunk(_: str) -> None:
        reached.set()
        go_on.wait(30)

    found.store.before_chunk = before_chunk
    try:
        yield reached
    finally:
        go_on.set()


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("picture")
    write_array(folder, "a", np.arange(1 << 20, dtype="<u4").reshape(1024, 1024), (32, 32))
    return folder


@pytest.mark.parametrize(
    "asked",
    [
        "slice/data/a?format=npy",
        *(
            f"tile/data/a/{name}"
            for name in ("info.json", "histogram.json", "0/0/0.png", "thumbnail.png?rescale=minmax")
        ),
    ],
)
def test_the_work_ends_when_the_client_leaves_before_the_first_byte(picture: Path, asked: str) -> None:
    """What the brightness of a picture is told from is read for nobody else, either."""
    with running(picture, cache_bytes=0) as found:
        with held(found) as reached:
            with open_request(found.url, f"/v1/{asked}"):
                assert reached.wait(30)
            metric(found, "hyperslab_requests_total")  # the loop has seen the connection close
            time.sleep(0.1)

        wait_until(lambda: metric(found, "hyperslab_abandoned_total") == 1)
        assert len(found.store.chunk_gets()) < 512


def test_no_more_is_read_than_the_client_takes(large: Running) -> None:
    """A client that does not read holds a few slabs and not the whole answer."""
    with open_request(large.url, TARGET + "?select=:,:,::-1"):
        wait_until(lambda: len(large.store.chunk_gets()) > 4)
        before = -1
        while before != (before := len(large.store.chunk_gets())):
            time.sleep(0.3)

        assert before < 64


def test_others_are_answered_while_the_store_hangs(large: Running) -> None:
    with held(large) as reached, open_request(large.url, TARGET):
        assert reached.wait(30)
        assert request(large.url, "/healthz").status == 200
        assert request(large.url, "/v1/metadata/data/a").status == 200


def test_all_memory_in_use_is_503_and_says_when_to_come_back(folder: Path) -> None:
    options = ApiOptions(queue_seconds=0.05)
    with running(folder, options, cache_bytes=0, slab_bytes=1 << 20, bytes_in_flight=4 << 20) as found:
        with open_request(found.url, TARGET + "?select=::1"), open_request(found.url, TARGET):
            wait_until(lambda: found.service.in_flight.held > 0)
            refused = request(found.url, TARGET)
            small = request(found.url, TARGET + "?select=0,0")

        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert small.status == 200
        wait_until(lambda: found.service.in_flight.held == 0)


def test_slabs_are_not_overwritten_while_a_server_still_holds_them(folder: Path) -> None:
    """This transport keeps every piece until the end, which no flow control forbids."""
    with running(folder, cache_bytes=0, slab_bytes=SLAB) as found:
        app = create_app(found.service)

        async def get() -> bytes:
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return (await client.get(TARGET)).content

        assert asyncio.run(get()) == VALUES.tobytes()


def test_many_slow_readers_get_what_is_theirs(large: Running) -> None:
    """Small receive buffers and small bites: the transport holds on to slabs for as long as it may."""

    def read(plane: int) -> bytes:
        with open_request(large.url, f"{TARGET}?select={plane}:,::2", receive_buffer=4096) as connection:
            return read_slowly(connection)

    planes = (40, 44, 48, 52)
    with ThreadPoolExecutor(len(planes)) as pool:
        found = list(pool.map(read, planes))

    assert found == [VALUES[plane:, ::2].tobytes() for plane in planes]


def test_a_client_that_reads_nothing_is_disconnected_and_its_memory_released(tmp_path: Path) -> None:
    values = np.zeros((64, 1 << 20), np.uint8)
    write_array(tmp_path, "wide", values, (1, 1 << 20))
    target = "/v1/slice/data/wide"
    with (
        running_server({"data": tmp_path}, cache_bytes=0, idle_seconds=3, bytes_in_flight=40 << 20) as server,
        open_request(server.url, target, receive_buffer=4096) as connection,
    ):
        received = len(connection.recv(1000))
        assert received
        wait_until(lambda: httpx.get(f"{server.url}{target}?select=:32").status_code == 200)
        received += count_to_the_end(connection)

    assert received < values.nbytes


def test_who_takes_its_time_gets_all(folder: Path) -> None:
    """Each piece in time, all of them together not."""
    with (
        running(folder, ApiOptions(idle_seconds=2), cache_bytes=0, slab_bytes=SLAB) as found,
        open_request(found.url, TARGET, receive_buffer=1 << 16) as connection,
    ):
        began, received = time.monotonic(), bytearray()
        while not received.endswith(VALUES[-1].tobytes()) and (piece := connection.recv(1 << 16)):
            received += piece
            ahead = 2.5 * len(received) / VALUES.nbytes - (time.monotonic() - began)
            time.sleep(max(0.0, ahead))  # at an even pace

    assert received.endswith(VALUES.tobytes())
    assert time.monotonic() - began > 2


@pytest.mark.parametrize("query", ["", "?format=json", "?format=csv&select=:,0"])
def test_an_answer_counts_as_memory_until_the_client_has_taken_it(tmp_path: Path, query: str) -> None:
    """Also where it was made as a whole, and of the last piece of it."""
    write_array(tmp_path, "a", np.full((6, 1, 1 << 20), 100, np.uint8), (1, 1, 1 << 20))
    target = f"/v1/slice/data/a{query}"
    with running_server({"data": tmp_path}, cache_bytes=0, bytes_in_flight=8 << 20, queue_seconds=0.2) as server:
        with open_request(server.url, target, receive_buffer=4096) as connection:
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
            assert httpx.get(f"{server.url}{target}").status_code == 503
        wait_until(lambda: httpx.get(f"{server.url}{target}").status_code == 200)


def test_points_count_as_memory_until_the_client_has_taken_them(tmp_path: Path) -> None:
    write_array(tmp_path, "a", np.full(10, 1.2345678901234567e-300), (10,))
    body = json.dumps({"coordinates": [[1]] * 400_000}).encode()
    request = f"POST /v1/points/data/a?format=json HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    sizes: dict[str, Any] = {"bytes_in_flight": 64 << 20, "queue_seconds": 0.2}
    with running_server({"data": tmp_path}, **sizes) as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(request.encode() + body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        held = re.search(r"hyperslab_in_flight_bytes ([0-9.e+]+)", httpx.get(f"{server.url}/metrics").text)

    assert held is not None
    assert float(held[1]) > 400_000 * 8


def count_to_the_end(connection: socket.socket) -> int:
    """How many bytes still come: what the system had taken of an answer before it was given up."""
    count = 0
    try:
        while piece := connection.recv(1 << 20):
            count += len(piece)
    except ConnectionResetError:
        pass
    return count


def read_slowly(connection: socket.socket) -> bytes:
    """The body of an answer, a few thousand bytes at a time."""
    received = bytearray()
    while b"\r\n\r\n" not in received:
        received += connection.recv(3000)
    head, _, rest = bytes(received).partition(b"\r\n\r\n")
    body = bytearray(rest)
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
    while len(body) < size:
        body += connection.recv(3000)
        time.sleep(0.0001)
    return bytes(body)


@pytest.mark.parametrize("times", [1, 1000], ids=["once", "all the time"])
def test_a_stored_key_that_is_written_while_it_is_read_is_read_again(tmp_path: Path, times: int) -> None:
    write_array(tmp_path, "a", VALUES[0], VALUES[0].shape, compressors=None)
    file, left = tmp_path / "a" / "0.0", [times]

    def rewrite(_: str) -> None:
        if left[0]:
            left[0] -= 1
            file.with_name("new").write_bytes(bytes([left[0] % 256]) * VALUES[0].nbytes)
            file.with_name("new").replace(file)

    with running(tmp_path) as found:
        found.store.before_chunk = rewrite
        answer = request(found.url, "/zarr/data/a/0.0", headers={"Range": "bytes=8-15", "If-Match": "*"})

    if times == 1:
        assert (answer.status, answer.body) == (206, bytes(8))
    else:
        assert (answer.status, json.loads(answer.body)["code"]) == (503, "changed-while-read")
