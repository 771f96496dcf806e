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

MAX_KEYS: Final = 64
Pairs = Iterable[tuple[bytes, bytes]]
"""Names and values of headers."""


@dataclass(frozen=True, slots=True)
class Sources:
    """All keys of one store that a response was built from, and their versions.

    ``touched``: number of chunks among them; None if no cost is reported. ``until``: expiry of the response, whatever
    the versions, on the monotonic clock.
    """

    mount: MountedStore
    keys: tuple[str, ...]
    versions: list[str | None]
    touched: int | None
    until: float = inf


class Replay(NamedTuple):
    """A stored response; ``head``: its status line and headers in HTTP/1.1 form."""

    status: int
    route: str
    headers: Headers
    head: bytes
    body: Buffer


@dataclass(frozen=True, slots=True)
class _CachedResponse:
    """``found``: the response with status 200; None if only the 304 is stored."""

    sources: Sources
    etag: bytes
    found: Replay | None
    unchanged: Replay


class ResponseCache:
    """Cache of at most ``limit`` bytes of small responses, validated at each use; runs on the event loop.

    Only for local stores, where looking up versions costs microseconds.
    """

    def __init__(self, limit: int) -> None:
        self._responses: VersionedCache[_CachedResponse] = VersionedCache(limit)

    def stats(self) -> CacheStats:
        return self._responses.stats()

    def put(  # noqa: PLR0917
        self, scope: Scope, sources: Sources, etag: str, headers: Headers, always: Headers, data: Buffer | None
    ) -> None:
        """Store a small response with status 200 and few, local sources; ``always``: headers of a 304 too. ``data``
        None: only the 304 is stored."""
        key = None
        if scope["method"] == "GET" and "raw_path" in scope:
            key, _ = _key_and_tag(target_of(scope), scope["headers"])
        nbytes, touched = len(data or b""), sources.touched
        if key is None or sources.mount.is_remote or len(sources.keys) > MAX_KEYS or nbytes > 512 << 10:
            return
        if re.search(rb"[\x00-\x1f]", b"".join([value for _, value in (*headers, *always)])):  # line breaks in a header
            return
        cost = () if touched is None else cost_headers(touched, touched, None, {})[:1]
        found, route = None, scope[ROUTE]
        if data is not None:
            headers = (*headers, (b"content-length", b"%d" % nbytes), *cost)
            found = Replay(200, route, headers, b"HTTP/1.1 200 OK\r\n" + header_lines(headers), data)
        unchanged = Replay(304, route, always, b"HTTP/1.1 304 Not Modified\r\n" + header_lines(always), b"")
        cached = _CachedResponse(sources, etag.encode("latin-1"), found, unchanged)
        held = nbytes + 4096 + 512 * len(sources.keys)  # with its Python objects
        self._responses.put(key, "", cached, held)

    def replay(self, target: bytes, request_headers: Pairs) -> Replay | None:
        """The valid stored response to a GET, or None; a 304 for an ``If-None-Match`` with exactly its tag. ``target``
        as from `target_of`."""
        began = perf_counter()
        key, tag = _key_and_tag(target, request_headers)
        cached = None if key is None else self._responses.get(key, "")
        if cached is None or (tag is not None and tag != cached.etag):
            return None
        sources = cached.sources
        try:
            expired = monotonic() > sources.until
            now = None if expired else sources.mount.versions.look_up("", sources.keys)
        except (HyperslabError, VersionConflict):  # the endpoint reports the error
            now = None
        if now != sources.versions:
            self._responses.drop(key)
            return None
        found = cached.found if tag is None else cached.unchanged
        if found is None or found.status == 304 or sources.touched is None:
            return found
        timing = b"plan;dur=%.3f" % ((perf_counter() - began) * 1000)
        headers = (*found.headers, (b"server-timing", timing))
        return Replay(200, found.route, headers, b"%sserver-timing: %s\r\n" % (found.head, timing), found.body)


def target_of(scope: Scope) -> bytes:
    """The target of a request as sent, with the prefix removed by a proxy."""
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return b"%s?%s" % (path, query) if query else path


def header_lines(headers: Pairs) -> bytes:
    """Headers in HTTP/1.1 form."""
    return b"".join([b"%s: %s\r\n" % pair for pair in headers])


def _key_and_tag(target: bytes, headers: Pairs) -> tuple[Hashable, bytes | None]:
    """The cache key of a GET, its target and Accept header, or None if other headers affect the response; and its
    If-None-Match."""
    accept = tag = None
    for name, value in headers:
        if name == b"accept" and accept is None:
            accept = value
        elif name == b"if-none-match" and tag is None:
            tag = value
        elif name in CONDITIONAL or name in (b"accept", b"range"):  # a second one of those above, too
            return None, None
    return (target, accept), tag
