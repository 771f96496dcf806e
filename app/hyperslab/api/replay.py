"""Response cache. A stored response is replayed while every key that it was built from still has the same version."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from time import monotonic, perf_counter
from typing import Final

from hyperslab.api.request import Request
from hyperslab.api.response import Buffer, Headers, Response, cost_headers
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.versions import VersionBook
from hyperslab.cache import CacheStats, VersionedCache
from hyperslab.errors import HyperslabError
from hyperslab.storage.base import VersionConflict

MOST_KEYS: Final = 64
_LARGEST: Final = 512 << 10
_OVERHEAD: Final = 2048
_PER_KEY: Final = 512


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
    sources: Sources
    etag: str
    found: Response | None
    unchanged: Response


class ResponseCache:
    """At most ``limit`` bytes of small responses, checked for changes each time; lives on the event loop.

    Only local stores take part, where looking up versions costs microseconds.
    """

    def __init__(self, limit: int, versions: VersionBook) -> None:
        self._responses: VersionedCache[_CachedResponse] = VersionedCache(limit)
        self._versions = versions

    def stats(self) -> CacheStats:
        return self._responses.stats()

    def put(  # noqa: PLR0917
        self, request: Request, sources: Sources, etag: str, headers: Headers, always: Headers, data: Buffer | None
    ) -> None:
        """Store a response with status 200, if it is small and its sources are few and local; ``always`` are the
        headers that a 304 has too. ``data`` None: only the 304 is known."""
        key, nbytes = request.cache_key, len(data or b"")
        if key is None or sources.mount.is_remote or len(sources.keys) > MOST_KEYS or nbytes > _LARGEST:
            return
        found = None if data is None else Response(200, headers, data)
        cached = _CachedResponse(sources, etag, found, Response(304, always))
        self._responses.put(key, "", cached, nbytes + _OVERHEAD + _PER_KEY * len(sources.keys))

    def replay(self, request: Request) -> Response | None:
        """The stored response, if there is one and it still holds: 304 for an ``If-None-Match`` of just its tag."""
        began = perf_counter()
        key = request.cache_key
        cached = None if key is None else self._responses.get(key, "")
        tags = request.header(b"if-none-match")
        if cached is None or (tags is not None and tags != cached.etag):
            return None
        sources, touched = cached.sources, cached.sources.touched
        try:
            now = self._versions.versions(sources.mount, "", sources.keys)
        except (HyperslabError, VersionConflict):  # the endpoint will try as well, and say what is wrong
            now = None
        if now != sources.versions or monotonic() > sources.until:
            self._responses.drop(key)
            return None
        if tags is not None:
            return cached.unchanged
        if cached.found is None or touched is None:
            return cached.found
        cost = cost_headers(touched, touched, None, {"plan": perf_counter() - began})
        return Response(200, (*cached.found.headers, *cost), cached.found.body)
