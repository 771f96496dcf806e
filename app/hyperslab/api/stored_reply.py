"""Keys as the store has them, byte for byte; no codec is ever touched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from hyperslab.api.bodies import Bytes, Opened, Ready
from hyperslab.api.conditional import CONDITIONAL, strong_etag
from hyperslab.api.context import Context
from hyperslab.api.headers import caching
from hyperslab.api.ranges import ByteRange, place_of
from hyperslab.api.replay import Sources
from hyperslab.api.reply import Buffer, Headers
from hyperslab.api.representation import Representation
from hyperslab.api.request import Request
from hyperslab.arrays.cost import Cancel
from hyperslab.arrays.keys import DOCUMENTS, KeyReader, MadeKey, StoredKey
from hyperslab.arrays.nodes import MountedStore
from hyperslab.wire import JSON, RAW

_PIECE = 8 << 20
_WHOLE = 1 << 20
"""Values up to this size are read in one go, so that the tag sent is that of the bytes sent."""
_MAY_NEED_NONE = CONDITIONAL - {b"if-range"}
_NO_SNIFFING: Final = ((b"x-content-type-options", b"nosniff"),)


def wanted_bytes(mount: MountedStore, request: Request) -> tuple[int, int] | None:
    """Start and stop of the bytes to be read along with the size and the version of a key, so that a far store is asked
    once; None where it is better to look first. That costs nothing in a store that is near, and tells whether any bytes
    are needed, or which."""
    if not mount.is_remote or request.method != "GET" or request.has_any(_MAY_NEED_NONE):
        return None
    text = request.header(b"range")
    place = (0, None) if text is None else place_of(text)
    if place is None:
        return None
    start, stop = place
    return start, start + _WHOLE if stop is None else min(stop, start + _WHOLE)


async def stored_reply(context: Context, request: Request, found: StoredKey | MadeKey) -> Representation:
    """The answer for a key; its tag is the version that the store has given it."""
    media_type = JSON if found.key.rpartition("/")[2] in DOCUMENTS else RAW
    always = (*caching(found.mount, context.options), *_NO_SNIFFING)
    if isinstance(found, MadeKey):
        return Representation(context, strong_etag(found.version), media_type, Bytes(found.data), always=always)
    again = StoredBody(context.keys, found)
    body: Bytes | StoredBody = again
    if found.part is None and found.size <= _WHOLE and request.wants_all:
        found, body = await _read_whole(context, again)
        again = replace(again, found=found)
    sources = Sources(found.mount, (found.key,), [found.version], None)
    etag = strong_etag(found.version)
    return Representation(context, etag, media_type, body, always=always, modified=found.modified, sources=sources)


async def _read_whole(context: Context, body: StoredBody) -> tuple[StoredKey, Bytes]:
    found = body.found
    stored = await context.threads.run(context.keys.read, found)
    if stored.version != found.version:  # written since
        found = replace(found, version=stored.version, size=len(stored.data))
    return found, Bytes(stored.data)


@dataclass(frozen=True, slots=True)
class StoredBody:
    """A value in the store, read by ranges of the version that was found."""

    keys: KeyReader
    found: StoredKey

    @property
    def size(self) -> int:
        return self.found.size

    @property
    def memory(self) -> int:
        return min(self.found.size, 2 * _PIECE)

    def head(self) -> Headers:
        return ()

    @property
    def is_small(self) -> bool:
        return self.found.size <= _WHOLE and not self.found.mount.is_remote

    def ready(self, part: ByteRange) -> Ready | None:
        """What was read when the key was found; else the store must be asked."""
        held = self._held(part)
        return None if held is None or len(held) < len(part) or len(held) > _WHOLE else Ready(held)

    def fetch(self, part: ByteRange) -> Ready:
        return Ready(self.keys.read_range(self.found, part.start, part.stop))

    def open(self, part: ByteRange, cancel: Cancel) -> Opened:
        held = self._held(part) or memoryview(b"")

        def pieces() -> Iterator[Buffer]:
            for start in range(0, len(held), _PIECE):
                cancel.check()
                yield held[start : start + _PIECE]
            for start in range(part.start + len(held), part.stop, _PIECE):
                cancel.check()
                yield self.keys.read_range(self.found, start, min(start + _PIECE, part.stop))

        return Opened(pieces())

    def _held(self, part: ByteRange) -> memoryview | None:
        """The beginning of a part, as far as it was read when the key was found; None where nothing was."""
        return None if self.found.part is None else self.found.part.between(part.start, part.stop)
