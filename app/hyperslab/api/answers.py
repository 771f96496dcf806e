"""Answers to what is asked for again and again: given once more, unparsed, while nothing they are made of has changed.

Of every small answer the head is kept and how its body was planned; of those that fit into the cache the body too. What
is kept is never trusted: every time, the versions of all keys that the answer was made of are looked up, so it is as
fresh as one that is made anew. Only stores that are near take part, where that costs some microseconds.

Requests that came in together share a look-up. What one turn of the event loop finds on its sockets was sent before
the turn began, so a look-up made during the turn is later than all of them, and no client can tell it from its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf
from time import monotonic, perf_counter
from typing import Final, NamedTuple

from starlette.types import Scope

from hyperslab.api.bodies import Effort, Ready, Rereadable, fits_the_loop
from hyperslab.api.headers import cost_headers
from hyperslab.api.params import raw_path
from hyperslab.api.reply import Buffer, Headers
from hyperslab.api.threads import Threads
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.versions import VersionBook
from hyperslab.cache import CacheStats, VersionedCache
from hyperslab.errors import HyperslabError
from hyperslab.storage.base import VersionConflict

MOST_KEYS: Final = 64
GRACE: Final = 0.5
"""Seconds for which an answer that is too old is still given while one request makes it anew."""
_LARGEST: Final = 512 << 10
_OVERHEAD: Final = 2048
_PER_KEY: Final = 512
_HEAD_BYTES: Final = 8 << 20
_NEEDS_CARE: Final = frozenset((b"range", b"if-match", b"if-range", b"if-modified-since", b"if-unmodified-since"))

Identity = tuple[bytes, bytes]
"""The request's target as it was sent, path and query, and the Accept header."""


class Asked(NamedTuple):
    """What a GET asks for; ``tags``: its If-None-Match."""

    identity: Identity
    tags: bytes | None


@dataclass(frozen=True, slots=True)
class Sources:
    """All keys of one store that an answer was made of, and the versions that they had; ``touched`` chunks among
    them, and ``documents`` before them. ``body`` reads it anew. ``until``: the time of the monotonic clock up to which
    nothing else counts."""

    mount: MountedStore
    keys: tuple[str, ...]
    versions: list[str | None]
    touched: int | None
    documents: int = 0
    body: Rereadable | None = None
    until: float = inf


@dataclass(eq=False)
class Kept:
    """How a GET was answered with 200; ``always`` are the headers that a 304 has too. ``renewing``: some request is
    making it anew because of its age."""

    sources: Sources
    etag: str
    headers: Headers
    always: Headers
    route: str
    renewing: bool = False

    @cached_property
    def tag(self) -> bytes:
        return self.etag.encode("latin-1")

    @cached_property
    def lines(self) -> bytes:
        """``headers`` as they go over the wire."""
        return header_lines(self.headers)

    @cached_property
    def always_lines(self) -> bytes:
        return header_lines(self.always)

    @property
    def nbytes(self) -> int:
        """An estimate of what is held beside the body."""
        return _OVERHEAD + _PER_KEY * len(self.sources.keys)


class Given(NamedTuple):
    """A kept answer that holds, made ready in ``seconds``; ``ready`` is None where the client has it (304)."""

    kept: Kept
    ready: Ready | None
    seconds: float

    @property
    def status(self) -> int:
        return 304 if self.ready is None else 200

    @property
    def body(self) -> Buffer:
        return b"" if self.ready is None else self.ready.data

    @property
    def cost(self) -> Headers:
        """What the answer has cost; nothing for those that never tell."""
        return () if self.ready is None else self.ready.headers


class Answers:
    """Keeps at most ``limit`` bytes of bodies, and some thousand heads; lives on the event loop."""

    def __init__(self, limit: int, versions: VersionBook, threads: Threads) -> None:
        self._kept: VersionedCache[Kept] = VersionedCache(_HEAD_BYTES)
        self._bodies: VersionedCache[Buffer] = VersionedCache(limit)
        self._versions = versions
        self._threads = threads
        self._turn = _Turn()

    def stats(self) -> CacheStats:
        """Those of the bodies."""
        return self._bodies.stats()

    def keep(self, identity: Identity, kept: Kept, data: Buffer) -> None:
        """Remember the answer to a GET, if it is small and its sources are few and near."""
        sources = kept.sources
        if not sources.mount.is_far and len(sources.keys) <= MOST_KEYS:
            self._kept.put(identity, "", kept, kept.nbytes)
            if len(data) <= _LARGEST and self._bodies.limit:
                self._bodies.put(identity, kept.etag, data, len(data) + _OVERHEAD)

    def find(self, asked: Asked, *, shared: bool = False, waited: bool = False) -> Given | None:
        """What answers a GET; None where the answer has to be made.

        ``shared``: a look-up of the same turn of the event loop will do. Only for a request whose first byte was there
        when the turn began. ``waited``: the caller has waited for its `turn`.
        """
        identity, tags = asked
        kept = self._kept.get(identity, "")
        if kept is None:
            return None
        began = perf_counter()
        data = self._bodies.get(identity, kept.etag) if self._bodies.limit and tags is None else None
        if tags is None and data is None:
            return self._read(identity, kept, shared=shared, waited=waited, began=began)
        if not self._still_holds(identity, kept, len(kept.sources.keys), shared=shared):
            return None
        if data is not None:
            return Given(kept, _again(data, kept.sources, began), perf_counter() - began)
        return Given(kept, None, perf_counter() - began) if tags == kept.tag else None

    def only_waits(self, asked: Asked) -> bool:
        """Whether `find` gave nothing only because the event loop had done enough in its turn."""
        kept = self._kept.get(asked.identity, "") if asked.tags is None else None
        body = None if kept is None else kept.sources.body
        return body is not None and body.effort is Effort.BRIEF

    async def turn(self) -> None:
        """Wait until the event loop may read what `only_waits`."""
        await self._threads.turn()

    def _still_holds(self, identity: Identity, kept: Kept, count: int, *, shared: bool) -> bool:
        """Whether neither the first ``count`` of its sources have changed nor its age asks for a new one."""
        if shared and self._turn.has_seen(identity, kept):
            return True
        if _is_due(kept):
            return False
        sources = kept.sources
        if self._versions.versions(sources.mount, "", sources.keys[:count]) != sources.versions[:count]:
            self._drop(identity)
            return False
        if count == len(sources.keys):
            self._turn.note(identity, kept)
        return True

    def _read(self, identity: Identity, kept: Kept, *, shared: bool, waited: bool, began: float) -> Given | None:
        """The answer with its body read anew, if the event loop can do that."""
        sources, body = kept.sources, kept.sources.body
        if body is None or not (waited or fits_the_loop(body.effort, self._threads)):
            return None
        count = sources.documents if body.verifies else len(sources.keys)
        if not self._still_holds(identity, kept, count, shared=shared):
            return None
        try:
            ready = body.fetch_again({"plan": perf_counter() - began})
        except (HyperslabError, VersionConflict):  # the application will try as well, and say what is wrong
            ready = None
        if ready is None:
            self._drop(identity)
            return None
        return Given(kept, ready, perf_counter() - began)

    def _drop(self, identity: Identity) -> None:
        self._kept.drop(identity)
        self._bodies.drop(identity)


class _Turn:
    """What was looked up in the running turn of the event loop."""

    _MOST_SOCKETS: Final = 1000
    """libuv looks at its sockets again within a turn where more than 1,024 of them had something to say."""

    def __init__(self) -> None:
        self._held: dict[Identity, Kept] = {}
        self._asked = 0

    def has_seen(self, identity: Identity, kept: Kept) -> bool:
        """Whether this very answer was found to hold."""
        self._asked += 1
        return self._held.get(identity) is kept and self._asked < self._MOST_SOCKETS

    def note(self, identity: Identity, kept: Kept) -> None:
        """Remember it until the loop turns to its sockets again: callbacks run before that."""
        if not self._held:
            self._asked = 0
            asyncio.get_running_loop().call_soon(self._held.clear)
        self._held[identity] = kept


def _is_due(kept: Kept) -> bool:
    """Whether this request is to make the answer anew because of its age: the first one that comes too late, and all
    that come after the grace in which that one should have been done."""
    late = monotonic() - kept.sources.until
    if late <= 0 or (kept.renewing and late <= GRACE):
        return False
    kept.renewing = True
    return True


def _again(data: Buffer, sources: Sources, began: float) -> Ready:
    """A body that was kept, and what it costs now."""
    touched = sources.touched
    if touched is None:
        return Ready(data)
    return Ready(data, cost_headers(touched, touched, None, {"plan": perf_counter() - began}))


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as they go over the wire; what comes from untrusted documents was encoded where they were made."""
    return b"".join([b"%s: %s\r\n" % pair for pair in headers])


def target_of(scope: Scope) -> bytes:
    """Path (see `raw_path`) and query of a request as they were sent."""
    path, query = raw_path(scope), scope["query_string"]
    return path + b"?" + query if query else path


def what_is_asked(target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Asked | None:
    """What a GET asks for; None where more than that decides about the answer. Header names are in lower case.

    Several lines of one header are one list (RFC 9110 §5.3).
    """
    accept, tags = b"", None
    for name, value in headers:
        if name == b"accept":
            accept = accept + b", " + value if accept else value
        elif name == b"if-none-match":
            tags = value if tags is None else tags + b", " + value
        elif name in _NEEDS_CARE:
            return None
    return Asked((target, accept), tags)
