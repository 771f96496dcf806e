"""The head of an answer: its status, its headers, and how its body is delimited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import httptools
from urllib3.exceptions import ProtocolError


class Headers(Mapping[str, str]):
    """Looked up without regard to case; what came several times is joined by commas (RFC 9110 §5.3)."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[bytes, bytes]) -> None:
        self._values = values  # names in lower case

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower().encode()].decode("latin-1")

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]  # no other default
        value = self._values.get(name.lower().encode())
        return default if value is None else value.decode("latin-1")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower().encode() in self._values

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._values)

    def __len__(self) -> int:
        return len(self._values)


class Events:
    """What httptools tells of one answer."""

    __slots__ = ("complete", "excess", "pieces", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        """Headers; those behind a body in chunks go into a table of their own, which nobody reads."""
        self.pieces: list[bytes] = []
        """Parts of the body that nobody has taken yet."""
        self.complete = False
        self.excess = False
        """Something came behind the answer."""

    def on_message_begin(self) -> None:
        self.excess = self.complete

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.lower()
        known = self.values.get(key)
        self.values[key] = value if known is None else known + b", " + value

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.complete = True


@dataclass(slots=True)
class Head:
    """``length``: bytes of the body, None where it ends with its last chunk (``chunked``) or with the connection."""

    status: int
    headers: Headers
    length: int | None
    chunked: bool
    keep_alive: bool
    parser: httptools.HttpResponseParser
    events: Events


def parse_head(data: memoryview, method: str) -> Head:
    """Parse a head, blank line included; raises `ProtocolError` for what is none."""
    events = Events()
    parser = httptools.HttpResponseParser(events)
    try:
        parser.feed_data(data)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        raise ProtocolError(f"the answer is not HTTP: {error}", error) from error
    status = parser.get_status_code()
    if status < 100 or status == 101:
        raise ProtocolError(f"unexpected status {status}")
    values = events.values
    length, chunked = _framing(values, without_body=status < 200 or status in (204, 304) or method == "HEAD")
    keep_alive = (length is not None or chunked) and _stays_open(parser.get_http_version(), values)
    if chunked:
        events.values = {}
    return Head(status, Headers(values), length, chunked, keep_alive, parser, events)


def _framing(values: Mapping[bytes, bytes], *, without_body: bool) -> tuple[int | None, bool]:
    """RFC 9112 §6.3; that there are not two lengths, and only digits in one, httptools has seen to."""
    if without_body:
        return 0, False
    coding = values.get(b"transfer-encoding")
    if coding is not None:
        if coding.strip().lower() != b"chunked":
            raise ProtocolError(f"unknown transfer coding {coding!r}")
        return None, True
    length = values.get(b"content-length")
    return (None if length is None else int(length)), False


def _stays_open(version: str, values: Mapping[bytes, bytes]) -> bool:
    options = values.get(b"connection")
    if options is None:
        return version == "1.1"
    given = {option.strip() for option in options.lower().split(b",")}
    return b"close" not in given if version == "1.1" else version == "1.0" and b"keep-alive" in given
