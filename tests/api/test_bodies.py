"""Bodies of requests as they come, and of responses as they go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.api.options import ApiOptions
from hyperslab.api.response import Pieces
from hyperslab.api.routes.stream import _receive
from hyperslab.api.upload import Body
from hyperslab.errors import Cancelled
from hyperslab.streams.sessions import Memory, Session


def body_of(messages: list[dict[str, Any]]) -> Body:
    """The body that these messages bring; behind the last one nothing comes."""
    left = list(messages)

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    return Body(receive)


async def read(body: Body, size: int, *, pause: float = 9.0, within: float = 9.0) -> bytes:
    out = bytearray(size)
    return bytes(out[: await body.read_into(memoryview(out), pause=pause, within=within)])


@given(st.lists(st.binary(max_size=9), min_size=1), st.integers(1, 20))
async def test_pieces_of_any_sizes_make_the_body(sent: list[bytes], size: int) -> None:
    *before, last = [{"type": "http.request", "body": piece, "more_body": True} for piece in sent]
    body, found = body_of([*before, last | {"more_body": False}]), b""

    while body.more:
        found += await read(body, size)
    assert found == b"".join(sent)


async def test_what_came_is_given_after_a_pause_and_before_the_client_is_said_to_have_left() -> None:
    pieces = [{"type": "http.request", "body": b"ab", "more_body": True}]

    assert await read(body_of(pieces), 3, pause=0.01) == b"ab"
    assert await read(body_of([]), 3, within=0.01) == b""
    left = body_of([*pieces, *[{"type": "http.disconnect"}] * 2])
    assert await read(left, 3) == b"ab"
    with pytest.raises(Cancelled):
        await read(left, 3)


async def test_the_piece_of_a_stream_that_is_being_stored_is_not_received_into() -> None:
    message = {"type": "http.request", "body": b"abcdefghijkl"}
    request = SimpleNamespace(receive=AsyncMock(side_effect=[message]), context=SimpleNamespace(options=ApiOptions()))
    session = Session(Memory(), 9)
    array, stored = SimpleNamespace(group_nbytes=4), list[bytes]()
    upload = SimpleNamespace(at=0, piece=4, covered=8, array=array, session=session, append=stored.append)

    async def run(append: Any, piece: memoryview) -> None:
        append(bytes(piece))

    await _receive(request, run, upload, 12, AsyncMock())  # type: ignore[arg-type]

    assert stored == [b"abcd", b"efgh", b"ijkl"]


async def test_a_body_that_ends_before_its_size_has_no_proper_end() -> None:
    sent: list[Any] = []

    async def pieces() -> AsyncIterator[bytes]:
        yield b"abc"

    async def send(message: Any) -> None:
        sent.append(message)

    with pytest.raises(RuntimeError, match="1 bytes short"):
        await Pieces(4, pieces(), 9.0).send({"type": "http.response.start"}, send)
    assert [message.get("more_body") for message in sent] == [None, True]
