"""Shards: stored objects of many chunks, with an index of their locations.

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
"""Offset and length of each chunk of a shard, in the order of storage; both 2**64 - 1 for absent chunks."""

_ABSENT: Final = 2**64 - 1
_OVERHEAD: Final = 1024
"""Maximum bytes that codecs add to an incompressible chunk."""


Extent: TypeAlias = tuple[int, int]
"""Location of a chunk in a stored object: bytes ``[start, stop)``."""


@dataclass(frozen=True, slots=True, eq=False)
class ShardLevel:
    """One level of an array's shards.

    ``shape`` of a shard in items; ``chunks``: shape of its contents, chunks or nested shards. ``axes``: the array's
    axis of each stored axis. ``after``: codecs of the whole shard, usually none.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    axes: tuple[int, ...]
    at_start: bool
    index_nbytes: int
    max_stored_bytes: int
    after: tuple[Link, ...]
    _index_order: np.dtype[Any]
    _index: tuple[Link, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of chunks of a shard along each axis of the array."""
        return tuple([size // chunk for size, chunk in zip(self.shape, self.chunks, strict=True)])

    def positions(self, origins: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions in the index of chunks, from their first items ``origins`` in the array or shard, one in each
        row."""
        counts, positions = self.counts, np.zeros(len(origins), np.int64)
        for axis in self.axes:
            positions = positions * counts[axis] + origins[:, axis] % self.shape[axis] // self.chunks[axis]
        return positions

    def origins(self, index: Index) -> NDArray[np.int64]:
        """The first items of what a shard has, chunks or nested shards, relative to it, one in each row."""
        counts, there = self.counts, np.flatnonzero((index != _ABSENT).any(axis=1))
        places = np.unravel_index(there, [counts[axis] for axis in self.axes])
        return np.stack([places[self.axes.index(axis)] * size for axis, size in enumerate(self.chunks)], axis=1)

    def holds(self, index: Index, items: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether a shard has the chunks, or nested shards, of some items of it, ``(n, rank)``."""
        stored: NDArray[np.bool_] = (index[self.positions(items)] != _ABSENT).any(axis=1)
        return stored

    def parse_index(self, data: Buffer, key: str) -> Index:
        """The index from its stored bytes; raises `ChunkCorrupt`."""
        if len(data) != self.index_nbytes:
            raise ChunkCorrupt(key, "sharding_indexed", f"an index of {len(data)} bytes, expected {self.index_nbytes}")
        raw = flat_bytes(_decoded(self._index, data, key, "of the index: ")).view(self._index_order)
        index: Index = raw.astype(np.uint64).reshape(-1, 2)
        index.setflags(write=False)
        return index

    def encode_index(self, index: Index) -> bytes:
        """The bytes to store for an index."""
        items: Any = index.astype(self._index_order).reshape(-1)
        for link in self._index:
            items = link.encode(items if link.id == "transpose" else flat_bytes(items))
        return flat_bytes(items).tobytes()

    def extents(self, index: Index, positions: NDArray[np.int64], size: int, key: str) -> list[Extent | None]:
        """Extents of chunks at ``positions`` of the index, in a shard of ``size`` bytes; None for absent ones. Raises
        `ChunkCorrupt` for one outside the shard."""
        starts, lengths = index[positions].T
        absent = (starts == _ABSENT) & (lengths == _ABSENT)
        outside = ~absent & ((starts > size) | (lengths > np.uint64(size) - starts))
        if outside.any():
            at = int(np.argmax(outside))
            reason = f"a chunk of the shard is said to lie at {starts[at]}, {lengths[at]} bytes, beyond its end"
            raise ChunkCorrupt(key, "sharding_indexed", reason)
        extents: list[Extent | None] = [*zip(starts.tolist(), (starts + lengths).tolist(), strict=True)]
        for at in np.flatnonzero(absent).tolist():
            extents[at] = None
        return extents

    def unwrap(self, data: Buffer, key: str) -> Buffer:
        """The shard decoded by the codecs of the whole shard; raises `ChunkCorrupt`."""
        return _decoded(self.after, data, key)

    def split(self, data: Buffer, key: str) -> Index:
        """The index of a whole shard (after `unwrap`); raises `ChunkCorrupt`."""
        return self.parse_index(memoryview(data)[slice(*self.index_place((0, len(data)), key))], key)

    def index_place(self, shard: Extent, key: str) -> Extent:
        """Location of the index in a shard, which is a whole stored object or a part; raises `ChunkCorrupt`."""
        start, stop = shard
        if stop - start < self.index_nbytes:
            raise ChunkCorrupt(key, "sharding_indexed", f"{stop - start} bytes are too few for the index of a shard")
        return (start, start + self.index_nbytes) if self.at_start else (stop - self.index_nbytes, stop)

    def pieces(self, data: Buffer, key: str) -> dict[int, Buffer]:
        """Contents of a whole shard (after `unwrap`) by position in its index, in order of offset; raises
        `ChunkCorrupt`, also if their total size exceeds the limit."""
        index, view = self.split(data, key), memoryview(data)
        stored = np.flatnonzero((index != _ABSENT).any(axis=1))
        stored = stored[np.argsort(index[stored, 0], kind="stable")]
        extents = self.extents(index, stored, len(data), key)
        if int(index[stored, 1].sum()) > self.max_stored_bytes:
            raise ChunkCorrupt(key, "sharding_indexed", "the chunks in it are said to be more than it could hold")
        return {
            position: view[slice(*extent)] for position, extent in zip(stored.tolist(), extents, strict=True) if extent
        }

    def join(self, pieces: Mapping[int, Buffer]) -> list[Buffer]:
        """The parts of a shard of exactly these ``pieces``, in their order; raises `NotRepresentable`."""
        index = np.full((math.prod(self.counts), 2), _ABSENT, np.uint64)
        sizes = np.fromiter(map(len, pieces.values()), np.uint64, len(pieces))
        first = np.uint64(self.index_nbytes if self.at_start else 0)
        index[[*pieces]] = np.stack([np.cumsum(sizes) - sizes + first, sizes], axis=1)
        encoded = self.encode_index(index)
        parts: list[Buffer] = [encoded, *pieces.values()] if self.at_start else [*pieces.values(), encoded]
        for link in self.after:
            try:
                parts = [flat_bytes(link.encode(flat_bytes(b"".join(parts)))).data]
            except Exception as error:
                raise NotRepresentable("a shard", link.id, reason_of(error)) from error
        size = sum(map(len, parts))
        if size > self.max_stored_bytes:
            raise NotRepresentable("a shard", "sharding_indexed", f"{size} bytes, at most {self.max_stored_bytes}")
        return parts


def _decoded(links: Sequence[Link], data: Buffer, key: str, where: str = "") -> Buffer:
    """Data decoded by ``links`` in reverse; raises `ChunkCorrupt`."""
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
    """Stored bytes of the chunks with the first items ``origins``, one in each row, of a whole shard, None for absent
    ones; its index, and its size after `ShardLevel.unwrap`. Raises `ChunkCorrupt`."""
    level, deeper = levels[0], levels[1:]
    shard = memoryview(level.unwrap(data, key))
    index = level.split(shard, key)
    extents = level.extents(index, level.positions(origins), len(shard), key)
    chunks: list[Buffer | None] = [None if span is None else shard[slice(*span)] for span in extents]
    inner: dict[Extent, list[int]] = {}
    for row, extent in enumerate(extents if deeper else ()):
        if extent is not None:
            inner.setdefault(extent, []).append(row)
    for (start, stop), rows in inner.items():
        pieces, _, _ = chunks_in(deeper, origins[rows], shard[start:stop], key)
        for row, piece in zip(rows, pieces, strict=True):
            chunks[row] = piece
    return chunks, index, len(shard)


def merge_shard(
    levels: Sequence[ShardLevel], data: Buffer | None, changes: Mapping[Coords, Buffer | None], key: str
) -> list[Buffer] | None:
    """The parts of a shard with changed chunks: ``changes`` are their encoded bytes by first item; None removes one.
    Other chunks are unchanged, in order of offset. ``data``: the stored shard, or None.

    None if no chunk remains. Raises `ChunkCorrupt` if chunks to be copied cannot be located, and `NotRepresentable`.
    """
    level, deeper = levels[0], levels[1:]
    pieces = {} if data is None else level.pieces(level.unwrap(data, key), key)
    inner: dict[int, dict[Coords, Buffer | None]] = {}
    positions = level.positions(np.array([*changes], np.int64).reshape(len(changes), len(level.shape)))
    for position, (origin, piece) in zip(positions.tolist(), changes.items(), strict=True):
        inner.setdefault(position, {})[origin] = piece
    for position, changed in inner.items():
        if deeper:
            inner_parts = merge_shard(deeper, pieces.get(position), changed, key)
            merged: Buffer | None = None if inner_parts is None else b"".join(inner_parts)
        else:
            (merged,) = changed.values()
        if merged is None:
            pieces.pop(position, None)
        else:
            pieces[position] = merged
    return level.join(pieces) if pieces else None


def reordered(levels: Sequence[ShardLevel], data: Buffer, filler: Buffer, key: str) -> bytes:
    """Different bytes for a shard of several chunks: its chunks in another order, or with fewer than two, ``filler`` in
    place of an absent one."""
    level = levels[0]
    pieces = level.pieces(level.unwrap(data, key), key)
    if len(pieces) > 1:
        return b"".join(level.join(dict(random.sample([*pieces.items()], len(pieces)))))
    chunks = zip(level.counts, level.chunks, strict=True)
    origins = np.array([[random.randrange(count) * size for _ in range(8)] for count, size in chunks], np.int64).T
    for origin, position in zip(origins.tolist(), level.positions(origins).tolist(), strict=True):
        if position not in pieces:
            return b"".join(merge_shard(levels, data, {tuple(origin): filler}, key) or [])
    return bytes(data)


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
