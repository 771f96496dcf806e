"""uvicorn's HTTP/1.1 protocol, with limits that it lacks: of the size and time of a head, and of unread responses."""

import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hyperslab.api.response import PATIENCE


class Protocol(HttpToolsProtocol):
    """Clients that do not finish a head, or do not read a response, are disconnected: uvicorn would wait for ever."""

    _unparsed = 0  # bytes since the last head, or the last part of a body
    _deadline: Any = None  # a timer handle

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._abort_after(60.0)

    def connection_lost(self, exc: Exception | None) -> None:
        self._abort_after(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not hasattr(self, "url"):  # Java and curl offer an upgrade with the first request: its body would be lost
            data = re.sub(rb"(?is)\A((?:(?!\r\n\r\n).)*?)\r\nupgrade:[^\r]*", rb"\1", data)
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > 256 << 10:  # bytes; also of trailers: the parser has no limits
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._abort_after(60.0)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._unparsed = 0
        self._abort_after(300.0 if self.flow.write_paused else None)
        super().on_headers_complete()
        self.headers = []  # the parser appends trailers, which are not headers (RFC 9110 §6.5.1)

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        if not self.cycle.body:
            self.cycle.body = b""  # type: ignore[assignment]  # to which ``body`` is added without a copy
        super().on_body(body)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._abort_after(300.0)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._abort_after(300.0 if self.transport.is_closing() else None)

    def _abort_after(self, longest: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        seconds = None if longest is None else min(longest, self.app_state.get(PATIENCE, longest))
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)
