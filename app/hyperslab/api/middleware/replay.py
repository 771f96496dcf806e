"""Response cache, and the middleware that answers from it. A stored response is replayed while every key that it was
built from still has the same version."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from math import inf
from time import monotonic, perf_counter
from typing import Final, NamedTuple

from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from hyperslab.api.conditional import CONDITIONAL
from hyperslab.api.response import HELD, METHOD, Buffer, Headers, cost_headers
from hyperslab.arrays.nodes import MountedStore
from hyperslab.cache import CacheStats, VersionedCache
from hyperslab.errors import HyperslabError
from hyperslab.storage.base import VersionConflict

MAX_KEYS: Final = 64
WHO: Final = "hyperslab.who"
"""Scope key: who asks, if that decides what the response is."""


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


class StoredResponse(NamedTuple):
    """A stored response to a request of ``route``."""

    status: int
    route: BaseRoute
    headers: Headers
    body: Buffer


@dataclass(frozen=True, slots=True)
class _CachedResponse:
    """``found``: the response with status 200; None if only the 304 is stored."""

    sources: Sources
    etag: bytes
    found: StoredResponse | None
    unchanged: StoredResponse


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
        key, _ = _key_and_tag(scope) if scope[METHOD] == "GET" else (None, None)
        nbytes, touched = len(data or b""), sources.touched
        if key is None or sources.mount.is_remote or len(sources.keys) > MAX_KEYS or nbytes > 512 << 10:
            return
        cost = () if touched is None else cost_headers(touched, touched, None, {})[:1]
        stored, route = None, scope["route"]
        if data is not None:
            headers = (*headers, (b"content-length", b"%d" % nbytes), *cost)
            stored = StoredResponse(200, route, headers, data)
        unchanged = StoredResponse(304, route, always, b"")
        cached = _CachedResponse(sources, etag.encode("latin-1"), stored, unchanged)
        held = nbytes + 4096 + 512 * len(sources.keys)  # with its Python objects
        self._responses.put(key, "", cached, held)

    def get(self, scope: Scope) -> StoredResponse | None:
        """The valid stored response to a GET, or None; a 304 for an ``If-None-Match`` with exactly its tag."""
        began = perf_counter()
        key, tag = _key_and_tag(scope)
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
        return StoredResponse(200, found.route, (*found.headers, (b"server-timing", timing)), found.body)


class Replay:
    """Answers from the cache, in front of the router; releases what a request holds that gets there."""

    def __init__(self, app: ASGIApp, responses: ResponseCache) -> None:
        self._app = app
        self._responses = responses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stored = self._responses.get(scope) if scope.get(METHOD) == "GET" else None
        if stored is None:
            async with AsyncExitStack() as held:
                scope[HELD] = held
                await self._app(scope, receive, send)
            return
        scope["route"] = stored.route
        await send({"type": "http.response.start", "status": stored.status, "headers": stored.headers})
        await send({"type": "http.response.body", "body": stored.body})


def _key_and_tag(scope: Scope) -> tuple[Hashable, bytes | None]:
    """The cache key of a GET, or None if other headers affect the response; and its If-None-Match.

    The key is path, query, Accept header, and who asks: None, as everybody who may read sees the same.
    """
    accept = tag = None
    for name, value in scope["headers"]:
        if name == b"accept" and accept is None:
            accept = value
        elif name == b"if-none-match" and tag is None:
            tag = value
        elif name in CONDITIONAL or name in (b"accept", b"range"):  # a second one of those above, too
            return None, None
    return (scope["path"], scope["query_string"], accept, scope.get(WHO)), tag
