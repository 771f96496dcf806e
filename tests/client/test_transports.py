"""The HTTP transport against odd servers and odd requests."""

from __future__ import annotations

import base64
import gzip
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ByteSize

from hyperslab import RemoteArray, RemoteGroup
from hyperslab.asgi import create_app
from hyperslab.client import HTTPTransport, Response, Transport
from hyperslab.client.transport import BROKEN_CONNECTION, Cancel
from hyperslab.errors import NodeNotFound, Unreachable
from hyperslab.settings import Settings, StoreSettings
from tests.client.conftest import Host
from tests.client.raw_server import Peer, RawServer, answering, once, raw_server
from tests.server import served

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def ask(transport: Transport, url: str) -> Response:
    return transport.request("GET", url, headers={}, body=None)


def get(url: str, **options: Any) -> bytes:
    """The body, read piece by piece over a transport with these options."""
    transport = HTTPTransport(**options)
    response = ask(transport, url)
    try:
        whole, buffer = b"", memoryview(bytearray(3))
        while count := response.readinto(buffer):
            whole += buffer[:count]
        return whole
    finally:
        response.close()
        transport.close()


class Tracked(HTTPTransport):
    """Knows which of its responses have not been closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: set[str] = set()

    def request(self, method: str, url: str, **rest: Any) -> Response:
        response = super().request(method, url, **rest)
        close = response.close
        self.open.add(url)

        def close_and_forget() -> None:
            self.open.discard(url)
            close()

        response.close = close_and_forget  # type: ignore[method-assign]
        return response


def test_responses_of_any_transport_are_closed(host: Host) -> None:
    url = host.add(np.arange(8), (4,)).url
    transport = Tracked()
    array = RemoteArray(url, transport=transport)
    array[2:7] = 1
    array.attrs["unit"] = "m"

    assert array[...].tolist() == [0, 1, 1, 1, 1, 1, 1, 7]
    with pytest.raises(NodeNotFound):
        RemoteArray(f"{url}-nowhere", transport=transport)
    assert transport.open == set()


@pytest.mark.parametrize("through_a_proxy", [False, True])
def test_who_leaves_a_handshake_or_a_proxy_has_broken_a_connection(through_a_proxy: bool) -> None:
    def leave(peer: Peer, _: RawServer) -> None:
        peer.socket.recv(1 << 16)

    with raw_server(leave) as server:
        transport = HTTPTransport(proxy=server.url if through_a_proxy else None)
        with pytest.raises(BROKEN_CONNECTION, match=r"proxy" if through_a_proxy else r"(?i)eof"):
            ask(transport, "http://example.org/" if through_a_proxy else server.url.replace("http:", "https:"))


def test_a_compressed_body_that_nobody_asked_for_is_unpacked() -> None:
    body = gzip.compress(b"hello" * 100)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    with raw_server(answering(head + body)) as server:
        assert get(server.url + "/") == b"hello" * 100
        assert server.requests[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
    ],
    ids=lambda answer: repr(answer[-20:]),
)
def test_a_broken_answer_is_a_broken_connection(answer: bytes) -> None:
    with raw_server(once(answer)) as server, pytest.raises(BROKEN_CONNECTION):
        get(server.url + "/")


def test_what_came_before_the_break_is_handed_out() -> None:
    with raw_server(once(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello")) as server:
        response = ask(HTTPTransport(), server.url + "/")
        buffer = memoryview(bytearray(9))

        assert response.readinto(buffer) == 5
        assert bytes(buffer[:5]) == b"hello"
        with pytest.raises(BROKEN_CONNECTION):
            response.readinto(buffer[5:])
        response.close()


@pytest.mark.parametrize("beginning", [b"", OK[:-2]])
def test_a_server_that_stalls_runs_into_the_read_timeout(beginning: bytes) -> None:
    def stall(peer: Peer, _: RawServer) -> None:
        peer.receive()
        peer.send(beginning)
        peer.receive()  # until the client leaves

    with raw_server(stall) as server, pytest.raises(TimeoutError):
        get(server.url + "/", read_timeout=0.05)


def test_an_unread_body_costs_the_connection_and_nothing_else() -> None:
    with raw_server(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n" + bytes(500_000))) as server:
        transport = HTTPTransport(connections=1)
        for _ in range(3):
            response = ask(transport, server.url + "/")
            assert response.readinto(memoryview(bytearray(10)))
            response.close()
            response.close()

        assert server.connections == 3


def test_who_begins_to_wait_after_a_cancellation_is_woken_too() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(60)
        cancel = Cancel()
        cancel.set()
        cancel.watch(ours)

        assert theirs.recv(1) == b""


FORK = """
import os, sys
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


@pytest.mark.parametrize("name", ["http_proxy", "all_proxy", None])
def test_a_proxy_is_named_by_an_argument_or_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    with raw_server(answering(OK)) as server:
        proxy = server.url.replace("//", "//me:p%40ss@")
        if name is not None:
            monkeypatch.setenv(name, proxy)
            monkeypatch.setenv("no_proxy", "elsewhere.invalid")
        options = {} if name else {"proxy": proxy}
        assert get("http://nowhere.invalid/x?y=1", **options) == b"hello"
        assert get(server.url + "/direct") == b"hello"  # this machine is asked directly
        for url, more in (("http://elsewhere.invalid/", {}), ("http://nowhere.invalid/", {"proxy": ""})):
            with pytest.raises(BROKEN_CONNECTION):
                get(url, **more)

    first, second = server.requests
    assert first.line == "GET http://nowhere.invalid/x?y=1 HTTP/1.1"
    assert first.headers["Host"] == "nowhere.invalid"
    assert base64.b64decode(first.headers["Proxy-Authorization"].removeprefix("Basic ")) == b"me:p@ss"
    assert (second.line, "Proxy-Authorization" in second.headers) == ("GET /direct HTTP/1.1", False)


def test_a_proxy_that_refuses_a_tunnel_is_asked_once() -> None:
    with raw_server(once(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")) as server:
        url, transport = "https://nowhere.invalid/v1/metadata/a", HTTPTransport(proxy=server.url)
        with pytest.raises(Unreachable, match=r"the proxy 127.0.0.1: .*407"):
            RemoteArray(url, transport=transport)

        assert [each.line for each in server.requests] == ["CONNECT nowhere.invalid:443 HTTP/1.1"]


def test_a_connection_that_the_server_closed_meanwhile_is_replaced() -> None:
    with raw_server(once(OK)) as server:
        transport = HTTPTransport(connections=1)
        for number in range(1, 4):
            response = ask(transport, server.url + "/")
            assert response.read() == b"hello"
            response.close()
            assert server.connections == number
            time.sleep(0.05)  # the end of the connection has come


def test_a_server_that_limits_uploads_says_so_and_goes_on(tmp_path: Path) -> None:
    store = StoreSettings(url=str(tmp_path), writable=True)
    settings = Settings(stores={"store": store}, max_upload_bytes=ByteSize(1 << 20))
    headers, body = {"Content-Type": "application/octet-stream"}, bytes(16 << 20)
    with served(create_app(settings)) as url, RemoteGroup(f"{url}/v1/metadata/store") as group:
        group.create_array("a", (16 << 20,), "u1", chunks=(16 << 20,))
        transport = HTTPTransport(connections=1)
        for _ in range(2):
            response = transport.request("PUT", f"{url}/v1/slice/store/a", headers=headers, body=body)
            assert (response.status, json.loads(response.read())["code"]) == (413, "too-large")
            response.close()
