"""Response cache. A stored response is replayed while every key that it was built from still has the same version."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import inf
from time import monotonic, perf_counter
from typing import Final, NamedTuple

from starlette.types import Scope

from hyperslab.api.conditional import CONDITIONAL
from hyperslab.api.metrics import ROUTE
from hyperslab.api.response import Buffer, Headers, cost_headers
from hyperslab.arrays.nodes import MountedStore
from hyperslab.cache import CacheStats, VersionedCache
from hyperslab.errors import HyperslabError
from hyperslab.storage.base import VersionConflict

MOST_KEYS: Final = 64
Pairs = Iterable[tuple[bytes, bytes]]
"""Names and values of headers."""


@dataclass(frozen=True, slots=True)
class Sources:
    """All keys of one store that a response was built from, and the versions that they had.

    ``touched``: how many chunks are among them; None where the cost is not told. ``until``: when the response expires
    whatever the versions are, by the monotonic clock.
    """

    mount: MountedStore
    keys: tuple[str, ...]
    versions: list[str | None]
    touched: int | None
    until: float = inf


class Replay(NamedTuple):
    """A response to be sent again; ``head``: its status line and headers, as HTTP/1.1 writes them."""

    status: int
    route: str
    headers: Headers
    head: bytes
    body: Buffer


@dataclass(frozen=True, slots=True)
class _CachedResponse:
    """``found``: the response with status 200; None where only the 304 is known."""

    sources: Sources
    etag: bytes
    found: Replay | None
    unchanged: Replay


class ResponseCache:
    """At most ``limit`` bytes of small responses, checked for changes each time; lives on the event loop.

    Only local stores take part, where looking up versions costs microseconds.
    """

    def __init__(self, limit: int) -> None:
        self._responses: VersionedCache[_CachedResponse] = VersionedCache(limit)

    def stats(self) -> CacheStats:
        return self._responses.stats()

    def put(  # noqa: PLR0917
        self, scope: Scope, sources: Sources, etag: str, headers: Headers, always: Headers, data: Buffer | None
    ) -> None:
        """Store a response with status 200, if it is small and its sources are few and local; ``always`` are the
        headers that a 304 has too. ``data`` None: only the 304 is known."""
        key = None
        if scope["method"] == "GET" and "raw_path" in scope:
            key, _ = _key_and_tag(target_of(scope), scope["headers"])
        nbytes, touched = len(data or b""), sources.touched
        if key is None or sources.mount.is_remote or len(sources.keys) > MOST_KEYS or nbytes > 512 << 10:
            return
        if re.search(rb"[\x00-\x1f]", b"".join([value for _, value in (*headers, *always)])):  # would end its line
            return
        cost = () if touched is None else cost_headers(touched, touched, None, {})[:1]
        found, route = None, scope[ROUTE]
        if data is not None:
            headers = (*headers, (b"content-length", b"%d" % nbytes), *cost)
            found = Replay(200, route, headers, b"HTTP/1.1 200 OK\r\n" + header_lines(headers), data)
        unchanged = Replay(304, route, always, b"HTTP/1.1 304 Not Modified\r\n" + header_lines(always), b"")
        cached = _CachedResponse(sources, etag.encode("latin-1"), found, unchanged)
        held = nbytes + 4096 + 512 * len(sources.keys)  # with the objects of Python that it takes
        self._responses.put(key, "", cached, held)

    def replay(self, target: bytes, request_headers: Pairs) -> Replay | None:
        """The stored response to a GET, if there is one and it still holds: 304 for an ``If-None-Match`` of just its
        tag. ``target`` as `target_of` gives it."""
        began = perf_counter()
        key, tag = _key_and_tag(target, request_headers)
        cached = None if key is None else self._responses.get(key, "")
        if cached is None or (tag is not None and tag != cached.etag):
            return None
        sources = cached.sources
        try:
            expired = monotonic() > sources.until
            now = None if expired else sources.mount.versions.look_up("", sources.keys)
        except (HyperslabError, VersionConflict):  # the endpoint will try as well, and say what is wrong
            now = None
        if now != sources.versions:
            self._responses.drop(key)
            return None
        found = cached.found if tag is None else cached.unchanged
        if found is None or found.status == 304 or sources.touched is None:
            return found
        spent = b"plan;dur=%.3f" % ((perf_counter() - began) * 1000)
        headers = (*found.headers, (b"server-timing", spent))
        return Replay(200, found.route, headers, b"%sserver-timing: %s\r\n" % (found.head, spent), found.body)


def target_of(scope: Scope) -> bytes:
    """The target of a request as it was sent, with the path that a proxy has cut off before it."""
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return b"%s?%s" % (path, query) if query else path


def header_lines(headers: Pairs) -> bytes:
    """Headers as HTTP/1.1 writes them."""
    return b"".join([b"%s: %s\r\n" % pair for pair in headers])


def _key_and_tag(target: bytes, headers: Pairs) -> tuple[Hashable, bytes | None]:
    """Under what the response to a GET is stored, its target and its Accept header, or None where more decides about
    it; and its If-None-Match."""
    accept = tag = None
    for name, value in headers:
        if name == b"accept" and accept is None:
            accept = value
        elif name == b"if-none-match" and tag is None:
            tag = value
        elif name in CONDITIONAL or name in (b"accept", b"range"):  # a second one of those above, too
            return None, None
    return (target, accept), tag
