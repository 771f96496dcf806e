"""uvicorn's HTTP protocol, with a shorter way for what the application has kept."""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from hyperslab.api.answers import header_lines
from hyperslab.api.shortcut import ASKED, STATE, Shortcut, WireAnswer

_GET: Final = b"GET"


class Protocol(HttpToolsProtocol):
    """Writes a kept answer as soon as the head of a request is parsed: no task, no scope, no messages.

    Everything else goes the way of its parent: what is not kept, other methods, the last request of a connection,
    requests that wait for an earlier answer, clients that are slow to take theirs.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shortcut: Shortcut | None = self.app_state.get(STATE)
        self._answered = False
        self._is_first = False
        self._usual: tuple[list[tuple[bytes, bytes]], bytes] = ([], b"")

    def data_received(self, data: bytes) -> None:
        self._is_first = True
        super().data_received(data)

    def on_headers_complete(self) -> None:
        found = self._kept()
        self._answered = found is not None
        if found is None:
            super().on_headers_complete()
        else:
            self._write(found)

    def on_body(self, body: bytes) -> None:
        if not self._answered:  # a GET's body means nothing (RFC 9110 §9.3.1)
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_first = False  # what follows in the same data may have been sent later
        if not self._answered:
            super().on_message_complete()

    def _kept(self) -> WireAnswer | None:
        parser = self.parser
        if self._shortcut is None or parser.get_method() != _GET or not parser.should_keep_alive():
            return None
        if parser.should_upgrade() or self._is_busy():
            return None
        self.scope[ASKED] = True  # type: ignore[typeddict-unknown-key]  # servers may add what they like
        return self._shortcut.answer(self.url, self.headers, shared=self._is_first)

    def _is_busy(self) -> bool:
        """Whether an answer is under way, or the client has not yet taken what was written."""
        answering = self.cycle is not None and not self.cycle.response_complete
        return answering or self.flow.write_paused or self.transport.is_closing()

    def _write(self, found: WireAnswer) -> None:
        if self.access_log:
            self._log(found.status)
        head = b"".join((STATUS_LINE[found.status], self._usual_lines(), found.head, b"\r\n"))
        self.transport.writelines((head, found.body) if found.body else (head,))
        self.on_response_complete()

    def _usual_lines(self) -> bytes:
        """The server's own headers, which it makes anew every second."""
        headers = self.server_state.default_headers
        if headers is not self._usual[0]:
            self._usual = headers, header_lines(headers)
        return self._usual[1]

    def _log(self, status: int) -> None:
        """As the parent does, whose formatter takes these arguments apart."""
        client = "{}:{}".format(*self.client) if self.client else ""
        version = self.parser.get_http_version()
        self.access_logger.info('%s - "%s %s HTTP/%s" %d', client, "GET", self.url.decode("latin-1"), version, status)
