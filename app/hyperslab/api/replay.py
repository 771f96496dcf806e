"""Response cache. A stored response is replayed while every key that it was built from still has the same version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from time import monotonic, perf_counter
from typing import Final, NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from hyperslab.api.headers import cost_headers
from hyperslab.api.metrics import ROUTE
from hyperslab.api.params import raw_path
from hyperslab.api.reply import Buffer, Headers
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.versions import VersionBook
from hyperslab.cache import CacheStats, VersionedCache
from hyperslab.errors import HyperslabError
from hyperslab.storage.base import VersionConflict

CACHE_KEY: Final = "hyperslab.cache_key"
"""In the scope of a GET whose answer may be replayed: its `CacheKey`."""
MOST_KEYS: Final = 64
_LARGEST: Final = 512 << 10
_OVERHEAD: Final = 2048
_PER_KEY: Final = 512
_NEEDS_CARE: Final = frozenset((b"range", b"if-match", b"if-range", b"if-modified-since", b"if-unmodified-since"))


class CacheKey(NamedTuple):
    """The target of a GET as it was sent, path and query, and its Accept header."""

    target: bytes
    accept: bytes


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
class CachedResponse:
    """A whole response with status 200; ``always`` are the headers that a 304 has too."""

    sources: Sources
    etag: bytes
    headers: Headers
    always: Headers
    data: Buffer
    route: str


class ResponseCache:
    """At most ``limit`` bytes of small responses, checked for changes each time; lives on the event loop.

    Only local stores take part, where looking up versions costs microseconds.
    """

    def __init__(self, limit: int, versions: VersionBook) -> None:
        self._responses: VersionedCache[CachedResponse] = VersionedCache(limit)
        self._versions = versions

    def stats(self) -> CacheStats:
        return self._responses.stats()

    def put(self, key: CacheKey, response: CachedResponse) -> None:
        """Store a response, if it is small and its sources are few and local."""
        sources = response.sources
        if not sources.mount.is_remote and len(sources.keys) <= MOST_KEYS and len(response.data) <= _LARGEST:
            nbytes = len(response.data) + _OVERHEAD + _PER_KEY * len(sources.keys)
            self._responses.put(key, "", response, nbytes)

    def get(self, key: CacheKey) -> CachedResponse | None:
        """The response, if it is stored and still holds. Raises what the store raises."""
        response = self._responses.get(key, "")
        if response is None:
            return None
        sources = response.sources
        if monotonic() > sources.until or self._versions.versions(sources.mount, "", sources.keys) != sources.versions:
            self._responses.drop(key)
            return None
        return response


class Replay:
    """Middleware that replays cached responses. A request with an ``If-None-Match`` of just the tag gets 304."""

    def __init__(self, app: ASGIApp, cache: ResponseCache) -> None:
        self._app = app
        self._cache = cache

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        key, tags = _cache_key(scope)
        response = None if key is None else self._find(key)
        if response is None or (tags is not None and tags != response.etag):
            scope[CACHE_KEY] = key
            await self._app(scope, receive, send)
            return
        scope[ROUTE] = response.route
        status, headers, body = 200, response.headers, response.data
        if tags is not None:
            status, headers, body = 304, response.always, b""
        elif response.sources.touched is not None:
            touched = response.sources.touched
            headers = (*headers, *cost_headers(touched, touched, None, {"plan": perf_counter() - began}))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _find(self, key: CacheKey) -> CachedResponse | None:
        try:
            return self._cache.get(key)
        except (HyperslabError, VersionConflict):  # the application will try as well, and say what is wrong
            return None


def _cache_key(scope: Scope) -> tuple[CacheKey | None, bytes | None]:
    """What a GET asks for, and its If-None-Match; None where more than that decides about the answer."""
    accept, tags = b"", None
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    for name, value in headers:
        if name == b"accept":  # several lines of one header are one list (RFC 9110 §5.3)
            accept = accept + b", " + value if accept else value
        elif name == b"if-none-match":
            tags = value if tags is None else tags + b", " + value
        elif name in _NEEDS_CARE:
            return None, None
    path, query = raw_path(scope), scope["query_string"]
    return CacheKey(path + b"?" + query if query else path, accept), tags
