"""Keys as the store has them, byte for byte; no codec is ever touched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hyperslab.api.conditional import CONDITIONAL, strong_etag
from hyperslab.api.context import Context, runs_on_loop
from hyperslab.api.ranges import ByteRange, place_of
from hyperslab.api.replay import Sources
from hyperslab.api.representation import Representation
from hyperslab.api.request import Request
from hyperslab.api.response import Buffer, Headers, caching
from hyperslab.arrays.cancel import Cancel
from hyperslab.arrays.keys import NAMES, KeyReader, MadeKey, StoredKey
from hyperslab.arrays.nodes import MountedStore
from hyperslab.wire import JSON, RAW

_PIECE: Final = 8 << 20


async def find_key(context: Context, request: Request, mount: MountedStore, path: str) -> StoredKey | MadeKey:
    """The key at ``path``. Bytes come along with its size and version, by one request, where some are sure to be
    wanted and it is clear which; else it is looked up, a chunk of a local store on the event loop. Documents may have
    to be made, which blocks."""
    wanted = wanted_bytes(request)
    if wanted is None and runs_on_loop(mount) and path.rpartition("/")[2] not in NAMES:
        return context.keys.find(path)
    return await context.threads.run(context.keys.find, path, wanted)


def wanted_bytes(request: Request) -> tuple[int, int] | None:
    """Start and stop of the bytes to be read at once; None where it is better to look first."""
    if request.method != "GET" or not CONDITIONAL.intersection(request.headers) <= {b"if-range"}:
        return None
    text = request.header(b"range")
    place = (0, None) if text is None else place_of(text)
    if place is None:
        return None
    start, stop = place
    most = start + (1 << 20)  # so much is read along with its size and version
    return start, most if stop is None else min(stop, most)


def stored_reply(context: Context, found: StoredKey | MadeKey) -> Representation:
    """The answer for a key; its tag is the version that the store has given it."""
    media_type = JSON if found.key.rpartition("/")[2] in NAMES else RAW
    always = (*caching(found.mount, context.options), (b"x-content-type-options", b"nosniff"))
    if isinstance(found, MadeKey):
        return Representation(context, strong_etag(found.version), media_type, found.data, always=always)
    etag, sources = strong_etag(found.version), None
    if not found.is_whole:  # a piece of a value is named by where it lies
        etag = f'{etag[:-1]}-{found.offset}-{found.size}"'
    if found.documents is not None:
        keys, versions = (found.key, *found.documents), [found.version, *found.documents.values()]
        sources = Sources(found.mount, keys, versions, None)
    begun = found.begun(0, found.size)
    body: Buffer | StoredBody = begun if len(begun) == found.size else StoredBody(context.keys, found)
    return Representation(context, etag, media_type, body, always=always, modified=found.modified, sources=sources)


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

    def cost(self) -> Headers:
        return ()

    def open(self, part: ByteRange, cancel: Cancel) -> Iterator[Buffer]:
        """What was read when the key was found, and then the rest."""
        begun = self.found.begun(part.start, part.stop)
        if begun:
            yield begun
        for start in range(part.start + len(begun), part.stop, _PIECE):
            cancel.check()
            yield self.keys.read_range(self.found, start, min(start + _PIECE, part.stop))
