"""Nodes: mounted stores with the versions of their keys, arrays and groups."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import blake2b
from threading import Lock
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from hyperslab.arrays.extent import OWN_MEMBER
from hyperslab.arrays.workers import Cancel, WorkerPool, attempt
from hyperslab.cache import VersionedCache
from hyperslab.engine.cf import Decoder, is_time, make_decoder
from hyperslab.engine.grid import Separator
from hyperslab.engine.jsontext import MAX_DOCUMENT_BYTES
from hyperslab.engine.metadata import MAX_CONSOLIDATED_BYTES, ArrayMetadata, UnreadAttributes
from hyperslab.errors import BadDefinition, BrokenData, ChunkCorrupt, ReadOnly, StoredTooLarge, shown
from hyperslab.storage.base import Store, StoredValue, UnservedEntry, WritersSafe
from hyperslab.storage.keys import as_prefix

V3: Final = "zarr.json"
"""The document of a Zarr v3 node of any kind."""

T = TypeVar("T")
R = TypeVar("R")

Recheck = Literal["always", "never"] | float
"""When cached versions are looked up again: on every read, never, or after a number of seconds."""


class VersionBook:
    """Cached versions of the keys of one store, as fresh as ``recheck`` demands. Thread-safe."""

    def __init__(self, store: Store, recheck: Recheck) -> None:
        self._store = store
        self._recheck = recheck
        # by key: its version, and the time of the look-up
        self._seen: OrderedDict[str, tuple[str | None, float]] = OrderedDict()
        self._forgotten = 0.0  # time of the last `forget`
        self._lock = Lock()

    def look_up(
        self,
        prefix: str,
        keys: Sequence[str],
        *,
        fresh: bool = False,
        documents: bool = False,
        denied_is_absent: bool = False,
    ) -> list[str | None]:
        """The version of each key (None: absent), in order; ``fresh`` bypasses the cache. ``documents``: the keys are
        of documents of nodes, of which ``denied_is_absent`` says more: see `Store.document_versions`."""
        versions: Callable[[str, Sequence[str]], list[str | None]] = self._store.versions
        if documents:
            versions = partial(self._store.document_versions, denied_is_absent=denied_is_absent)
        if self._recheck == "always":
            return versions(prefix, keys)
        versions_known = {} if fresh else self.remembered(keys)
        missing = [key for key in keys if key not in versions_known]
        if missing:
            began = time.monotonic()
            versions_known.update(zip(missing, versions(prefix, missing), strict=True))
            self.learn([(key, versions_known[key]) for key in missing], began)
        return [versions_known[key] for key in keys]

    def read(self, keys: Sequence[str]) -> list[StoredValue | None]:
        """The value of each key (None: absent), read from the store; their versions are cached."""
        began = time.monotonic()
        values = self._store.get_each(keys, MAX_CONSOLIDATED_BYTES)
        for key, stored in zip(keys, values, strict=True):
            if stored is not None and len(stored.data) > MAX_DOCUMENT_BYTES and not key.endswith(V3):
                raise StoredTooLarge(key, len(stored.data), MAX_DOCUMENT_BYTES)
        self.learn([(k, None if s is None else s.version) for k, s in zip(keys, values, strict=True)], began)
        return values

    def knows_all(self, keys: Sequence[str]) -> bool:
        """Whether `look_up` needs no request to the store."""
        return len(self.remembered(keys)) == len(keys)

    def remembered(self, keys: Sequence[str]) -> dict[str, str | None]:
        """Cached versions that need no look-up."""
        if self._recheck == "always":
            return {}
        oldest = 0.0 if self._recheck == "never" else time.monotonic() - self._recheck
        with self._lock:
            seen = {key: self._seen.get(key) for key in keys}
        return {key: entry[0] for key, entry in seen.items() if entry is not None and entry[1] >= oldest}

    def record(self, key: str, version: str | None) -> None:
        """Cache the version made by a write of ours."""
        self.learn([(key, version)], time.monotonic())

    def learn(self, found: Iterable[tuple[str, str | None]], began: float) -> None:
        """Cache versions (None: absent) that were looked up or read since the time ``began``. Newer entries, noted or
        forgotten since then, take precedence."""
        if self._recheck == "always":
            return
        with self._lock:
            if began <= self._forgotten:
                return
            for key, version in found:
                entry = self._seen.get(key)
                if entry is None or entry[1] < began:
                    self._seen[key] = version, began
                    self._seen.move_to_end(key)
            while len(self._seen) > 500_000:
                self._seen.popitem(last=False)

    def forget(self, prefix: str) -> None:
        """Remove every key below a prefix."""
        with self._lock:
            self._forgotten = time.monotonic()
            for key in [key for key in self._seen if key.startswith(prefix)]:
                del self._seen[key]


class KeyForm(NamedTuple):
    """Form of the keys of an array's chunks, what is wrong with it, and how long (`time.monotonic`) it is trusted."""

    prefix: str
    separator: Separator
    problem: str | None = None
    until: float = 0.0


@dataclass(frozen=True)
class MountedStore:
    """A store with its name and configuration.

    ``fill_missing``: missing chunks read as the fill value; else they are an error. ``metadata_key`` replaces
    ``.zarray``. ``assume_metadata``: ``.zarray`` documents by path in the store, which replace stored ones.
    ``store_data_equal_to_fill_value``: store chunks of fill values too; see `stores_fill`. ``dimension_separator``:
    that of Zarr v2 arrays whose document has none. ``versions``: cached versions of its keys. ``key_forms``: see
    `chunk_keys`, by prefix.
    """

    name: str
    store: Store
    writable: bool = False
    recheck: Recheck = "always"
    fill_missing: bool = True
    metadata_key: str = ".zarray"
    assume_metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    store_data_equal_to_fill_value: bool = False
    dimension_separator: Separator | None = None
    versions: VersionBook = field(init=False, repr=False, compare=False)
    key_forms: VersionedCache[KeyForm] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "versions", VersionBook(self.store, self.recheck))
        object.__setattr__(self, "key_forms", VersionedCache(100_000))

    @cached_property
    def stores_fill(self) -> bool:
        """Whether chunks of fill values are stored: also if missing chunks are an error."""
        return self.store_data_equal_to_fill_value or not self.fill_missing

    @cached_property
    def is_remote(self) -> bool:
        """Whether a request to the store takes milliseconds."""
        return not self.store.capabilities.cheap_stat

    @property
    def has_replicas(self) -> bool:
        """Whether writers on other machines, without common locks, may write to the store."""
        return self.store.capabilities.writers_safe is WritersSafe.REPLICAS

    @cached_property
    def copies(self) -> VersionedCache[Any]:
        """Consolidated metadata that changes of nodes have updated last, by key: see `documents.Copies`."""
        return VersionedCache(128 << 20)

    @cached_property
    def kinds_of_v3(self) -> VersionedCache[Kind]:
        """Node types of documents of Zarr v3, by key."""
        return VersionedCache(64 << 20)

    @cached_property
    def pool(self) -> WorkerPool:
        """Worker threads of the store."""
        return WorkerPool(self.store.capabilities.width, self.name, remote=self.is_remote)

    def each(self, work: Callable[[T], R], items: Sequence[T], cancel: Cancel | None = None) -> list[R]:
        """The results of ``work``, which only sends requests to the store: concurrent for a remote one."""
        return self.pool.map(work, items, cancel) if self.is_remote else [work(item) for item in items]

    def both(self, first: Callable[[], T], second: Callable[[], R], cancel: Cancel | None = None) -> tuple[T, R]:
        """The results of two functions, as of `each`; an error of the first comes first."""
        if not self.is_remote:
            return first(), second()
        works: tuple[Callable[[], Any], ...] = (first, second)
        one, other = self.pool.map(attempt, works, cancel)
        return one.result(), other.result()

    def close(self) -> None:
        """Stop the worker threads and close the store."""
        self.pool.close()
        self.store.close()

    @cached_property
    def node_names(self) -> tuple[str, str, str]:
        """Names of the documents that define a node: an array or a group of Zarr v2, and either of v3."""
        return self.metadata_key, ".zgroup", V3

    @property
    def document_names(self) -> tuple[str, ...]:
        """Names of all documents of a node."""
        return (*self.node_names, ".zattrs", ".zmetadata")

    def document_keys(self, prefix: str) -> list[str]:
        """Keys of all documents of the node at ``prefix``, whose versions make up the version of the node."""
        return [prefix + name for name in (*self.node_names, ".zattrs")]

    def path(self, prefix: str) -> str:
        """The logical path of a prefix."""
        return f"{self.name}/{prefix}".rstrip("/")

    @property
    def is_writable(self) -> bool:
        """Whether the store is configured as writable and accepts writes."""
        return self.writable and self.store.capabilities.writable

    def check_writable(self) -> None:
        """Raise `ReadOnly` unless the store `is_writable`."""
        if not self.is_writable:
            raise ReadOnly(self.name)

    def assumes(self, prefix: str) -> bool:
        """Whether the configuration has an assumed document at a prefix or below it."""
        return any(as_prefix(path).startswith(prefix) for path in self.assume_metadata)

    def check_not_assumed(self, prefix: str, *, below: bool = False) -> None:
        """Raise `BadDefinition` for an array with an assumed document, which no request can change or remove, also as
        part of all nodes ``below`` a group."""
        for path in self.assume_metadata:
            if as_prefix(path) == prefix or (below and path.startswith(prefix)):
                which = shown(self.path(as_prefix(path)))
                raise BadDefinition("metadata", f"the operator's configuration fixes the metadata of {which}")


class Head(Protocol):
    """Newest items of an array with an open stream, not in its chunks yet: those from ``start`` on along ``axis``.
    Immutable; later states of the array have more of them."""

    @property
    def axis(self) -> int: ...

    @property
    def start(self) -> int: ...

    def read(self, box: tuple[slice, ...], out: np.ndarray | None = None) -> np.ndarray:
        """The items of a box within the head, in the array's axes, written into ``out`` if given. Raises
        `errors.ChangedWhileRead` if they have moved to chunks since."""


def without_unread(node: ArrayNode | GroupNode) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The attributes of a node, none if they are broken, and a sentence that says so."""
    if not isinstance(node.attributes, UnreadAttributes):
        return node.attributes, ()
    return {}, (f"{node.attributes.error}: its attributes are unknown, and values are not decoded by them",)


@dataclass(frozen=True)
class ArrayNode:
    """An open array. ``prefix`` is ``""`` or ends in ``/``; ``version`` covers metadata and attributes.

    ``documents``: keys and versions (None: absent) of its documents; empty without documents of its own. ``also``: v2
    keys hidden by its own Zarr v3 document. ``problems``: what was tolerated. The shape includes the ``head``, which
    writers open the array without.
    """

    mount: MountedStore
    prefix: str
    metadata: ArrayMetadata
    attributes: Mapping[str, Any]
    version: str
    metadata_version: str
    documents: Mapping[str, str | None]
    also: tuple[str, ...] = ()
    head: Head | None = None
    problems: tuple[str, ...] = ()
    kind: ClassVar[Literal["array"]] = "array"
    implicit: ClassVar[bool] = False

    @property
    def path(self) -> str:
        return self.mount.path(self.prefix)

    @cached_property
    def data_id(self) -> str:
        """A digest of all metadata that affects the meaning of chunk bytes: all but shape, attributes and our own
        members. Arrays with equal digests decode chunks alike."""
        other = ("shape", OWN_MEMBER, "attributes", "dimension_names", "consolidated_metadata")
        members = {name: value for name, value in self.metadata.document.items() if name not in other}
        grid = self.metadata.stored_grid
        if grid.edges:  # their text would take long to make
            edges = [blake2b(np.asarray(along, np.int64)).hexdigest() for along in grid.edges]
            members["chunk_grid"] = grid.chunks, edges
        return blake2b(repr(sorted(members.items())).encode(), digest_size=8).hexdigest()

    @property
    def zarr_format(self) -> int:
        return self.metadata.zarr_format

    @property
    def document_key(self) -> str:
        """The key of the document of the array."""
        return self.prefix + (V3 if self.metadata.zarr_format == 3 else self.mount.metadata_key)

    def chunk_key(self, coords: tuple[int, ...]) -> str:
        """The key of a stored object: of a chunk, or of a shard by its position among shards."""
        return self.prefix + self.metadata.grid.key(coords)

    def cache_key(self, key: str) -> tuple[str, str, str]:
        """The cache key of a decoded chunk, or of the index of a shard."""
        return self.mount.name, key, self.data_id

    def get_object(self, key: str, max_bytes: int) -> StoredValue | None:
        """A stored chunk or shard; raises `ChunkCorrupt` for one of more than ``max_bytes``, without reading it."""
        try:
            return self.mount.store.get(key, max_bytes)
        except StoredTooLarge as error:
            reason = f"{error.size} bytes are stored, and at most {error.limit} make a chunk"
            raise ChunkCorrupt(key, None, reason) from error

    def with_keys(self, form: KeyForm) -> ArrayNode:
        """The array with keys of chunks of another form."""
        grid, problems = self.metadata.grid, self.problems
        problems += () if form.problem is None or form.problem in problems else (form.problem,)
        if form[:2] == (grid.prefix, grid.separator) and problems == self.problems:
            return self
        return replace(self, metadata=self.metadata.with_keys(form.prefix, form.separator), problems=problems)

    @property
    def axis_names(self) -> tuple[str | None, ...] | None:
        """A name or None for each axis: that of Zarr v3, else that of ``_ARRAY_DIMENSIONS``, which counts in both
        formats; None without any name."""
        attributes = without_unread(self)[0]
        listed = attributes.get("_ARRAY_DIMENSIONS")
        nothing: list[Any] = [None] * self.metadata.rank
        listed = listed if isinstance(listed, list) and len(listed) == self.metadata.rank else nothing
        stored = self.metadata.dimension_names or nothing
        names = [own or (other if isinstance(other, str) else None) for own, other in zip(stored, listed, strict=True)]
        return tuple(names) if any(names) or (names == listed == [] and "_ARRAY_DIMENSIONS" in attributes) else None

    @property
    def dimension_names(self) -> tuple[str, ...] | None:
        """The names of all axes; None if one has no name."""
        names = self.axis_names
        return None if names is None or None in names else tuple([name for name in names if name is not None])

    @property
    def may_inherit(self) -> bool:
        """Whether it may be the bounds of a time, two for each: numbers without a unit, or times without a calendar."""
        attributes, metadata = self.attributes, self.metadata
        is_incomplete = "units" not in attributes or ("calendar" not in attributes and is_time(attributes))
        return metadata.shape[-1:] == (2,) and metadata.dtype.numpy.kind in "iuf" and is_incomplete

    @property
    def decoder(self) -> Decoder:
        """The CF decoder of the values. Without names of axes, a fill value of zero does not mark missing values; in
        Zarr v3 none does."""
        names, metadata = self.dimension_names, self.metadata
        dtype, fill, v3 = metadata.dtype.numpy, metadata.fill_value, self.zarr_format == 3
        if v3 or (names is None and fill is not None and fill.dtype.kind != "V" and not fill.any()):
            fill = None
        coordinate = names is not None and names == (self.path.rpartition("/")[2],)
        named = bool(names) or "units" in self.attributes
        return make_decoder(dtype, self.attributes, fill, v3=v3, named=named, coordinate=coordinate)


@dataclass(frozen=True, slots=True)
class GroupNode:
    """An open group. ``mount`` is None for the root, whose children are the stores; ``implicit`` groups have no
    document. ``problems``: tolerated errors in its documents. ``named``: the children in consolidated metadata of its
    ``zarr.json``, in order of name."""

    mount: MountedStore | None
    prefix: str
    attributes: Mapping[str, Any]
    version: str
    implicit: bool = False
    documents: Mapping[str, str | None] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    zarr_format: int = 2
    also: tuple[str, ...] = ()
    named: tuple[str, ...] = field(default=(), repr=False)
    kind: ClassVar[Literal["group"]] = "group"

    @property
    def path(self) -> str:
        return "" if self.mount is None else self.mount.path(self.prefix)

    @property
    def attributes_key(self) -> str:
        """The key of the document with the attributes."""
        return self.prefix + (V3 if self.zarr_format == 3 else ".zattrs")


@dataclass(frozen=True, slots=True)
class BrokenNode:
    """A node that cannot be opened because of ``error``; ``documents``: its existing documents and their versions."""

    mount: MountedStore
    prefix: str
    error: BrokenData
    documents: Mapping[str, str]

    @property
    def path(self) -> str:
        return self.mount.path(self.prefix)

    @property
    def kind(self) -> Literal["array", "group"]:
        names = (self.mount.metadata_key, V3)  # an unreadable Zarr v3 document may be of either kind
        return "array" if any(self.prefix + name in self.documents for name in names) else "group"


Kind = Literal["array", "group"]


@dataclass(frozen=True, slots=True)
class ChildInfo:
    """A child of a group; ``documents``: versions of all its documents by key (None: absent), if asked for; ``read``:
    those that were read to tell its kind; ``copied``: its attributes in consolidated metadata, where each look at the
    store is a request."""

    name: str
    kind: Kind
    documents: Mapping[str, str | None] = field(default_factory=dict, repr=False, compare=False)
    read: Mapping[str, StoredValue] = field(default_factory=dict, repr=False, compare=False)
    copied: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Children:
    """A page of children in order of name; ``next_cursor`` is None on the last page, and empty pages may have one.
    ``unserved``: what has no key, or cannot be read. ``problems``: errors of documents or listings that name children,
    and the first of ``unserved``."""

    nodes: tuple[ChildInfo, ...]
    next_cursor: str | None
    problems: tuple[str, ...] = ()
    unserved: tuple[UnservedEntry, ...] = ()
