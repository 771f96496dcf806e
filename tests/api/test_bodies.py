"""Bodies of requests as they come: from ASGI messages, and from our own protocol."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.api.request import Request
from hyperslab.api.upload import Body
from hyperslab.asgi import create_app
from hyperslab.errors import Cancelled
from hyperslab.settings import Settings, StoreSettings
from tests.api.support import request, write_array
from tests.server import served


def body_of(messages: list[dict[str, Any]]) -> Body:
    """The body that these messages bring; behind the last one nothing comes."""
    left = list(messages)

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    scope = {"type": "http", "method": "PUT", "path": "/", "query_string": b"", "headers": []}
    return Body(Request(scope, receive, ""))


async def read(body: Body, size: int, *, pause: float = 9.0, within: float = 9.0) -> bytes:
    out = bytearray(size)
    return bytes(out[: await body.read_into(memoryview(out), pause=pause, within=within)])


@given(st.lists(st.binary(max_size=9), min_size=1), st.integers(1, 20))
def test_pieces_of_any_sizes_make_the_body(sent: list[bytes], size: int) -> None:
    *before, last = [{"type": "http.request", "body": piece, "more_body": True} for piece in sent]
    body, found = body_of([*before, last | {"more_body": False}]), b""

    async def read_all() -> None:
        nonlocal found
        while body.more:
            found += await read(body, size)

    asyncio.run(read_all())
    assert found == b"".join(sent)


def test_what_came_is_given_after_a_pause_and_before_the_client_is_said_to_have_left() -> None:
    pieces = [{"type": "http.request", "body": b"ab", "more_body": True}]

    assert asyncio.run(read(body_of(pieces), 3, pause=0.01)) == b"ab"
    assert asyncio.run(read(body_of([]), 3, within=0.01)) == b""
    left = body_of([*pieces, *[{"type": "http.disconnect"}] * 2])
    assert asyncio.run(read(left, 3)) == b"ab"
    with pytest.raises(Cancelled):
        asyncio.run(read(left, 3))


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_in_any_pieces_is_stored_and_the_request_behind_it_answered(tmp_path: Path, chunked: bool) -> None:
    values = np.random.default_rng(0).integers(0, 255, (3, 1 << 20), np.uint8)
    write_array(tmp_path, "a", values * 0, (1, 1 << 20), compressors=None)
    data = values.tobytes()
    pieces = [data[at : at + 777_777] for at in range(0, len(data), 777_777)]
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(data)}"
    head = f"PUT /v1/slice/data/a HTTP/1.1\r\nHost: test\r\n{length}\r\n\r\n".encode()
    behind = b"GET /v1/metadata/data/a HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
    app = create_app(Settings(stores={"data": StoreSettings(url=str(tmp_path), writable=True)}))
    with served(app) as url, socket.create_connection((str(urlsplit(url).hostname), urlsplit(url).port or 80)) as sent:
        sent.sendall(head)
        for piece in pieces:
            sent.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        sent.sendall((b"0\r\n\r\n" if chunked else b"") + behind)
        answers = b"".join(iter(lambda: sent.recv(65536), b""))

        assert [answers.count(b"HTTP/1.1 204"), answers.count(b"HTTP/1.1 200")] == [1, 1]
        assert request(url, "/v1/slice/data/a").body == data
