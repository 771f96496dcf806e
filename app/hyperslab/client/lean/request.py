"""The bytes of a request, and which requests the lean transport takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from hyperslab.client.transport import Body

_ORIGIN = re.compile(
    r"http://(?P<host>[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)
# What needs no escapes (RFC 3986 §3.3, §3.4), and escapes in their normal form.
_TARGET = re.compile(r"/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]++|%[0-9A-F]{2})*+", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+\-.^_`|~]+", re.ASCII)
_BREAKS = re.compile("[\r\n\0]")
_FRAMING = frozenset({"host", "content-length", "transfer-encoding", "connection", "keep-alive", "expect", "te"})
_WITHOUT_BODY = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
_METHODS = _WITHOUT_BODY | {"PUT", "POST", "PATCH"}


class Unusual(Exception):
    """A request for a transport that knows more; nothing of it was sent."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A server; ``authority`` is what the Host header says (without port 80)."""

    host: str
    port: int
    authority: str

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Read ``http://host:port``; raises `Unusual` for anything that would have to be normalised."""
        found = _ORIGIN.fullmatch(text)
        port = int(found["port"] or 80) if found else 0
        if found is None or not 0 < port < 65536:
            raise Unusual
        host = found["host"]
        return cls(host.strip("[]"), port, host if port == 80 else f"{host}:{port}")

    def __str__(self) -> str:
        return f"HTTPConnection(host={self.host!r}, port={self.port})"


def split_url(url: str) -> tuple[str, str]:
    """``http://host:port`` and ``/path?query``; raises `Unusual` for what would have to be normalised."""
    at = url.find("/", 8)
    target = url[at:]
    if at < 0 or not url.startswith("http://") or _TARGET.fullmatch(target) is None or "/." in target:
        raise Unusual
    return url[:at], target


def encode_head(method: str, target: str, authority: str, headers: Mapping[str, str], body: Body | None) -> bytes:
    """The head of a request.

    Raises `Unusual` for other methods and for headers that frame a message, and `ValueError` for what would break out
    of its line.
    """
    if method not in _METHODS:
        raise Unusual
    length = ""
    if body is not None:
        length = f"Content-Length: {memoryview(body).nbytes}\r\n"
    elif method not in _WITHOUT_BODY:
        length = "Content-Length: 0\r\n"
    lines = _header_lines(tuple(headers.items()))
    return f"{method} {target} HTTP/1.1\r\nHost: {authority}\r\n{lines}{length}\r\n".encode("latin-1")


@lru_cache(maxsize=64)
def _header_lines(headers: tuple[tuple[str, str], ...]) -> str:
    """The lines of headers that, in most programs, are the same for all requests."""
    names = set()
    lines = []
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"no name of a header: {name!r}")
        if _BREAKS.search(value):
            raise ValueError(f"header {name}: its value has a line break or a NUL")
        names.add(name.lower())
        lines.append(f"{name}: {value}\r\n")
    if not names.isdisjoint(_FRAMING):
        raise Unusual
    if "accept-encoding" not in names:
        lines.append("Accept-Encoding: identity\r\n")
    return "".join(lines)
