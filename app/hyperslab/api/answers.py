"""Small complete answers that are asked for again and again: given once more as long as nothing they are made of
changed.

What is kept is never trusted: every time, the versions of all keys that the answer was made of are looked up, so it
is as fresh as one that is made anew. Only stores that are near take part, where that costs some microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from time import monotonic, perf_counter
from typing import Final

from starlette.types import Scope, Send

from hyperslab.api.headers import cost_headers
from hyperslab.api.reply import Buffer, Headers
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.versions import VersionBook
from hyperslab.cache import CacheStats, VersionedCache

MOST_KEYS: Final = 64
_LARGEST: Final = 256 << 10
_OVERHEAD: Final = 2048
_NEEDS_CARE: Final = frozenset((b"range", b"if-match", b"if-range", b"if-modified-since", b"if-unmodified-since"))

Identity = tuple[bytes, bytes, bytes]
"""Path and query as they were sent, and the Accept header."""


@dataclass(frozen=True, slots=True)
class Sources:
    """All keys of one store that an answer was made of, and the versions that they had; ``touched`` chunks among
    them."""

    mount: MountedStore
    keys: tuple[str, ...]
    versions: list[str | None]
    touched: int | None
    until: float = inf


@dataclass(frozen=True, slots=True)
class Kept:
    """The 200 that a GET was answered with; ``always`` are the headers that a 304 has too."""

    sources: Sources
    etag: str
    headers: Headers
    always: Headers
    body: Buffer


class Answers:
    """Keeps at most ``limit`` bytes of answers; lives on the event loop."""

    def __init__(self, limit: int, versions: VersionBook) -> None:
        self._kept: VersionedCache[Kept] = VersionedCache(limit)
        self._versions = versions

    def stats(self) -> CacheStats:
        return self._kept.stats()

    def keep(self, scope: Scope, kept: Kept) -> None:
        """Remember an answer, if it is small and its sources are few and near."""
        sources = kept.sources
        near = sources.mount.store.capabilities.cheap_stat
        identity = _identity(scope)
        if near and identity is not None and len(sources.keys) <= MOST_KEYS and len(kept.body) <= _LARGEST:
            self._kept.put(identity[0], "", kept, len(kept.body) + _OVERHEAD)

    async def send(self, scope: Scope, send: Send) -> bool:
        """Answer from memory; False, and nothing sent, where the answer has to be made."""
        identity = _identity(scope)
        kept = None if identity is None else self._kept.get(identity[0], "")
        if kept is None or identity is None:
            return False
        began = perf_counter()
        sources = kept.sources
        if monotonic() > sources.until or self._looked_up(sources) != sources.versions:
            self._kept.drop(identity[0])
            return False
        tags = identity[1]
        if tags is not None and tags != kept.etag.encode("latin-1"):
            return False
        await _send(kept, send, perf_counter() - began, unchanged=tags is not None)
        return True

    def _looked_up(self, sources: Sources) -> list[str | None]:
        return self._versions.versions(sources.mount, "", sources.keys)


async def _send(kept: Kept, send: Send, seconds: float, *, unchanged: bool) -> None:
    if unchanged:
        await send({"type": "http.response.start", "status": 304, "headers": list(kept.always)})
        await send({"type": "http.response.body", "body": b""})
        return
    touched = kept.sources.touched
    cost = () if touched is None else cost_headers(touched, touched, None, {"plan": seconds})
    headers = [*kept.headers, *cost]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": kept.body})


def _identity(scope: Scope) -> tuple[Identity, bytes | None] | None:
    """What the request asks for, and its If-None-Match; None where more than that decides about the answer."""
    if scope["method"] != "GET":
        return None
    accept, tags = b"", None
    for name, value in scope["headers"]:
        if name == b"accept":
            accept = value
        elif name == b"if-none-match":
            tags = value
        elif name in _NEEDS_CARE:
            return None
    return (scope.get("raw_path") or scope["path"].encode(), scope["query_string"], accept), tags
