"""The HTTP transport against odd servers and odd requests."""

from __future__ import annotations

import gzip
import json
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import urllib3
from pydantic import ByteSize

from hyperslab import RemoteGroup
from hyperslab.asgi import create_app
from hyperslab.client import HTTPTransport, Response, Transport
from hyperslab.client.transport import BROKEN_CONNECTION
from hyperslab.settings import Settings, StoreSettings
from tests.client.raw_server import Peer, RawServer, answering, once, raw_server
from tests.server import served

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
Make = Callable[..., Transport]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes transports, which are closed with the test."""
    made: list[Transport] = []

    def make_one(**options: float) -> Transport:
        made.append(HTTPTransport(**options))  # type: ignore[arg-type]
        return made[-1]

    yield make_one
    for transport in made:
        transport.close()


def ask(transport: Transport, url: str, method: str = "GET", **headers: str) -> Response:
    return transport.request(method, url, headers=headers, body=None)


def get(transport: Transport, url: str, method: str = "GET") -> bytes:
    """The body, read piece by piece."""
    response = ask(transport, url, method)
    try:
        return read_pieces(response)
    finally:
        response.close()


@pytest.mark.parametrize("through_a_proxy", [False, True])
def test_who_leaves_a_handshake_or_a_proxy_has_broken_a_connection(through_a_proxy: bool) -> None:
    def leave(peer: Peer, _: RawServer) -> None:
        peer.socket.recv(1 << 16)

    with raw_server(leave) as server:
        transport = HTTPTransport(proxy=server.url if through_a_proxy else None)
        with pytest.raises(BROKEN_CONNECTION, match=r"proxy" if through_a_proxy else r"(?i)eof"):
            ask(transport, "http://example.org/" if through_a_proxy else server.url.replace("http:", "https:"))


def read_pieces(response: Response, size: int = 3) -> bytes:
    whole, buffer = b"", memoryview(bytearray(size))
    while count := response.readinto(buffer):
        whole += buffer[:count]
    return whole


# --- answers -------------------------------------------------------------------------------------------------------


def test_a_body_is_read_whole_or_in_pieces(make: Make) -> None:
    with raw_server(answering(OK)) as server:
        transport = make()

        assert get(transport, server.url + "/") == b"hello"
        response = ask(transport, server.url + "/")
        assert response.status == 200
        assert response.read() == b"hello"
        assert response.read() == b""
        response.close()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_compressed_body_that_nobody_asked_for_is_unpacked(make: Make) -> None:
    body = gzip.compress(b"hello" * 100)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    with raw_server(answering(head + body)) as server:
        transport = make(connections=1)
        response = ask(transport, server.url + "/")

        assert response.read() == b"hello" * 100
        response.close()
        assert get(transport, server.url + "/") == b"hello" * 100
        assert server.requests[0].headers["Accept-Encoding"] == "identity"
        assert server.connections == 1


def test_redirects_are_the_callers_business(make: Make) -> None:
    answer = b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n"
    with raw_server(answering(answer)) as server:
        response = ask(make(), server.url + "/here")
        response.close()

        assert (response.status, response.headers["Location"]) == (302, "/there")
        assert len(server.requests) == 1


# --- what breaks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        CHUNKED + b"5\r\nhello\r\n",
        CHUNKED + b"5\r\nhel",
        CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    ],
    ids=lambda answer: repr(answer[-20:]),
)
def test_a_broken_answer_is_a_broken_connection(make: Make, answer: bytes) -> None:
    with raw_server(once(answer)) as server:
        transport = make(connections=1)

        for _ in range(2):  # the second time shows that no connection was lost
            with pytest.raises(BROKEN_CONNECTION):
                get(transport, server.url + "/")
        assert server.connections == 2


def test_what_came_before_the_break_is_handed_out(make: Make) -> None:
    with raw_server(once(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello")) as server:
        response = ask(make(), server.url + "/")
        buffer = memoryview(bytearray(9))

        assert response.readinto(buffer) == 5
        assert bytes(buffer[:5]) == b"hello"
        with pytest.raises(BROKEN_CONNECTION):
            response.readinto(buffer[5:])
        response.close()


@pytest.mark.parametrize("beginning", [b"", OK[:20], OK[:-2]])
def test_a_server_that_stalls_runs_into_the_read_timeout(make: Make, beginning: bytes) -> None:
    def stall(peer: Peer, _: RawServer) -> None:
        peer.receive()
        peer.send(beginning)
        peer.receive()  # until the client leaves

    with raw_server(stall) as server:
        transport = make(read_timeout=0.05)
        with pytest.raises(urllib3.exceptions.TimeoutError):
            get(transport, server.url + "/")
        transport.close()


def test_a_server_that_is_not_there_is_named(make: Make) -> None:
    with pytest.raises(urllib3.exceptions.NewConnectionError, match=r"127\.0\.0\.1.*refused"):
        get(make(), "http://127.0.0.1:9/")
    with pytest.raises(urllib3.exceptions.NameResolutionError, match=r"nowhere\.invalid"):
        get(make(), "http://nowhere.invalid/")


# --- connections ---------------------------------------------------------------------------------------------------


def test_an_unread_body_costs_the_connection_and_nothing_else(make: Make) -> None:
    with raw_server(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n" + bytes(500_000))) as server:
        transport = make(connections=1)
        for _ in range(3):
            response = ask(transport, server.url + "/")
            assert response.readinto(memoryview(bytearray(10)))
            response.close()
            response.close()

        assert server.connections == 3


def test_who_wants_more_connections_than_there_are_waits(make: Make) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def count(peer: Peer, _: RawServer) -> None:
        nonlocal running, most
        while peer.receive() is not None:
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.005)
            with lock:
                running -= 1
            peer.send(OK)

    with raw_server(count) as server, ThreadPoolExecutor(8) as threads:
        transport = make(connections=2)
        bodies = list(threads.map(lambda _: get(transport, server.url + "/"), range(30)))
        transport.close()

    assert bodies == [b"hello"] * 30
    assert most <= 2
    assert server.connections <= 2


FORK = """
import os, sys
from hyperslab import RemoteGroup
from hyperslab.asgi import create_app
from hyperslab.client import HTTPTransport
transport = HTTPTransport(connections=1)
def get():
    response = transport.request("GET", sys.argv[1], headers={}, body=None)
    body = response.read()
    response.close()
    return body
assert get() == b"hello"
child = os.fork()
for _ in range(20):
    assert get() == b"hello"
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_has_connections_of_its_own() -> None:
    with raw_server(answering(OK)) as server:
        subprocess.run([sys.executable, "-c", FORK, server.url + "/"], check=True, timeout=280)

        assert server.connections == 2


def test_a_transport_can_be_pickled() -> None:
    transport = pickle.loads(pickle.dumps(HTTPTransport(connections=3, read_timeout=70, pool_options={"retries": 0})))

    with raw_server(answering(OK)) as server:
        assert get(transport, server.url + "/") == b"hello"
        transport.close()


# --- requests ------------------------------------------------------------------------------------------------------


def test_proxies_of_the_environment_are_not_asked(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    with raw_server(answering(OK)) as server:
        assert get(make(), server.url + "/") == b"hello"


def test_a_proxy_that_is_named_is_asked() -> None:
    with raw_server(answering(OK)) as proxy:
        transport = HTTPTransport(proxy=proxy.url)
        assert get(transport, "http://nowhere.invalid/x") == b"hello"
        transport.close()

    assert proxy.requests[0].line == "GET http://nowhere.invalid/x HTTP/1.1"


@pytest.mark.parametrize("size", [0, 1, 60_000, 70_000, 20_000_000])
@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_an_upload_arrives_whole(make: Make, size: int, kind: Callable[[bytes], bytes | memoryview]) -> None:
    body = (b"0123456789" * (size // 10 + 1))[:size]
    with raw_server(answering(OK)) as server:
        transport = make(connections=1)
        for _ in range(2):
            response = transport.request("PUT", server.url + "/", headers={}, body=kind(body))
            assert response.read() == b"hello"
            response.close()

    assert [request.body == body for request in server.requests] == [True, True]
    assert server.requests[0].headers["Content-Length"] == str(size)
    assert server.connections == 1


def test_a_server_that_limits_uploads_says_so_and_goes_on(make: Make, tmp_path: Path) -> None:
    settings = Settings(
        stores={"store": StoreSettings(url=str(tmp_path), writable=True)}, max_upload_bytes=ByteSize(1 << 20)
    )
    headers = {"Content-Type": "application/octet-stream"}
    with served(create_app(settings)) as url, RemoteGroup(f"{url}/v1/metadata/store") as group:
        group.create_array("a", (16 << 20,), "u1", chunks=(16 << 20,))
        for _ in range(2):
            response = make(connections=1).request(
                "PUT", f"{url}/v1/slice/store/a", headers=headers, body=bytes(16 << 20)
            )
            assert (response.status, json.loads(response.read())["code"]) == (413, "too-large")
            response.close()
