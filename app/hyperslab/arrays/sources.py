"""Where the bytes of one chunk come from: all of them, or the parts that hold what is wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import ClassVar, Protocol

from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.scratch import Bytes
from hyperslab.engine.codecs_chain import Buffer
from hyperslab.engine.partial import Part, PartialDecoder
from hyperslab.engine.runs import Run
from hyperslab.errors import ChunkCorrupt
from hyperslab.storage.base import Files, Pull, Store, Taken, VersionConflict, file_store

_RANGES_WORTH_NEAR = 256 << 10
"""Decoded bytes of a chunk from which reading parts of a file beats reading all of it, one call more or less."""
_RANGES_WORTH_FAR = 4 << 20
"""The same where a request takes milliseconds."""

UNKNOWN = "?"
"""Stands for a version that was not looked up: never equal to a real one."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A stored chunk as ``whole``; or its beginning as ``head`` and the ``parts`` that `PartialDecoder.ranges` named.

    ``in_memory``: all parts lie in the memory that was lent, where they lie in the stored chunk. ``version``: of what
    was fetched, where that came with it.
    """

    whole: Buffer | None
    head: Buffer = b""
    parts: Sequence[Part] = ()
    in_memory: bool = False
    version: str | None = None

    @property
    def nbytes(self) -> int:
        if self.whole is not None:
            return len(self.whole)
        return len(self.head) + sum([len(part) for _, part in self.parts])


class Source(Protocol):
    """Fetches chunks of one array; ``into_memory``: to memory that is lent, which `fetch` cannot do without.

    ``partial``: what finds the parts of them that are worth fetching alone; None where none are.
    """

    into_memory: ClassVar[bool]

    @property
    def partial(self) -> PartialDecoder | None: ...

    def fetch(self, key: str, version: str, runs: Sequence[Run] | None, memory: Bytes | None) -> Fetched | None:
        """The chunk, or what of it holds ``runs``; None where it is absent. It may lie in ``memory``.

        Parts are all of one version: of ``version``, or of any where that is `UNKNOWN`.
        """
        ...


def make_source(array: ArrayNode) -> Source:
    """The best there is for the array's store."""
    store, partial = array.mount.store, array.metadata.codec.partial
    worth = _RANGES_WORTH_NEAR if store.capabilities.cheap_stat else _RANGES_WORTH_FAR
    if not store.capabilities.ranges or array.metadata.chunk_nbytes < worth:
        partial = None
    files = file_store(store)
    return FarSource(store, partial) if files is None else NearSource(store, partial, files.files())


@dataclass(frozen=True, slots=True)
class FarSource:
    """A request for each step."""

    store: Store
    partial: PartialDecoder | None
    into_memory: ClassVar[bool] = False

    def fetch(self, key: str, version: str, runs: Sequence[Run] | None, memory: Bytes | None) -> Fetched | None:  # noqa: ARG002
        if self.partial is not None and runs is not None and version != UNKNOWN:
            try:
                parts = self._fetch_parts(self.partial, key, version, runs)
            except VersionConflict:
                parts = None  # a writer came between; one request for all is of one version
            if parts is not None:
                return parts
        stored = self.store.get(key)
        return None if stored is None else Fetched(stored.data, version=stored.version)

    def _fetch_parts(self, partial: PartialDecoder, key: str, version: str, runs: Sequence[Run]) -> Fetched | None:
        """None where fetching the whole chunk costs no more, or it is gone."""
        head: Buffer = b""
        if partial.head_bytes:
            heads = self.store.get_ranges(key, [(0, partial.head_bytes)], version)
            if heads is None:
                return None
            head = heads[0]
        ranges = partial.ranges(head, runs, key)
        parts = None if ranges is None else self.store.get_ranges(key, ranges, version)
        if ranges is None or parts is None:
            return None
        return Fetched(None, head, [(start, part) for (start, _), part in zip(ranges, parts, strict=True)])


@dataclass(frozen=True, slots=True)
class NearSource:
    """All steps with one open file, read to where they lie in the stored chunk."""

    store: Store
    partial: PartialDecoder | None
    files: Files
    into_memory: ClassVar[bool] = True

    def fetch(self, key: str, version: str, runs: Sequence[Run] | None, memory: Bytes | None) -> Fetched | None:  # noqa: ARG002
        assert memory is not None
        buffer = memory.data
        ranges: Sequence[Run] | None = None

        def choose(head: memoryview) -> Sequence[Run] | None:
            nonlocal ranges
            ranges = _ranges(self.partial, head, runs, key)
            return ranges

        partial = self.partial if runs is not None else None
        head = partial.head_bytes if partial is not None else 0
        taken = self.files.read_parts(key, buffer, head, choose)
        if taken is None:
            return None
        size, found_version = taken
        if size > len(buffer):
            found = self.store.get(key)
            return None if found is None else Fetched(found.data, version=found.version)
        stored = buffer[:size]  # behind it lies what somebody else has left there
        if ranges is None:
            return Fetched(stored, version=found_version)
        parts = [(start, stored[start:stop]) for start, stop in ranges]
        in_memory = all(stop <= size for _, stop in ranges)
        return Fetched(None, stored[:head], parts, in_memory=in_memory, version=found_version)

    def pull(self, key: str, memory: Bytes, take: Callable[[Pulled], None]) -> Taken | None:
        """Let ``take`` read a chunk into ``memory``, what it needs of it; see `storage.base.Files`."""
        buffer = memory.data
        return self.files.pull(key, buffer, lambda read: take(Pulled(buffer, read)))


class Pulled:
    """A file that is read as somebody needs it, see `Stored`; ``seconds``: how long that has taken."""

    __slots__ = ("_read", "memory", "seconds")
    complete: ClassVar[bool] = False

    def __init__(self, memory: memoryview, read: Pull) -> None:
        self.memory = memory
        self.seconds = 0.0
        self._read = read

    def need(self, start: int, stop: int) -> None:
        began = perf_counter()
        count = self._read(start, stop)
        self.seconds += perf_counter() - began
        if count < stop - start:
            raise ValueError(f"the stored chunk has no bytes {start} to {stop}")


def _ranges(
    partial: PartialDecoder | None, head: memoryview, runs: Sequence[Run] | None, key: str
) -> Sequence[Run] | None:
    """What to read; None for all, also where the head is broken: decoding all of it says how."""
    if partial is None or runs is None:
        return None
    try:
        return partial.ranges(head, runs, key)
    except ChunkCorrupt:
        return None
