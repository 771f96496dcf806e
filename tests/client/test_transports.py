"""The HTTP transport against odd servers and odd requests."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
import urllib3
from hypothesis import given, settings
from hypothesis import strategies as st
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


def test_what_is_no_tls_is_not_asked_again() -> None:
    def answer(peer: Peer, _: RawServer) -> None:
        peer.socket.recv(1 << 16)
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with raw_server(answer) as server, pytest.raises(urllib3.exceptions.SSLError):
        ask(HTTPTransport(), server.url.replace("http:", "https:"))


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


def test_headers_have_no_case_and_repeated_ones_are_joined(make: Make) -> None:
    head = b'HTTP/1.1 200 OK\r\neTaG: "x"\r\nVary: Accept\r\nvary: Origin\r\nX-Name: b\xe9\r\nContent-Length: 0\r\n\r\n'
    with raw_server(answering(head)) as server:
        headers = ask(make(), server.url + "/").headers

    assert headers["ETAG"] == headers.get("etag") == '"x"'
    assert headers["Vary"] == "Accept, Origin"
    assert headers["x-name"] == "bé"
    assert "Content-length" in headers
    assert headers.get("Content-Encoding") is None
    assert headers.get("Content-Encoding", "none") == "none"


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (CHUNKED + b"3;name=value\r\nhel\r\n2\r\nlo\r\n0\r\nDigest: x\r\n\r\n", b"hello"),
        (CHUNKED + b"0\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 5\r\n\r\n', b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"hello"),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
    ],
)
def test_the_connection_goes_on_where_the_body_ends(make: Make, answer: bytes, body: bytes) -> None:
    with raw_server(answering(answer)) as server:
        transport = make(connections=1)

        assert [get(transport, server.url + "/") for _ in range(3)] == [body] * 3
        assert server.connections == 1


def test_what_follows_a_chunked_body_is_no_header(make: Make) -> None:
    answer = (
        CHUNKED.replace(b"\r\n\r\n", b'\r\nETag: "good"\r\n\r\n') + b'5\r\nhello\r\n0\r\nETag: "bad"\r\nX: y\r\n\r\n'
    )
    with raw_server(answering(answer)) as server:
        response = ask(make(), server.url + "/")

        assert response.read() == b"hello"
        assert response.headers["ETag"] == '"good"'
        assert "X" not in response.headers


def test_an_answer_to_head_has_no_body(make: Make) -> None:
    with raw_server(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", OK)) as server:
        transport = make(connections=1)

        assert get(transport, server.url + "/", "HEAD") == b""
        assert get(transport, server.url + "/") == b"hello"
        assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nConnection: X, Close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ],
)
def test_a_body_may_end_with_its_connection(make: Make, answer: bytes) -> None:
    with raw_server(once(answer)) as server:
        transport = make(connections=1)

        assert [get(transport, server.url + "/") for _ in range(3)] == [b"hello"] * 3
        assert server.connections == 3


@settings(max_examples=25, deadline=None)
@given(body=st.binary(max_size=300), cuts=st.lists(st.integers(1, 400), max_size=6), chunk=st.integers(0, 80))
def test_packets_and_chunks_may_be_cut_anywhere(body: bytes, cuts: list[int], chunk: int) -> None:
    if chunk:
        parts = [body[i : i + chunk] for i in range(0, len(body), chunk)]
        message = CHUNKED + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    else:
        message = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    edges = [0, *sorted(cuts), len(message)]
    pieces = [message[a:b] for a, b in pairwise(edges)]
    with raw_server(once(*pieces)) as server:
        transport = HTTPTransport()
        assert get(transport, server.url + "/") == body
        transport.close()


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


def test_a_server_that_does_not_listen_runs_into_the_connect_timeout(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        with socket.create_connection(address), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(address)  # now the queue is full
            with pytest.raises(urllib3.exceptions.ConnectTimeoutError):
                get(make(connect_timeout=0.05), f"http://127.0.0.1:{address[1]}/")


# --- connections ---------------------------------------------------------------------------------------------------


def test_a_connection_that_the_server_closed_meanwhile_is_not_used(make: Make) -> None:
    with raw_server(once(OK)) as server:
        transport = make(connections=1)
        for expected in range(1, 4):
            assert get(transport, server.url + "/") == b"hello"
            assert server.connections == expected
            time.sleep(0.02)  # the server's FIN arrives


def test_bytes_behind_an_answer_are_no_answer_to_the_next_request(make: Make) -> None:
    with raw_server(answering(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", OK)) as server:
        transport = make(connections=1)

        assert get(transport, server.url + "/") == b"hello"
        time.sleep(0.02)
        assert get(transport, server.url + "/") == b"hello"


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


def test_a_closed_transport_opens_new_connections(make: Make) -> None:
    with raw_server(answering(OK)) as server:
        transport = make()
        for _ in range(2):
            assert get(transport, server.url + "/") == b"hello"
            transport.close()

        assert server.connections == 2


def test_many_servers_are_talked_to_by_turns(make: Make) -> None:
    from contextlib import ExitStack

    with ExitStack() as stack:
        servers = [stack.enter_context(raw_server(answering(OK))) for _ in range(12)]
        transport = make()
        for server in servers * 2:
            assert get(transport, server.url + "/") == b"hello"
        transport.close()


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
        subprocess.run([sys.executable, "-c", FORK, server.url + "/"], check=True, timeout=60)

        assert server.connections == 2


def test_a_transport_can_be_pickled() -> None:
    transport = pickle.loads(pickle.dumps(HTTPTransport(connections=3, read_timeout=7, pool_options={"retries": 0})))

    with raw_server(answering(OK)) as server:
        assert get(transport, server.url + "/") == b"hello"
        transport.close()


# --- requests ------------------------------------------------------------------------------------------------------


def test_a_request_says_what_it_is(make: Make) -> None:
    with raw_server(answering(OK)) as server:
        transport = make()
        ask(transport, server.url + "/v1/slice/a%20b?select=0:2,%5B1%5D&x=(~)", Accept="text/plain").close()
        (request,) = server.requests

    assert request.line == "GET /v1/slice/a%20b?select=0:2,%5B1%5D&x=(~) HTTP/1.1"
    assert request.headers["Host"] == server.url.removeprefix("http://")
    assert request.headers["Accept"] == "text/plain"
    assert "Content-Length" not in request.headers


@pytest.mark.parametrize(
    ("written", "sent"),
    [("/a/../b", "/b"), ("/ä?x=[1]", "/%C3%A4?x=%5B1%5D"), ("/a b%2fc", "/a%20b%2Fc"), ("/a#part", "/a"), ("", "/")],
)
def test_a_url_that_is_not_in_its_normal_form_is_sent_in_it(make: Make, written: str, sent: str) -> None:
    with raw_server(answering(OK)) as server:
        assert get(make(), server.url + written) == b"hello"

    assert server.requests[0].line == f"GET {sent} HTTP/1.1"


def test_an_ipv6_address_is_a_host(make: Make) -> None:
    if not socket.has_ipv6 or not os.path.exists("/proc/net/if_inet6"):  # noqa: PTH110
        pytest.skip("no IPv6 here")
    with raw_server(answering(OK), "::1") as server:
        assert get(make(), server.url + "/") == b"hello"

    assert server.requests[0].headers["Host"] == server.url.removeprefix("http://")


@pytest.mark.parametrize("value", ["x\r\nEvil: 1", "x\nEvil: 1", "x\rEvil: 1"])
def test_a_header_value_cannot_become_another_header(make: Make, value: str) -> None:
    with raw_server(answering(OK)) as server:
        transport = make(connections=1)
        with pytest.raises(ValueError, match="header"):
            transport.request("GET", server.url + "/", headers={"X": value}, body=None)

        assert get(transport, server.url + "/") == b"hello"
        assert "Evil" not in server.requests[0].headers


@pytest.mark.parametrize("name", ["Evil: 1\r\nX", "Evil\n", ""])
def test_a_header_name_cannot_become_another_header(make: Make, name: str) -> None:
    with raw_server(answering(OK)) as server, pytest.raises(ValueError, match="header"):
        make().request("GET", server.url + "/", headers={name: "1"}, body=None)


def test_a_url_cannot_become_a_header(make: Make) -> None:
    with raw_server(answering(OK)) as server:
        get(make(), server.url + "/x HTTP/1.1\r\nEvil: 1\r\n\r\n")

    assert server.requests[0].line == "GET /x%20HTTP/1.1%0D%0AEvil:%201%0D%0A%0D%0A HTTP/1.1"
    assert "Evil" not in server.requests[0].headers


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


def test_a_request_that_may_have_a_body_says_that_it_has_none(make: Make) -> None:
    with raw_server(answering(OK)) as server:
        transport = make()
        for method in ("PUT", "POST", "PATCH", "DELETE"):
            ask(transport, server.url + "/", method).close()
        transport.close()

    lengths = [request.headers.get("Content-Length") for request in server.requests]
    assert lengths == ["0", "0", "0", None]


REFUSED = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge"


def test_an_answer_that_comes_before_all_is_sent_is_read(make: Make) -> None:
    def refuse(peer: Peer, _: RawServer) -> None:
        peer.receive_head()
        peer.send(REFUSED)
        while peer.socket.recv(1 << 20):
            pass

    with raw_server(refuse) as server:
        transport = make(connections=1)
        for _ in range(2):
            response = transport.request("PUT", server.url + "/", headers={}, body=bytes(30_000_000))
            assert (response.status, response.read()) == (413, b"large")
            response.close()


def test_interim_answers_are_passed_over(make: Make) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    with raw_server(answering(interim + OK)) as server:
        transport = make(connections=1)
        assert [get(transport, server.url + "/") for _ in range(2)] == [b"hello"] * 2
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


def test_a_method_cannot_become_a_request(make: Make) -> None:
    with raw_server(answering(OK)) as server, pytest.raises(ValueError, match="Method"):
        ask(make(), server.url + "/", "GET / HTTP/1.1\r\nEvil: 1\r\n\r\nGET")
