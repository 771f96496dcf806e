"""What is no request, and who is refused while still sending: seen on the socket of a real server."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from uvicorn.server import ServerState

from hyperslab.protocol import Protocol
from tests.api.support import dial, exchange, rest_of, write_array
from tests.server import Server, running_server

VALUES = np.arange(100, dtype="<i4").reshape(10, 10)
LARGE = np.arange(1_000_000, dtype="<i4")
BODY = b"x" * (8 << 20)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("store")
    write_array(folder, "a", VALUES, (5, 5))
    write_array(folder, "large", LARGE, (1000,))
    with running_server({"data": folder, "free": {"url": str(folder), "writable": True}}) as server:
        yield server.url


def taken_apart(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(status.split()[1]), headers, body


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        *(
            (b"GET /v1/slice/data/a HTTP/1.1\r\nHost: %s\r\n\r\n" % host, 400, "not-http")
            for host in (
                b"a b",
                b"a/b",
                b"user@a",
                b"<a>",
                b"a:b",
                b"[::1",
                b'"a"',
                b"a, b",
                b"\xe9",
                b"a%zz",
                b"[:::]",
                b"a:65536",
            )
        ),
        (b"GET /v1/slice/data/a HTTP/1.1\r\n\r\n", 400, "not-http"),
        *((b"GET /v1/slice/data/a HTTP/1.%d\r\nHost: x\r\nHost: y\r\n\r\n" % n, 400, "not-http") for n in (0, 1)),
        (
            b"PUT /v1/chunk/free/a/0.0 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            501,
            "coding-unknown",
        ),
    ],
)
def test_what_is_no_request_gets_a_problem_that_a_page_may_read(url: str, sent: bytes, status: int, code: str) -> None:
    found, headers, body = taken_apart(exchange(url, sent))

    assert found == status
    assert headers["content-type"] == "application/problem+json"
    assert headers["access-control-allow-origin"] == "*"
    assert headers["connection"] == "close"
    assert int(headers["content-length"]) == len(body)
    assert json.loads(body)["code"] == code


def test_an_old_client_need_not_name_the_host(url: str) -> None:
    status, _, body = taken_apart(exchange(url, b"GET /v1/slice/data/a HTTP/1.0\r\n\r\n"))

    assert status == 200
    assert body == VALUES.tobytes()


@pytest.mark.parametrize("host", [b"x", b"x:80", b"[::1]:8000", b"a.b-c_d", b"127.0.0.1", b"", b"%41"])
def test_a_host_is_a_name_or_an_address_and_maybe_a_port(url: str, host: bytes) -> None:
    asked = b"GET /healthz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host

    assert taken_apart(exchange(url, asked))[0] == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET /v1/slice/data/\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/slice/data/a HTTP/1.1\r\nHost: x\r\nContent-Length: one\r\n\r\n",
    ],
)
def test_what_the_parser_does_not_read_is_refused_by_the_server(url: str, sent: bytes) -> None:
    status, headers, _ = taken_apart(exchange(url, sent))

    assert (status, headers["connection"]) == (400, "close")


@pytest.mark.parametrize(
    ("path", "status"),
    [("/v1/slice/data/a", 403), ("/v1/slice/free/nothing", 404), ("/v1/slice/free/a?select=99", 422)],
)
def test_who_is_refused_while_sending_gets_to_read_why(url: str, path: str, status: int) -> None:
    """urllib sends the whole body before it looks at the answer, and asks for the connection to be closed."""
    for _ in range(4):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url + path, BODY, method="PUT"))

        with refused.value as answer:
            assert answer.code == status
            assert json.loads(answer.read())["status"] == status


def test_a_client_that_was_refused_and_sends_no_more_is_disconnected(url: str) -> None:
    with dial(url) as connection:
        head = f"PUT /v1/slice/data/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(BODY)}\r\n\r\n"
        connection.sendall(head.encode() + BODY[:1000])
        began = time.monotonic()
        assert taken_apart(rest_of(connection))[0] == 403
        deadline = began + 60
        while time.monotonic() < deadline:  # the other side closes, and then sending fails
            try:
                connection.sendall(b"x")
            except OSError:
                break
            time.sleep(2.5)
    assert time.monotonic() < deadline


def test_a_client_that_stops_sending_is_answered_408(tmp_path: Path) -> None:
    write_array(tmp_path, "a", VALUES, (5, 5))
    store = {"url": str(tmp_path), "writable": True}
    with running_server({"free": store}, idle_seconds=0.5) as server, dial(server.url) as connection:
        connection.sendall(b"PUT /v1/slice/free/a HTTP/1.1\r\nHost: x\r\nContent-Length: 400\r\n\r\nsome")
        status, _, body = taken_apart(rest_of(connection))

    document = json.loads(body)
    assert (status, document["code"], document["received"]) == (408, "client-stalled", 4)


def test_a_refused_document_is_not_waited_for(url: str) -> None:
    with dial(url) as connection:
        head = "PATCH /v1/metadata/data/a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
        connection.sendall(head.encode() + b"\r\nContent-Length: 15000000\r\nConnection: close\r\n\r\n")

        assert taken_apart(rest_of(connection))[0] == 403


def test_a_body_that_was_taken_does_not_delay_the_end(url: str) -> None:
    body = VALUES.tobytes()
    head = f"PUT /v1/slice/free/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    began = time.monotonic()

    status, headers, _ = taken_apart(exchange(url, head.encode() + body))

    assert (status, headers["connection"]) == (204, "close")
    assert time.monotonic() - began < 30


def test_a_head_of_more_than_64_kib_is_refused(url: str) -> None:
    for sent in (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * (64 << 10), b"GET /healthz?" + b"a" * 60_000):
        rest = b" HTTP/1.1\r\nHost: x\r\n" + b"X-Long: aaaa\r\n" * 700 if b"?" in sent else b"\r\n"
        status, headers, body = taken_apart(exchange(url, sent + rest + b"\r\n"))

        assert (status, headers["connection"]) == (431, "close")
        assert json.loads(body)["code"] == "head-too-large"


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * (400 << 10),
        b"GET /healthz?" + b"a" * (2 << 20),
        b"PUT /v1/chunk/free/a/0.0 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
        + b"A: b\r\n" * (400 << 10),
    ],
)
def test_no_head_and_no_trailer_grows_without_end(url: str, sent: bytes) -> None:
    with dial(url) as connection, suppress(OSError):
        connection.sendall(sent)
        assert rest_of(connection) == b""


def test_trailers_are_no_headers(url: str) -> None:
    chunked = b"%x\r\n%s\r\n0\r\n" % (VALUES.nbytes, VALUES.tobytes())
    head = b"PUT /v1/slice/free/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    trailers = b'If-Match: "no such tag"\r\nContent-Type: application/json\r\n\r\n'

    assert taken_apart(exchange(url, head + chunked + trailers))[0] == 204


def test_a_body_that_breaks_is_refused_at_once(url: str) -> None:
    head = b"PUT /v1/slice/free/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with dial(url) as connection:
        connection.sendall(head + b"4\r\nsome\r\n")
        time.sleep(0.1)
        connection.sendall(b"nonsense\r\n")
        status, _, body = taken_apart(rest_of(connection))

    assert (status, body) == (400, b"Invalid HTTP request received.")


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
"""What Java's HttpClient and ``curl --http2`` send with the first request of a connection, whatever its method."""


@pytest.mark.parametrize(
    ("frame", "body"),
    [
        (b"Content-Length: 400", VALUES.tobytes()),
        (b"Transfer-Encoding: chunked", b"190\r\n" + VALUES.tobytes() + b"\r\n0\r\n\r\n"),
        (b"Expect: 100-continue\r\nContent-Length: 400", VALUES.tobytes()),
    ],
)
@pytest.mark.parametrize("cut", [0, 10, None])
def test_an_offer_to_upgrade_is_ignored_and_nothing_else_is(url: str, frame: bytes, body: bytes, cut: int) -> None:
    """``cut``: how much of the body comes along with the head."""
    with dial(url) as connection:
        connection.sendall(b"PUT /v1/slice/free/a HTTP/1.1\r\nHost: x\r\n%s%s\r\n\r\n" % (UPGRADE, frame) + body[:cut])
        if cut is not None:
            time.sleep(0.1)
            connection.sendall(body[cut:])
        first = b""
        while b" 204 " not in first:
            first += connection.recv(1 << 16)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = first + rest_of(connection)

    assert re.findall(rb"HTTP/1\.1 (\d+)", received.replace(b"HTTP/1.1 100", b"")) == [b"204", b"200"]


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Server]:
    """With 64 chunks of 1 MiB that are stored as they are."""
    write_array(tmp_path, "large", np.ones((64, 1 << 20), np.uint8), (1, 1 << 20), compressors=None)
    with running_server({"data": tmp_path}, idle_seconds=0.5) as server:
        yield server


@pytest.mark.parametrize("sent", [b"", b"GET /heal", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /heal"])
def test_a_client_that_does_not_end_its_request_is_disconnected(impatient: Server, sent: bytes) -> None:
    """Though it goes on sending, a byte at a time."""
    deadline = time.monotonic() + 60
    with dial(impatient.url) as connection, suppress(OSError):
        connection.sendall(sent)
        while time.monotonic() < deadline:
            time.sleep(0.1)
            connection.sendall(b"x" if sent else b"")
            connection.setblocking(False)
            with suppress(BlockingIOError):
                if not connection.recv(1 << 16):
                    break
            connection.setblocking(True)

    assert time.monotonic() < deadline


def test_an_answer_that_is_cut_at_the_end_is_a_line_in_the_log(tmp_path: Path) -> None:
    write_array(tmp_path, "large", np.ones((64, 1 << 20), np.uint8), (1, 1 << 20), compressors=None)
    with running_server({"data": tmp_path}, shutdown_seconds=1) as server, dial(server.url) as connection:
        connection.sendall(b"GET /v1/slice/data/large HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(1000)
        server.process.terminate()
        code, log = server.process.wait(60), server.log

    assert code == 0
    assert "cut the answer to /v1/slice/data/large: the service ends" in log
    assert "Traceback" not in log


def holds(server: Server, connection: socket.socket) -> bool:
    """Whether the other end of a connection is still some process's: of what is closed, the system sends the rest."""
    ends = [f"0100007F:{port:04X}" for port in (server.port, connection.getsockname()[1])]
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return any(row[1:3] == ends and row[9] != "0" for row in rows)


def test_a_client_that_reads_none_of_its_small_answers_is_disconnected(impatient: Server) -> None:
    asked = b"".join(b"GET /zarr/data/large/%d.0 HTTP/1.1\r\nHost: x\r\n\r\n" % i for i in range(64))
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(60)
        connection.connect(("127.0.0.1", impatient.port))
        connection.sendall(asked)
        received = len(connection.recv(1000))
        deadline = time.monotonic() + 60
        while holds(impatient, connection):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with suppress(ConnectionResetError):
            while piece := connection.recv(1 << 20):
                received += len(piece)

    assert received < 64 << 20


class Wire(asyncio.Transport):
    """What a protocol writes, call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def write(self, data: Any) -> None:
        self.sent.append(bytes(data))

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("method", "body", "more", "expected"),
    [
        ("GET", b"ok", {}, ["HTTP/1.1 200 OK ok"]),
        ("GET", b"", {}, ["HTTP/1.1 200 OK "]),
        ("HEAD", b"", {}, ["HTTP/1.1 200 OK "]),
        ("POST", b"ok", {"Expect": "100-continue"}, ["HTTP/1.1 100 Continue ", "HTTP/1.1 200 OK ok"]),
        ("GET", None, {}, ["HTTP/1.1 200 OK "]),
    ],
)
def test_head_and_body_leave_in_one_packet(
    method: str, body: bytes | None, more: dict[str, str], expected: list[str]
) -> None:
    """``body`` None: the application fails behind the head, which is sent nevertheless."""

    async def app(_: Any, receive: Any, send: Any) -> None:
        if more:
            await receive()
        length = b"%d" % len(body or b"never comes")
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        assert body is not None, "nothing comes"
        await send({"type": "http.response.body", "body": body})

    async def run() -> list[bytes]:
        config = uvicorn.Config(app, interface="asgi3", lifespan="off", log_config=None)
        wire, state = Wire(), ServerState()
        protocol = Protocol(config=config, server_state=state, app_state={})
        protocol.connection_made(wire)
        head = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "x", "Content-Length": "0", **more}.items())
        protocol.data_received(f"{method} / HTTP/1.1\r\n{head}\r\n".encode())
        await asyncio.gather(*state.tasks)
        protocol.connection_lost(None)
        return wire.sent

    sent = [part.partition(b"\r\n\r\n") for part in asyncio.run(run())]

    assert [f"{head.splitlines()[0].decode()} {rest.decode()}" for head, _, rest in sent] == expected


def test_what_breaks_off_behind_an_answer_leaves_no_traceback(tmp_path: Path) -> None:
    asked = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
    with running_server({"data": tmp_path}) as server:
        for sent in (
            b"GET /healthz HTTP/1.1\r\n\r\n\x00 no request\r\n\r\n",
            asked + b"\r\n" + asked + b"Host: y\r\n\r\nGET",
            asked + b"Host: y\r\n\r\nGET /heal\x00\r\n\r\n",
            b"PUT /v1/slice/data/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\nzz\r\nGET /heal\x00\r\n\r\n",
        ):
            with dial(server.url) as connection:
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                rest_of(connection)
        log = server.log

    assert "Traceback" not in log
