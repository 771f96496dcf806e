"""Shards: stored objects that hold many chunks, and an index that says where each of them lies.

[Zarr v3, "Sharding codec"]
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hyperslab.engine.chain import BYTE, UNSIZED_LIMIT, Buffer, Link, Stage, flat_bytes, reason_of
from hyperslab.engine.codecs import MIN_LIMIT, ChunkCodec, make_links
from hyperslab.engine.grid import Coords
from hyperslab.engine.v3_codecs import Shard
from hyperslab.errors import ChunkCorrupt, NotRepresentable

Index = NDArray[np.uint64]
"""Offset and length of each chunk of a shard, in the order in which they are stored; both 2**64 - 1 for none."""

_ABSENT: Final = 2**64 - 1
_OVERHEAD: Final = 1024
"""Bytes that codecs may add to a chunk that they cannot compress."""


Extent: TypeAlias = tuple[int, int]
"""Where a chunk lies in a stored object: bytes ``[start, stop)``."""


@dataclass(frozen=True, slots=True, eq=False)
class ShardLevel:
    """One level of shards of an array.

    ``shape``: of a shard, in items; ``chunks``: of what it holds, chunks or further shards. ``axes``: the array's axis
    that each stored axis is. ``after``: the codecs that a whole shard goes through, usually none.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    axes: tuple[int, ...]
    at_start: bool
    index_nbytes: int
    most_stored: int
    after: tuple[Link, ...]
    _index_order: np.dtype[Any]
    _index: tuple[Link, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """How many chunks a shard has along each axis of the array."""
        return tuple([size // chunk for size, chunk in zip(self.shape, self.chunks, strict=True)])

    def local(self, origin: Coords) -> Coords:
        """The coordinates, within its shard, of the chunk whose first item is ``origin``."""
        shapes = zip(origin, self.shape, self.chunks, strict=True)
        return tuple([at % size // chunk for at, size, chunk in shapes])

    def position(self, local: Coords) -> int:
        """Where in the index a chunk stands, from its coordinates within the shard."""
        counts, at = self.counts, 0
        for axis in self.axes:
            at = at * counts[axis] + local[axis]
        return at

    def positions(self, origins: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where in the index chunks stand whose first items, one in each row, are ``origins`` of the shard."""
        counts, at = self.counts, np.zeros(len(origins), np.int64)
        for axis in self.axes:
            at = at * counts[axis] + origins[:, axis] % self.shape[axis] // self.chunks[axis]
        return at

    def parse_index(self, data: Buffer, key: str) -> Index:
        """The index from its stored bytes; raises `ChunkCorrupt`."""
        if len(data) != self.index_nbytes:
            raise ChunkCorrupt(key, "sharding_indexed", f"an index of {len(data)} bytes, expected {self.index_nbytes}")
        raw = flat_bytes(_undone(self._index, data, key, "of the index: ")).view(self._index_order)
        found: Index = raw.astype(np.uint64).reshape(-1, 2)
        found.setflags(write=False)
        return found

    def encode_index(self, index: Index) -> bytes:
        """The bytes to store for an index."""
        items: Any = index.astype(self._index_order).reshape(-1)
        for link in self._index:
            items = link.encode(items if link.id == "transpose" else flat_bytes(items))
        return flat_bytes(items).tobytes()

    def extents(self, index: Index, positions: NDArray[np.int64], size: int, key: str) -> list[Extent | None]:
        """Where chunks lie in a shard of ``size`` bytes, by where they stand in the index; None for those that are not
        stored. Raises `ChunkCorrupt` for one that lies outside."""
        starts, lengths = index[positions].T
        absent = (starts == _ABSENT) & (lengths == _ABSENT)
        outside = ~absent & ((starts > size) | (lengths > np.uint64(size) - starts))
        if outside.any():
            at = int(np.argmax(outside))
            reason = f"a chunk of the shard is said to lie at {starts[at]}, {lengths[at]} bytes, beyond its end"
            raise ChunkCorrupt(key, "sharding_indexed", reason)
        found: list[Extent | None] = [*zip(starts.tolist(), (starts + lengths).tolist(), strict=True)]
        for at in np.flatnonzero(absent).tolist():
            found[at] = None
        return found

    def unwrap(self, data: Buffer, key: str) -> Buffer:
        """The shard as its index describes it, of the bytes that are stored; raises `ChunkCorrupt`."""
        return _undone(self.after, data, key)

    def split(self, data: Buffer, key: str) -> Index:
        """The index of a whole shard (behind `unwrap`); raises `ChunkCorrupt`."""
        return self.parse_index(memoryview(data)[slice(*self.index_place((0, len(data)), key))], key)

    def index_place(self, shard: Extent, key: str) -> Extent:
        """Where the index of a shard lies, which is all of a stored object or a part; raises `ChunkCorrupt`."""
        start, stop = shard
        if stop - start < self.index_nbytes:
            raise ChunkCorrupt(key, "sharding_indexed", f"{stop - start} bytes are too few for the index of a shard")
        return (start, start + self.index_nbytes) if self.at_start else (stop - self.index_nbytes, stop)

    def pieces(self, data: Buffer, key: str) -> dict[int, Buffer]:
        """What a whole shard (behind `unwrap`) holds, by position in its index, in the order in which it lies there;
        raises `ChunkCorrupt`, also where more is said to lie in it than a shard can hold."""
        index, size = self.split(data, key), np.uint64(len(data))
        stored = np.flatnonzero((index != _ABSENT).any(axis=1))
        stored = stored[np.argsort(index[stored, 0], kind="stable")]
        starts, sizes = index[stored, 0], index[stored, 1]
        if ((starts > size) | (sizes > size - np.minimum(starts, size))).any():
            raise ChunkCorrupt(key, "sharding_indexed", f"a chunk is said to lie beyond its {size} bytes")
        if sum(sizes.tolist()) > self.most_stored:
            raise ChunkCorrupt(key, "sharding_indexed", "the chunks in it are said to be more than it could hold")
        view, places = memoryview(data), zip(stored.tolist(), starts.tolist(), sizes.tolist(), strict=True)
        return {position: view[start : start + nbytes] for position, start, nbytes in places}

    def join(self, pieces: Mapping[int, Buffer]) -> bytes:
        """A shard that holds ``pieces``, one behind the other as they come, and nothing else; raises
        `NotRepresentable`."""
        index = np.full((math.prod(self.counts), 2), _ABSENT, np.uint64)
        sizes = np.fromiter(map(len, pieces.values()), np.uint64, len(pieces))
        first = np.uint64(self.index_nbytes if self.at_start else 0)
        index[[*pieces]] = np.stack([np.cumsum(sizes) - sizes + first, sizes], axis=1)
        encoded = self.encode_index(index)
        items: Any = b"".join([encoded, *pieces.values()] if self.at_start else [*pieces.values(), encoded])
        link: Link | None = None
        try:
            for link in self.after:
                items = link.encode(flat_bytes(items))
            items = items if isinstance(items, bytes) else flat_bytes(items).tobytes()
        except Exception as error:
            raise NotRepresentable("a shard", link.id if link else "bytes", reason_of(error)) from error
        if len(items) > self.most_stored:
            raise NotRepresentable("a shard", "sharding_indexed", f"{len(items)} bytes, at most {self.most_stored}")
        return bytes(items)


def _undone(links: Sequence[Link], data: Buffer, key: str, where: str = "") -> Buffer:
    """What was encoded by ``links``; raises `ChunkCorrupt`."""
    for link in reversed(links):
        try:
            items = link.decode(data, None)
        except MemoryError:
            raise
        except Exception as error:
            raise ChunkCorrupt(key, link.id, where + reason_of(error)) from error
        data = items if isinstance(items, bytes | memoryview) else flat_bytes(items).data
    return data


def chunks_in(
    levels: Sequence[ShardLevel], origins: NDArray[np.int64], data: Buffer, key: str
) -> tuple[list[Buffer | None], Index, int]:
    """The stored bytes of the chunks whose first items, one in each row, are ``origins`` of a shard that is read whole,
    None for those that it has not; its index, and its size behind `ShardLevel.unwrap`. Raises `ChunkCorrupt`."""
    level, deeper = levels[0], levels[1:]
    shard = memoryview(level.unwrap(data, key))
    index = level.split(shard, key)
    extents = level.extents(index, level.positions(origins), len(shard), key)
    found: list[Buffer | None] = [None if each is None else shard[slice(*each)] for each in extents]
    inner: dict[Extent, list[int]] = {}
    for row, extent in enumerate(extents if deeper else ()):
        if extent is not None:
            inner.setdefault(extent, []).append(row)
    for (start, stop), rows in inner.items():
        pieces, _, _ = chunks_in(deeper, origins[rows], shard[start:stop], key)
        for row, piece in zip(rows, pieces, strict=True):
            found[row] = piece
    return found, index, len(shard)


def merge_shard(
    levels: Sequence[ShardLevel], data: Buffer | None, changes: Mapping[Coords, Buffer | None], key: str
) -> bytes | None:
    """A shard with other chunks in it: ``changes`` are their encoded bytes, by their first items; None removes one. All
    others are copied as they are, whatever they hold, and in the order in which they lie. ``data``: the shard as it is
    stored, None where there is none.

    None where no chunk is left. Raises `ChunkCorrupt` where it does not show what is to be copied, and
    `NotRepresentable`.
    """
    level, deeper = levels[0], levels[1:]
    pieces = {} if data is None else level.pieces(level.unwrap(data, key), key)
    inner: dict[int, dict[Coords, Buffer | None]] = {}
    for origin, piece in changes.items():
        inner.setdefault(level.position(level.local(origin)), {})[origin] = piece
    for position, changed in inner.items():
        if deeper:
            merged: Buffer | None = merge_shard(deeper, pieces.get(position), changed, key)
        else:
            (merged,) = changed.values()
        if merged is None:
            pieces.pop(position, None)
        else:
            pieces[position] = merged
    return level.join(pieces) if pieces else None


def reordered(levels: Sequence[ShardLevel], data: Buffer, filler: Buffer, key: str) -> bytes:
    """Other bytes for a shard of several chunks: those it has come in another order, or where there are not two, one
    that is missing is ``filler``."""
    level = levels[0]
    pieces = level.pieces(level.unwrap(data, key), key)
    if len(pieces) > 1:
        return level.join(dict(random.sample([*pieces.items()], len(pieces))))
    places = [tuple(random.randrange(count) for count in level.counts) for _ in range(8)]
    free = next((local for local in places if level.position(local) not in pieces), None)
    if free is None:
        return bytes(data)
    origin = tuple([at * size for at, size in zip(free, level.chunks, strict=True)])
    return merge_shard(levels, data, {origin: filler}, key) or b""


def stored_chunks(levels: Sequence[ShardLevel], data: Buffer, key: str) -> Iterator[Buffer]:
    """The encoded bytes of each chunk of a stored shard; raises `ChunkCorrupt`."""
    pieces = levels[0].pieces(levels[0].unwrap(data, key), key).values()
    for piece in pieces:
        yield from stored_chunks(levels[1:], piece, key) if levels[1:] else [piece]


def make_levels(shards: Sequence[Shard], codec: ChunkCodec) -> tuple[ShardLevel, ...]:
    """The levels of shards around the chunks of ``codec``; raises `engine.chain.Inflates`."""
    levels: list[ShardLevel] = []
    unsized = 2 * UNSIZED_LIMIT if any(link.unsized for link in codec.links) else 0
    shapes = [*[shard.shape for shard in shards], codec.chunks]
    for shard, inner in zip(shards, shapes[1:], strict=True):
        entries = math.prod(shard.shape) // math.prod(inner)
        links = make_links(shard.index, Stage(16 * entries, True, np.dtype(np.uint64)))
        index_nbytes = links[-1].encoded.nbytes if links else 16 * entries
        most = 2 * math.prod(shard.shape) * codec.dtype.itemsize + _OVERHEAD * entries + index_nbytes + unsized
        after = make_links(shard.after, Stage(most, False, BYTE)) if shard.after else ()
        order = np.dtype(">u8" if shard.index_big else "<u8")
        level = ShardLevel(
            shard.shape, inner, shard.axes, shard.at_start, index_nbytes, most + MIN_LIMIT, after, order, links
        )
        levels.append(level)
    return tuple(levels)
