"""What the lean transport does beyond what every transport does: odd servers, and uploads that are not wanted."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
from pydantic import ByteSize

from hyperslab import RemoteGroup
from hyperslab.asgi import create_app
from hyperslab.client import HTTPTransport
from hyperslab.client.transport import BROKEN_CONNECTION
from hyperslab.settings import Settings, StoreSettings
from tests.client.raw_server import Peer, RawServer, answering, once, raw_server
from tests.client.test_transports import CHUNKED, OK, REFUSED, ask, get
from tests.server import served


@pytest.fixture
def lean() -> Iterator[HTTPTransport]:
    transport = HTTPTransport(connections=1)
    yield transport
    transport.close()


def test_plain_http_needs_nothing_of_urllib3s_pools(lean: HTTPTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib3, "PoolManager", None)

    with raw_server(answering(OK)) as server:
        assert get(lean, server.url + "/") == b"hello"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
        b"\r\n\r\n",
    ],
    ids=lambda answer: repr(answer[9:50]),
)
def test_an_answer_that_can_be_read_in_two_ways_is_refused(lean: HTTPTransport, answer: bytes) -> None:
    with raw_server(once(answer)) as server, pytest.raises(BROKEN_CONNECTION):
        get(lean, server.url + "/")


def test_a_server_cannot_go_on_for_ever_behind_a_body(lean: HTTPTransport) -> None:
    with raw_server(once(CHUNKED + b"5\r\nhello\r\n0\r\n", *[b"X: " + bytes([120]) * 60_000] * 4)) as server:
        response = ask(lean, server.url + "/")
        with pytest.raises(BROKEN_CONNECTION, match="without any"):
            response.read()
        response.close()


def test_interim_answers_are_passed_over(lean: HTTPTransport) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    with raw_server(answering(interim + OK)) as server:
        assert [get(lean, server.url + "/") for _ in range(2)] == [b"hello"] * 2
        assert server.connections == 1


def test_an_upload_stops_where_the_answer_comes_first(lean: HTTPTransport) -> None:
    done = threading.Event()

    def refuse(peer: Peer, _: RawServer) -> None:
        peer.receive_head()
        peer.send(REFUSED.replace(b"Connection: close\r\n", b""))
        done.wait(10)  # and never reads the body

    with raw_server(refuse) as server:
        for _ in range(2):
            response = lean.request("PUT", server.url + "/", headers={}, body=bytes(50_000_000))
            assert (response.status, response.read()) == (413, b"large")
            response.close()
        done.set()
        assert server.connections == 2  # what is left of the first body must not come before the second request


def test_an_interim_answer_does_not_stop_an_upload(lean: HTTPTransport) -> None:
    def encourage(peer: Peer, _: RawServer) -> None:
        peer.receive_head()
        peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        received = len(peer.kept)
        while received < 30_000_000:
            received += len(peer.socket.recv(1 << 20))
        peer.send(OK)

    with raw_server(encourage) as server:
        response = lean.request("PUT", server.url + "/", headers={}, body=bytes(30_000_000))
        assert response.read() == b"hello"
        response.close()


def test_an_upload_that_nobody_takes_runs_into_the_timeout() -> None:
    done = threading.Event()

    def wait(*_: object) -> None:
        done.wait(10)

    with raw_server(wait) as server:
        with pytest.raises(urllib3.exceptions.TimeoutError):
            HTTPTransport(read_timeout=0.1).request("PUT", server.url + "/", headers={}, body=bytes(50_000_000))
        done.set()


def test_a_header_that_frames_the_message_is_left_to_urllib3(lean: HTTPTransport) -> None:
    with raw_server(answering(OK)) as server:
        ask(lean, server.url + "/", Host="elsewhere").close()

    assert server.requests[0].headers["Host"] == "elsewhere"


def test_small_packets_do_not_wait(lean: HTTPTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []
    create = socket.create_connection

    def note(*args: object) -> socket.socket:
        opened.append(create(*args))  # type: ignore[arg-type]
        return opened[-1]

    monkeypatch.setattr(socket, "create_connection", note)
    with raw_server(answering(OK)) as server:
        get(lean, server.url + "/")

        assert opened[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_without_httptools_everything_goes_through_urllib3() -> None:
    program = """
import sys
sys.modules["httptools"] = None
from hyperslab.client import HTTPTransport
response = HTTPTransport().request("GET", sys.argv[1], headers={}, body=None)
assert response.read() == b"hello"
response.close()
"""
    with raw_server(answering(OK)) as server:
        subprocess.run([sys.executable, "-c", program, server.url + "/"], check=True, timeout=60)

        assert len(server.requests) == 1


def test_a_server_that_limits_uploads_says_so_and_goes_on(lean: HTTPTransport, tmp_path: Path) -> None:
    settings = Settings(
        stores={"store": StoreSettings(url=str(tmp_path), writable=True)}, max_upload_bytes=ByteSize(1 << 20)
    )
    headers = {"Content-Type": "application/octet-stream"}
    with served(create_app(settings)) as url, RemoteGroup(f"{url}/v1/metadata/store") as group:
        group.create_array("a", (16 << 20,), "u1", chunks=(16 << 20,))
        for _ in range(2):
            response = lean.request("PUT", f"{url}/v1/slice/store/a", headers=headers, body=bytes(16 << 20))
            assert (response.status, json.loads(response.read())["code"]) == (413, "too-large")
            response.close()


def test_a_method_cannot_become_a_request(lean: HTTPTransport) -> None:
    with raw_server(answering(OK)) as server, pytest.raises(ValueError, match="Method"):
        ask(lean, server.url + "/", "GET / HTTP/1.1\r\nEvil: 1\r\n\r\nGET")
