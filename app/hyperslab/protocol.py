"""uvicorn's HTTP protocol, with a shorter way for what the application has kept."""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from hyperslab.api.answers import header_lines
from hyperslab.api.shortcut import ASKED, STATE, Head, Shortcut, WireAnswer

_GET: Final = b"GET"
_VERSION: Final = "1.1"


class Protocol(HttpToolsProtocol):
    """Writes a kept answer as soon as the head of a request is parsed: no task, no scope, no messages. A request that
    has come before, byte by byte, is not even parsed.

    Everything else goes the way of its parent: what is not kept, other methods, the last request of a connection,
    requests that wait for an earlier answer, clients that are slow to take theirs.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shortcut: Shortcut | None = self.app_state.get(STATE)
        self._is_between = True
        self._completed = 0
        self._was_asked = False
        self._answered: Head | None = None
        self._usual: tuple[list[tuple[bytes, bytes]], bytes] = ([], b"")

    def data_received(self, data: bytes) -> None:
        shortcut, begins_here = self._shortcut, self._is_between
        head = shortcut.recall(data) if shortcut is not None and begins_here and not self._is_busy() else None
        if shortcut is not None and head is not None:
            found = shortcut.answer(head, shared=True)
            if found is not None:
                self._write(found, head, _VERSION)
                return
        self._completed, self._was_asked = 0, head is not None
        super().data_received(data)
        if shortcut is not None and self._answered is not None and begins_here and self._was_one_request():
            shortcut.remember(data, self._answered)

    def on_message_begin(self) -> None:
        self._is_between = False
        self._answered = None
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self._shortcut is None or not self._is_ordinary():
            super().on_headers_complete()
            return
        self.scope[ASKED] = True  # type: ignore[typeddict-unknown-key]  # servers may add what they like
        is_first = not self._completed  # what follows in the same data may have been sent later
        head = None if self._was_asked and is_first else self._shortcut.read(self.url, self.headers)
        found = None if head is None else self._shortcut.answer(head, shared=is_first)
        if head is None or found is None:
            super().on_headers_complete()
        else:
            self._answered = head
            self._write(found, head, self.parser.get_http_version())

    def on_body(self, body: bytes) -> None:
        if self._answered is None:  # a GET's body means nothing (RFC 9110 §9.3.1)
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_between = True
        self._completed += 1
        if self._answered is None:
            super().on_message_complete()

    def _is_ordinary(self) -> bool:
        parser = self.parser
        if parser.get_method() != _GET or not parser.should_keep_alive() or parser.should_upgrade():
            return False
        return not self._is_busy()

    def _is_busy(self) -> bool:
        """Whether an answer is under way, or the client has not yet taken what was written."""
        answering = self.cycle is not None and not self.cycle.response_complete
        return answering or self.flow.write_paused or self.transport.is_closing()

    def _was_one_request(self) -> bool:
        """Whether the data received were one whole request, and no part of another."""
        return self._completed == 1 and self._is_between and self.parser.get_http_version() == _VERSION

    def _write(self, found: WireAnswer, asked: Head, version: str) -> None:
        if self.access_log:
            self._log(asked.target, version, found.status)
        head = b"".join((STATUS_LINE[found.status], self._usual_lines(), found.head, b"\r\n"))
        self.transport.writelines((head, found.body) if found.body else (head,))
        self.on_response_complete()

    def _usual_lines(self) -> bytes:
        """The server's own headers, which it makes anew every second."""
        headers = self.server_state.default_headers
        if headers is not self._usual[0]:
            self._usual = headers, header_lines(headers)
        return self._usual[1]

    def _log(self, target: bytes, version: str, status: int) -> None:
        """As the parent does, whose formatter takes these arguments apart."""
        client = "{}:{}".format(*self.client) if self.client else ""
        self.access_logger.info('%s - "%s %s HTTP/%s" %d', client, "GET", target.decode("latin-1"), version, status)
