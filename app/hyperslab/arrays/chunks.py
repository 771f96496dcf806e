"""One chunk at a time: from the cache or the store into its place in the answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from hyperslab.arrays.cost import ReadCost
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import Projection
from hyperslab.arrays.scratch import Block, Bytes, Scratch
from hyperslab.arrays.sources import UNKNOWN, Fetched, NearSource, Pulled, make_source
from hyperslab.cache import Recent, Vanished, VersionedCache
from hyperslab.engine.codecs_chain import Buffer
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import ChunkProjection
from hyperslab.engine.partial import PartialDecoder, Stored, Wanted, Whole
from hyperslab.engine.runs import Run
from hyperslab.errors import ChunkNotFound

NDArray = np.ndarray[Any, np.dtype[Any]]
ChunkCache = VersionedCache[NDArray]

_LARGE_CHUNK = 1 << 20
_BYTES_PER_ITEM = 256
"""Bytes of a chunk that are put together in the time that finding and taking one item by itself takes, with room to
spare."""
_ITEMS_PER_ITEM = 16
"""The same in items: where the bytes of one lie takes eight times its own memory."""
_ROOM_SHARE = 64
_ROOM = 4 << 10
"""What does not compress is stored in a few bytes more."""


class Caching(Enum):
    """When a decoded chunk gets a place in the cache.

    ``AT_ONCE``: small answers, which are what viewers and loops ask for. ``WHEN_ASKED_AGAIN``: larger ones, which are
    often read once and for which decoding straight into the answer is faster. ``NEVER``: answers so large that they
    would push everything else out of the cache.
    """

    AT_ONCE = 0
    WHEN_ASKED_AGAIN = 1
    NEVER = 2


@dataclass(frozen=True, slots=True)
class ChunkMemory:
    """The decoded chunks that are kept, the keys of those that were asked for lately, and buffers for the others."""

    cache: ChunkCache
    recent: Recent
    scratch: Scratch


@dataclass(frozen=True, slots=True)
class Keeper:
    """Which chunks of an array one answer puts into the cache."""

    array: ArrayNode
    memory: ChunkMemory
    caching: Caching

    def wants(self, key: str, version: str, *, part: bool = False) -> bool:
        """Whether the chunk is to be decoded whole and cached; of a large one only a part is read the first time."""
        nbytes = self.array.metadata.chunk_nbytes
        if self.caching is Caching.NEVER or nbytes > self.memory.cache.limit:
            return False
        if self.caching is Caching.AT_ONCE and not (part and nbytes >= _LARGE_CHUNK):
            return True
        return self.memory.recent.again(cache_key(self.array, key), version)

    def keep(self, key: str, version: str, chunk: NDArray) -> None:
        """Cache a copy of a chunk, if it is wanted."""
        if self.wants(key, version):
            kept = chunk.copy(order="K")
            kept.setflags(write=False)
            self.memory.cache.put(cache_key(self.array, key), version, kept, chunk_nbytes(kept))


class Piece:
    """The part of one chunk that an answer needs, and what is worked out once about it."""

    __slots__ = ("_judged", "_metadata", "_runs", "key", "projection")

    def __init__(self, array: ArrayNode, projection: Projection) -> None:
        self.projection = projection
        self.key = array.chunk_key(projection.coords)
        self._metadata = array.metadata
        self._runs: Sequence[Run] | None = None
        self._judged: tuple[int | None, bool] | None = None

    def runs(self) -> Sequence[Run] | None:
        """The items needed, where reading only them is worth it; else None."""
        partial = self._metadata.codec.partial
        if partial is None or self.projection.covers_chunk:
            return None
        runs = self.all_runs(partial)
        if self._judged is None or self._judged[0] != partial.learned:
            self._judged = partial.learned, partial.worth_it(runs)
        return runs if self._judged[1] else None

    def all_runs(self, partial: PartialDecoder) -> Sequence[Run]:
        """The items needed, worth it or not."""
        if self._runs is None:
            metadata = self._metadata
            self._runs = self.projection.item_runs(metadata.chunks, metadata.order, gap=partial.gap)
        return self._runs

    def by_item(self) -> PartialDecoder | None:
        """What decodes single items, where so few of the chunk's are needed that it is worth it; else None."""
        metadata, partial = self._metadata, self._metadata.codec.partial
        if partial is None or not partial.finds_items:
            return None
        each = max(_BYTES_PER_ITEM, _ITEMS_PER_ITEM * metadata.dtype.itemsize)
        return partial if self.projection.size * each <= metadata.chunk_nbytes else None

    def decoded(self) -> int:
        """About how many bytes are decoded where nothing is cached."""
        partial, runs = self._metadata.codec.partial, self.runs()
        return self._metadata.chunk_nbytes if partial is None or runs is None else partial.work(runs)

    def effort(self) -> float:
        """About what decoding takes where nothing is cached: in bytes that LZ4 makes in the same time."""
        return self.decoded() * self._metadata.codec.effort


class Pending(NamedTuple):
    """A piece whose chunk was fetched in ``seconds``, perhaps into a block, and is to be decoded.

    ``fetched``: None where it is absent.
    """

    piece: Piece
    fetched: Fetched | None
    runs: Sequence[Run] | None
    block: Block | None
    seconds: float


class ChunkReader:
    """Reads the chunks of one array, or of one field, one at a time: ``nbytes`` each, decoded. Safe to call from many
    threads."""

    def __init__(self, array: ArrayNode, keeper: Keeper, field: Field | None) -> None:
        self._array = array
        self._metadata = array.metadata
        self._codec = array.metadata.codec
        self._keeper = keeper
        self._cache = keeper.memory.cache
        self._scratch = keeper.memory.scratch
        self._field = field.name if field is not None else None
        self._store = array.mount.store
        self._source = make_source(array)
        self.nbytes = nbytes = array.metadata.chunk_nbytes
        self._room = nbytes + nbytes // _ROOM_SHARE + _ROOM
        fill = array.metadata.fill
        self._fill: NDArray = fill if field is None else fill[field.name]

    @property
    def takes_parts(self) -> bool:
        """Whether parts of stored chunks are fetched, by requests that have to be of one version."""
        return self._source.partial is not None

    def piece(self, projection: Projection) -> Piece:
        """What to ask `fetch` for."""
        return Piece(self._array, projection)

    def read_cached(self, piece: Piece, version: str | None, out: NDArray, cost: ReadCost) -> bool:
        """Place a chunk that needs no I/O; False, and nothing done, where it does. ``version``: None where the chunk is
        absent, `UNKNOWN` where nobody has looked."""
        if version is None:
            self._absent(piece, out)
            return True
        if version == UNKNOWN or not self._cache.limit:
            return False
        chunk = self._cache.get(cache_key(self._array, piece.key), version)
        if chunk is None:
            return False
        self._place(piece.projection, chunk, out)
        cost.add(cached=1)
        return True

    def fetch(self, piece: Piece, version: str | None, out: NDArray, cost: ReadCost) -> Pending | None:
        """The first half of reading what an answer needs of a chunk, which waits for the store; what is left to do, if
        anything, is for `finish`. ``version`` as in `read_cached`.

        Raises `ChunkCorrupt`, `StoreError`, and `ChunkNotFound` where missing chunks are not to be filled.
        """
        if self.read_cached(piece, version, out, cost):
            return None
        assert version is not None
        runs = piece.runs()
        if self._keeper.wants(piece.key, version, part=runs is not None):
            if self._read_through_cache(piece, version, out, cost) != version:
                cost.moved = True
            return None
        block = self._scratch.take(self._room) if self._source.into_memory else None
        memory = None if block is None else block.memory
        if memory is not None and runs is not None and self._pull_items(piece, version, memory, out, cost=cost):
            self._give_back(block)
            return None
        start = perf_counter()
        fetched = self._source.fetch(piece.key, version, runs, memory)
        if fetched is None or (version != UNKNOWN and fetched.version not in (None, version)):
            cost.moved = True
        return Pending(piece, fetched, runs, block, perf_counter() - start)

    def fetch_latest(
        self, piece: Piece, current: Callable[[str], str | None], out: NDArray, cost: ReadCost
    ) -> tuple[str | None, Pending | None]:
        """As `fetch`, of whatever version there is, and that version (None: absent). One request for each chunk: only
        of what is cached ``current`` is asked for the version, of the rest it comes with the data."""
        key = piece.key
        if self._cache.any_version(cache_key(self._array, key)) is not None:
            version = current(key)
            if self.read_cached(piece, version, out, cost):
                return version, None
        if self._keeper.wants(key, UNKNOWN, part=piece.runs() is not None):
            return self._read_through_cache(piece, UNKNOWN, out, cost), None
        start = perf_counter()
        fetched = self._source.fetch(key, UNKNOWN, None, None)
        pending = Pending(piece, fetched, piece.runs(), None, perf_counter() - start)
        return None if fetched is None else fetched.version, pending

    def finish(self, pending: Pending, out: NDArray, cost: ReadCost) -> None:
        """The second half: decode, and place. Raises as `fetch` does."""
        piece, fetched, runs, block, seconds = pending
        if fetched is None:
            self._absent(piece, out)
        else:
            began, whole = perf_counter(), fetched.whole
            if whole is None or not (
                self._decode_items(piece, whole, out) or self._decode_into_place(piece, whole, out)
            ):
                memory = None if block is None else block.memory
                self._decode_beside(piece, fetched, out, runs=runs, memory=memory)
            cost.chunk(fetched.nbytes, fetch=seconds, decode=perf_counter() - began)
        self._give_back(block)

    def _give_back(self, block: Block | None) -> None:
        if block is not None:
            self._scratch.give_back(block)

    def _read_through_cache(self, piece: Piece, version: str, out: NDArray, cost: ReadCost) -> str | None:
        """Returns the version that was read, None where the chunk is absent by now."""
        key = piece.key

        def load() -> tuple[NDArray, str, int]:
            start = perf_counter()
            stored = self._store.get(key)
            fetched = perf_counter()
            if stored is None:
                raise Vanished
            chunk: NDArray = self._codec.decode(stored.data, key)
            chunk.setflags(write=False)
            cost.chunk(len(stored.data), fetch=fetched - start, decode=perf_counter() - fetched)
            return chunk, stored.version, chunk_nbytes(chunk)

        try:
            loaded = self._cache.load(cache_key(self._array, key), version, load, count_miss=False)
        except Vanished:
            self._absent(piece, out)
            return None
        if loaded.was_there:
            cost.add(cached=1)
        self._place(piece.projection, loaded.value, out)
        return loaded.version

    def _pull_items(self, piece: Piece, version: str, memory: Bytes, out: NDArray, *, cost: ReadCost) -> bool:
        """Fetch and decode single items, what leads to one after the other; False where that does not pay."""
        partial = piece.by_item()
        if partial is None or not partial.takes_items or not isinstance(self._source, NearSource):
            return False
        start, fetch, done = perf_counter(), 0.0, True

        def take(pulled: Pulled) -> None:
            nonlocal done, fetch
            done = self._place_items(piece, partial, pulled, out)
            fetch = pulled.seconds

        taken = self._source.pull(piece.key, memory, take)
        if taken is None or version not in (UNKNOWN, taken.version):
            cost.moved = True
        if taken is None:
            self._absent(piece, out)
        elif done:
            cost.chunk(taken.nbytes, fetch=fetch, decode=perf_counter() - start - fetch)
        return done

    def _decode_items(self, piece: Piece, stored: Buffer, out: NDArray) -> bool:
        """Decode single items of a whole chunk; False where that does not pay."""
        partial = piece.by_item()
        return partial is not None and self._place_items(piece, partial, Whole(stored), out)

    def _decode_beside(
        self, piece: Piece, fetched: Fetched, out: NDArray, *, runs: Sequence[Run] | None, memory: Bytes | None
    ) -> None:
        """Decode into other memory, and copy from there. What was fetched into ``memory`` and needs no decoding stays
        there."""
        if not self._codec.links:
            self._place(piece.projection, self._decoded(fetched, piece.key, runs, memory), out)
            return
        other = self._scratch.take(self._metadata.chunk_nbytes)
        self._place(piece.projection, self._decoded(fetched, piece.key, runs, other.memory), out)
        self._scratch.give_back(other)

    def _place_items(self, piece: Piece, partial: PartialDecoder, stored: Stored, out: NDArray) -> bool:
        """Decode and place single items; False where that cannot be."""
        wanted = Wanted(piece.projection, piece.all_runs(partial))
        block = self._scratch.take(self._metadata.chunk_nbytes)
        values = partial.decode_items(stored, wanted, key=piece.key, memory=block.memory)
        self._scratch.give_back(block)
        if values is None:
            return False
        with np.errstate(over="ignore"):
            piece.projection.put_out(values if self._field is None else values[self._field], out)
        return True

    def _decode_into_place(self, piece: Piece, stored: Buffer, out: NDArray) -> bool:
        """Decode straight into the answer; False where its items do not lie there as they do in the chunk."""
        metadata, projection = self._metadata, piece.projection
        alike = self._field is None and out.dtype == metadata.dtype.numpy and not metadata.dtype.is_object
        if not alike or not isinstance(projection, ChunkProjection):
            return False
        target = projection.contiguous_out(out, metadata.order)
        if target is not None:
            self._codec.decode_into(stored, target, piece.key)
            return True
        if self._codec.partial is None:
            return False
        run = projection.contiguous_run(out, metadata.chunks, metadata.order)
        return run is not None and self._codec.partial.decode_run_into(stored, *run, piece.key)

    def _decoded(self, fetched: Fetched, key: str, runs: Sequence[Run] | None, memory: Bytes | None) -> NDArray:
        """The chunk, perhaps in ``memory``, and perhaps only the part of it that ``runs`` name."""
        partial, whole = self._codec.partial, fetched.whole
        if partial is None or runs is None:
            assert whole is not None
            return self._codec.decode(whole, key, memory)
        if whole is None:
            if fetched.in_memory and memory is not None and not self._codec.links:
                return partial.decode_in_place(memory, runs)
            return partial.decode_parts(fetched.head, fetched.parts, runs, key=key, memory=memory)
        chunk = partial.decode_runs(whole, runs, key=key, memory=memory)
        return self._codec.decode(whole, key, memory) if chunk is None else chunk

    def _place(self, projection: Projection, chunk: NDArray, out: NDArray) -> None:
        values = chunk if self._field is None else chunk[self._field]
        if values.dtype == out.dtype:
            projection.copy_out(values, out)
        else:
            with np.errstate(over="ignore"):  # numbers too large for a narrower dtype become infinite
                projection.copy_out(values, out)

    def _absent(self, piece: Piece, out: NDArray) -> None:
        if not self._array.mount.fill_missing:
            raise ChunkNotFound(self._array.path, piece.key)
        with np.errstate(over="ignore"):
            piece.projection.put_out(self._fill, out)


def cache_key(array: ArrayNode, key: str) -> tuple[str, str, str]:
    """Under what a decoded chunk is cached."""
    return array.mount.name, key, array.data_id


def chunk_nbytes(chunk: NDArray) -> int:
    """Bytes that a decoded chunk holds on to, objects included."""
    if chunk.dtype.kind != "O":
        return chunk.nbytes
    return chunk.nbytes + sum(sys.getsizeof(item) for item in chunk.flat)
