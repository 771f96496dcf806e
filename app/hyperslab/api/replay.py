"""Response cache. A stored response is replayed while every key that it was built from still has the same version."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf
from time import monotonic, perf_counter
from typing import Final

from starlette.types import Scope

from hyperslab.api.conditional import CONDITIONAL
from hyperslab.api.metrics import ROUTE
from hyperslab.api.response import Buffer, Headers, cost_headers
from hyperslab.arrays.nodes import MountedStore
from hyperslab.cache import CacheStats, VersionedCache
from hyperslab.errors import HyperslabError
from hyperslab.storage.base import VersionConflict

MOST_KEYS: Final = 64


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


@dataclass(frozen=True, slots=True)
class _CachedResponse:
    """``found``: headers and body of the response with status 200; None where only the 304 is known."""

    sources: Sources
    etag: bytes
    route: str
    found: tuple[Headers, Buffer] | None
    unchanged: Headers


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
        key, _ = _key_and_tag(scope)
        nbytes, touched = len(data or b""), sources.touched
        if key is None or sources.mount.is_remote or len(sources.keys) > MOST_KEYS or nbytes > 512 << 10:
            return
        cost = () if touched is None else cost_headers(touched, touched, None, {})[:1]
        found = None if data is None else ((*headers, (b"content-length", b"%d" % nbytes), *cost), data)
        cached = _CachedResponse(sources, etag.encode("latin-1"), scope[ROUTE], found, always)
        held = nbytes + 2048 + 512 * len(sources.keys)  # with the objects of Python that it takes
        self._responses.put(key, "", cached, held)

    def replay(self, scope: Scope) -> tuple[int, Headers, Buffer] | None:
        """Status, headers and body of the stored response to a request, if there is one and it still holds: 304 for an
        ``If-None-Match`` of just its tag."""
        began = perf_counter()
        key, tag = _key_and_tag(scope)
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
        if tag is None and cached.found is None:
            return None
        scope[ROUTE] = cached.route
        if tag is not None or cached.found is None:
            return 304, cached.unchanged, b""
        headers, body = cached.found
        if sources.touched is not None:
            headers = (*headers, (b"server-timing", b"plan;dur=%.3f" % ((perf_counter() - began) * 1000)))
        return 200, headers, body


def _key_and_tag(scope: Scope) -> tuple[Hashable, bytes | None]:
    """Under what the response to a request is stored, its target as it was sent and its Accept header, or None where
    more decides about it; and its If-None-Match."""
    accept = tag = None
    if scope["method"] != "GET" or "raw_path" not in scope:
        return None, None
    for name, value in scope["headers"]:
        if name == b"accept" and accept is None:
            accept = value
        elif name == b"if-none-match" and tag is None:
            tag = value
        elif name in CONDITIONAL or name in (b"accept", b"range"):  # a second one of those above, too
            return None, None
    return (scope["raw_path"], scope["query_string"], accept), tag
