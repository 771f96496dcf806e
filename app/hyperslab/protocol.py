"""uvicorn's HTTP protocol, with timeouts and limits for clients."""

from __future__ import annotations

import re
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hyperslab.api.replay import header_lines
from hyperslab.api.response import CONNECTION, PATIENCE, REFUSED, REPLAY, WAS_TRIED
from hyperslab.errors import CodingUnknown, HeadTooLarge, HyperslabError, NotHttp

_QUIET_SECONDS: Final = 2.0
_LONGEST_SECONDS: Final = 30.0
"""Lingering close: seconds without input, and in all, after which the connection of a refused client is closed."""
_LONGEST_HEAD: Final = 64 << 10
"""Bytes of a head, of chunk extensions, and of trailers; the parser has no limits."""


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 protocol that also passes malformed requests to the application; the `CONNECTION` of its scopes.

    Connections of clients that are refused while sending are closed gracefully, so that they can read the response.
    Clients that do not finish a request, or do not read a response, are disconnected.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._patience: float = self.app_state.get(PATIENCE, _LONGEST_SECONDS)
        self._head_seconds = min(60.0, self._patience)  # timeout of a request's head
        self._find = None if self.access_log else self.app_state.get(REPLAY)
        self._may_replay = False
        self._is_between = True  # no request has been received in part
        self._running: Any = None  # the cycle of the current response; `cycle` is that of the last request
        self._waiting = b""  # input behind a request that is not answered
        self._body_left = 0
        self._not_upgraded = b""
        self._ignores_input = False
        self._heard = 0.0
        self._unread = 0  # bytes since the last part of a body
        self._deadline: Any = None  # a timer handle

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._abort_after(self._head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._abort_after(None)
        self._waiting = b""
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse input up to the end of a request whose response is not complete.

        At most 8 KiB at a time beyond a body, as they may hold a hundred pipelined requests.
        """
        if self._ignores_input:
            self._heard = self.loop.time()
            return
        self._unset_keepalive_if_required()
        self._may_replay = True
        # there may be waiting input: reading resumes while a response waits for the client to disconnect
        rest, self._waiting = memoryview(self._waiting + data if self._waiting else data), b""
        while rest and not self._ignores_input:
            if self.cycle is not None and not self.cycle.response_complete and not self._running.more_body:
                self._waiting = bytes(rest)
                self.flow.pause_reading()
                return
            piece = rest[: max(8 << 10, self._body_left)]
            self._unread += len(piece)
            parsed = len(piece)
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade as offer:
                # the parser takes all that follows for another protocol, which is not supported: it parses the same
                # head again, without the Upgrade header
                head, self._not_upgraded, parsed = self._not_upgraded, b"", int(offer.args[0])
                self.parser.feed_data(head)
            except httptools.HttpParserError:
                text = "This is no HTTP request. It is read as RFC 9112 has it, with a target of less than 64 KiB."
                self._refuse(NotHttp(text))
            if self._unread > _LONGEST_HEAD and not self._ignores_input:
                self._refuse(HeadTooLarge(_LONGEST_HEAD))
            rest = rest[parsed:]
        if self._ignores_input or (self.cycle is not None and not self.cycle.response_complete):
            return
        if self._is_between:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        elif self._deadline is None:
            self._abort_after(self._head_seconds)

    def on_message_begin(self) -> None:
        self._is_between = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Refuse invalid requests that the parser accepts (RFC 9112 §3.2, §6.1), or call the application."""
        if self._ignores_input:
            return
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            version = self.parser.get_http_version().encode()
            lines = (b"%s: %s" % pair for pair in self.headers if pair[0] != b"upgrade")
            first = b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)
            self._not_upgraded = b"\r\n".join((first, *lines, b"", b""))
            return
        hosts, size, has_body = 0, len(self.url), False
        unknown: bytes | None = None  # a transfer coding
        self._unread = self._body_left = 0
        for name, value in self.headers:
            size += len(name) + len(value)
            if name == b"host":
                hosts += 1
            elif name == b"content-length":
                has_body, self._body_left = True, int(value)
            elif name == b"transfer-encoding":
                has_body, unknown = True, unknown if value.strip().lower() == b"chunked" else value
        if self._deadline is not None and not self.flow.write_paused:
            self._abort_after(None)
        if unknown is not None:
            self._refuse(CodingUnknown(unknown.decode("latin-1"), "chunked"))
        elif size > _LONGEST_HEAD:
            self._refuse(HeadTooLarge(_LONGEST_HEAD))
        elif hosts != 1 and self.parser.get_http_version() == "1.1":
            self._refuse(NotHttp(f"A request has one Host header; this one has {hosts or 'none'}."))
        elif has_body or not self._replay():
            self._begin({CONNECTION: self}, _GentleTransport(self.transport, self._close_gently) if has_body else None)
            self.headers = []  # the parser appends trailers, which are not headers (RFC 9110 §6.5.1)

    def _replay(self) -> bool:
        """Send the stored response to a GET that came alone, if there is one: without a scope, a task and messages."""
        is_first = self._may_replay and (self.cycle is None or self.cycle.response_complete)
        is_blocked = self.flow.write_paused or self.transport.is_closing()
        stays = self.parser.should_keep_alive() and self.parser.get_http_version() == "1.1"
        if self._find is None or self.parser.get_method() != b"GET" or not is_first or is_blocked or not stays:
            return False
        self._may_replay = False
        head, body = self._find(self.root_path.encode() + self.url, self.headers) or (b"", b"")
        if head:
            self.server_state.total_requests += 1
            self.transport.writelines((head, header_lines(self.server_state.default_headers), b"\r\n", body))
        else:
            self.scope = cast("Any", {**self.scope, WAS_TRIED: True})
        return bool(head)

    def _begin(self, members: dict[str, Any], transport: _GentleTransport | None) -> None:
        """Call the application for the request whose head was parsed, with more ``members`` in its scope."""
        self.scope = cast("Any", {**self.scope, **members})
        before = self.cycle
        super().on_headers_complete()
        if before is None or before.response_complete:
            self._running = self.cycle
        if transport is not None:
            self.cycle.transport = cast("Any", transport)

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        self._body_left -= len(body)
        if not self._ignores_input:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._not_upgraded:
            return
        self._is_between = True
        self._unread = self._body_left = 0
        if self.cycle is not None and not self._ignores_input:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self.pipeline:
            self._running = self.pipeline[-1][0]
        super().on_response_complete()
        if self.transport.is_closing():  # closed when the client has read all
            self._abort_after(self._patience)
        elif self._ignores_input:  # in a lingering close
            self._unset_keepalive_if_required()
        elif self._waiting or not self._is_between:  # there is input of further requests
            self.data_received(b"")

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_after(self._patience)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._abort_after(self._patience)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._abort_after(None)

    def _refuse(self, error: HyperslabError) -> None:
        """Pass an invalid request to the application, and ignore all further input."""
        if self._ignores_input:
            return
        self._ignores_input = True
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body or self.pipeline or cycle.response_started:
                cycle.keep_alive = False  # the current response is completed, and is the last one
                return
            # the body is malformed: the application sees a disconnected client
            cycle.disconnected = True
            cycle.message_event.set()
        if self._is_between:  # no method was parsed
            self.on_message_begin()
        target, self.url, self.cycle = self.url, b"/", cast("Any", None)  # the target may be invalid
        self._begin({CONNECTION: self, REFUSED: error}, _GentleTransport(self.transport, self._close_when_quiet))
        self.scope["path"] = target.partition(b"?")[0].decode("latin-1")
        self.cycle.keep_alive = False

    def hang_up(self) -> None:
        """Abort the connection, without sending buffered output."""
        self._running.disconnected = True
        self.transport.abort()

    def say_why(self, reason: str) -> None:
        """Set the reason phrase of the next response, if its request has a body."""
        if isinstance(self._running.transport, _GentleTransport):
            self._running.transport.reason = reason

    def _close_gently(self) -> None:
        """Close after a response: at once if the whole request was received, else with a lingering close."""
        if self._is_between or self.transport.is_closing():
            self.transport.close()
        else:
            self._close_when_quiet()

    def _abort_after(self, seconds: float | None) -> None:
        """Set the timer that aborts the connection, in seconds (None: stop it)."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def _close_when_quiet(self) -> None:
        """Lingering close: half-close the connection, and discard input until the client closes or is quiet.

        A full close while the client is sending would reset the connection, and the client could lose an unread
        response (RFC 9112 §9.6).
        """
        self._ignores_input = True
        self._unset_keepalive_if_required()
        self._abort_after(_LONGEST_SECONDS + self._patience)
        self.flow.resume_reading()
        if self.transport.can_write_eof():  # not with TLS
            self.transport.write_eof()
        self._heard = self.loop.time()
        self._close_after(self._heard + _LONGEST_SECONDS)

    def _close_after(self, last: float) -> None:
        now = self.loop.time()
        if self.transport.is_closing():
            return
        if now >= last or now >= self._heard + _QUIET_SECONDS:
            self.transport.close()
        else:
            self.loop.call_later(_QUIET_SECONDS, self._close_after, last)


class _GentleTransport:
    """A transport with another `close`, and an optional reason phrase of the next response."""

    def __init__(self, transport: Any, close: Any) -> None:
        self._transport = transport
        self.reason = ""
        self.close = close

    def write(self, data: bytes) -> None:
        if self.reason:  # in printable ASCII (RFC 9112 §4), shortened
            text = re.sub(r"[^ -~]", "?", self.reason)
            text = text if len(text) <= 200 else f"{text[:97]}...{text[-100:]}"
            line, end, rest = data.partition(b"\r\n")
            data, self.reason = b"".join((line[: len(b"HTTP/1.1 400 ")], text.encode(), end, rest)), ""
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
