"""uvicorn's HTTP/1.1 protocol, with what it lacks: limits of heads and of unread responses, and whole packets."""

import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hyperslab.api.response import Deadline, JoinedTransport


class Protocol(HttpToolsProtocol):
    """Clients that finish no head or no answered body, or read no response, are disconnected: uvicorn would wait."""

    _unparsed = 0  # bytes since the last head, or the last part of a body

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = Deadline(transport.abort, self.loop, self.app_state)
        self._deadline.set(60.0)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.set(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.cycle:  # Java and curl offer an upgrade with the first request: its body would be lost
            data = re.sub(rb"(?is)\A((?:(?!\r\n\r\n).)*?)\r\nupgrade:[^\r]*", rb"\1", data)
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > 256 << 10:  # bytes; also of trailers: the parser has no limits
            self.transport.abort()
        elif hasattr(self, "url") and not self._deadline.is_set:  # most heads come whole, and need no timer
            self._deadline.set(60.0)

    def on_headers_complete(self) -> None:
        self._unparsed = 0
        self._deadline.set(300.0 if self.flow.write_paused else None)
        super().on_headers_complete()
        del self.url  # it is there while a head is read
        self.headers = []  # the parser appends trailers, which are not headers (RFC 9110 §6.5.1)
        if self.scope["method"] != "HEAD":
            self.cycle.transport = JoinedTransport(self.transport)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        self.cycle.body = self.cycle.body or b""  # type: ignore[assignment]  # added to without a copy
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body:  # of a body that nothing reads uvicorn keeps no time
            self._deadline.set(300.0)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._deadline.set(300.0)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._deadline.set(300.0 if self.transport.is_closing() else None)
