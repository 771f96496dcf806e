"""What a path leads to: mounted stores with the versions of their keys, arrays and groups."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from threading import Lock
from typing import Any, ClassVar, Final, Literal, Protocol, TypeVar

import numpy as np

from hyperslab.arrays.cancel import Cancel
from hyperslab.arrays.extent import OWN_MEMBER
from hyperslab.arrays.workers import WorkerPool
from hyperslab.engine.cf import Decoder, make_decoder
from hyperslab.engine.jsontext import MAX_DOCUMENT_BYTES
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.errors import BadDefinition, BrokenData, ReadOnly, shown
from hyperslab.storage.base import Store, Stored, WritersSafe
from hyperslab.storage.keys import as_prefix

V3: Final = "zarr.json"
"""The document of a Zarr v3 node, of whatever kind."""

T = TypeVar("T")
R = TypeVar("R")

Recheck = Literal["always", "never"] | float
"""When what is remembered of a store is checked again: on every read, never, or after so many seconds.

The meaning is that of TensorStore's ``recheck_cached_data``; ``never`` declares the store immutable (but for our own
writes).
"""


class VersionBook:
    """Versions of the keys of one store, as fresh as ``recheck`` demands. Safe to call from many threads."""

    def __init__(self, store: Store, recheck: Recheck) -> None:
        self._store = store
        self._recheck = recheck
        # by key: a version, and the time at which it was the key's
        self._seen: OrderedDict[str, tuple[str | None, float]] = OrderedDict()
        self._forgotten = 0.0  # when any key was last forgotten
        self._lock = Lock()

    def look_up(self, prefix: str, keys: Sequence[str], *, fresh: bool = False) -> list[str | None]:
        """The version of each key (None: absent), in order; ``fresh`` asks the store whatever is remembered."""
        if self._recheck == "always":
            return self._store.versions(prefix, keys)
        known = {} if fresh else self.remembered(keys)
        missing = [key for key in keys if key not in known]
        if missing:
            began = time.monotonic()
            known.update(zip(missing, self._store.versions(prefix, missing), strict=True))
            self.learn([(key, known[key]) for key in missing], began)
        return [known[key] for key in keys]

    def read(self, keys: Sequence[str]) -> list[Stored | None]:
        """The value of each key (None: absent), read now; the versions that come with them count as looked up."""
        began = time.monotonic()
        found = self._store.get_each(keys, MAX_DOCUMENT_BYTES)
        self.learn([(k, None if s is None else s.version) for k, s in zip(keys, found, strict=True)], began)
        return found

    def knows_all(self, keys: Sequence[str]) -> bool:
        """Whether `look_up` would answer without asking the store."""
        return self._recheck != "always" and len(self.remembered(keys)) == len(keys)

    def remembered(self, keys: Sequence[str]) -> dict[str, str | None]:
        """The versions of those keys that need not be looked up."""
        if self._recheck == "always":
            return {}
        oldest = 0.0 if self._recheck == "never" else time.monotonic() - self._recheck
        with self._lock:
            seen = {key: self._seen.get(key) for key in keys}
        return {key: entry[0] for key, entry in seen.items() if entry is not None and entry[1] >= oldest}

    def note(self, key: str, version: str | None) -> None:
        """Remember what one of our own writes has made of a key."""
        self.learn([(key, version)], time.monotonic())

    def learn(self, found: Iterable[tuple[str, str | None]], began: float) -> None:
        """Remember the versions (None: absent) of keys that were looked up or read from the time ``began`` on. What was
        noted or forgotten since then is newer: then these are good for the request at hand and no other."""
        if self._recheck == "always":
            return
        with self._lock:
            if began <= self._forgotten:
                return
            for key, version in found:
                known = self._seen.get(key)
                if known is None or known[1] < began:
                    self._seen[key] = version, began
                    self._seen.move_to_end(key)
            while len(self._seen) > 500_000:
                self._seen.popitem(last=False)

    def forget(self, prefix: str) -> None:
        """Forget every key below a prefix."""
        if self._recheck == "always":
            return
        with self._lock:
            self._forgotten = time.monotonic()
            for key in [key for key in self._seen if key.startswith(prefix)]:
                del self._seen[key]


@dataclass(frozen=True)
class MountedStore:
    """A named root and how the operator wants it to be read and written.

    ``fill_missing``: a chunk that is not there reads as the fill value; otherwise it is an error. ``metadata_key``
    replaces ``.zarray``. ``assume_metadata``: ``.zarray`` documents by path in the store, in place of what is stored.
    ``store_data_equal_to_fill_value``: write chunks even where they hold nothing but the fill value; `stores_fill`.
    ``versions``: those of its keys.
    """

    name: str
    store: Store
    writable: bool = False
    recheck: Recheck = "always"
    fill_missing: bool = True
    metadata_key: str = ".zarray"
    assume_metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    store_data_equal_to_fill_value: bool = False
    versions: VersionBook = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "versions", VersionBook(self.store, self.recheck))

    @cached_property
    def stores_fill(self) -> bool:
        """Whether chunks of nothing but the fill value are stored: also where a chunk that is missing is an error."""
        return self.store_data_equal_to_fill_value or not self.fill_missing

    @cached_property
    def is_remote(self) -> bool:
        """Whether each request to the store takes milliseconds."""
        return not self.store.capabilities.cheap_stat

    @property
    def has_replicas(self) -> bool:
        """Whether writers on other machines, whom no lock reaches, may write to the store as we do."""
        return self.store.capabilities.writers_safe is WritersSafe.REPLICAS

    @cached_property
    def pool(self) -> WorkerPool:
        """The worker threads of the store."""
        return WorkerPool(self.store.capabilities.width, self.name, remote=self.is_remote)

    def each(self, work: Callable[[T], R], items: Sequence[T], cancel: Cancel | None = None) -> list[R]:
        """The results of ``work``, which does nothing but ask the store: of a remote one concurrently."""
        return self.pool.map(work, items, cancel) if self.is_remote else [work(item) for item in items]

    def close(self) -> None:
        """End the worker threads and let go of the store."""
        self.pool.close()
        self.store.close()

    @cached_property
    def node_names(self) -> tuple[str, str, str]:
        """Names of the documents that make a node: an array or a group of Zarr v2, and either of v3."""
        return self.metadata_key, ".zgroup", V3

    @property
    def document_names(self) -> tuple[str, ...]:
        """Names of all documents that a node may have."""
        return (*self.node_names, ".zattrs", ".zmetadata")

    def document_keys(self, prefix: str) -> list[str]:
        """The documents whose versions together are the version of the node at ``prefix``: those that make it a node,
        and its attributes."""
        return [prefix + name for name in (*self.node_names, ".zattrs")]

    def path(self, prefix: str) -> str:
        """The logical path of what is at a prefix."""
        return f"{self.name}/{prefix}".rstrip("/")

    def check_writable(self) -> None:
        """Raise `ReadOnly` unless the operator has made the store writable and the store itself takes writes."""
        if not (self.writable and self.store.capabilities.writable):
            raise ReadOnly(self.name)

    def check_not_assumed(self, prefix: str, *, below: bool = False) -> None:
        """Raise `BadDefinition` for an array whose document the operator has given: no request can change it, or remove
        it with all that lies ``below`` a group."""
        for path in self.assume_metadata:
            if as_prefix(path) == prefix or (below and path.startswith(prefix)):
                which = shown(self.path(as_prefix(path)))
                raise BadDefinition("metadata", f"the operator's configuration fixes the metadata of {which}")


class Head(Protocol):
    """Newest items of an array that a stream writes to, which are not in its chunks yet: those from ``start`` on along
    ``axis``. They never change, and a later state of the array has more of them."""

    @property
    def axis(self) -> int: ...

    @property
    def start(self) -> int: ...

    def read(self, box: tuple[slice, ...], out: np.ndarray | None = None) -> np.ndarray:
        """The items of a box that lies in the head, in the axes of the array; put into ``out`` where that is given.
        Raises `errors.ChangedWhileRead` where they have moved to chunks since."""


@dataclass(frozen=True)
class ArrayNode:
    """An open array. ``prefix`` is ``""`` or ends in ``/``; ``version`` covers metadata and attributes.

    ``documents`` are the keys that it was opened from and their versions (None: absent); empty where it was not opened
    from documents of its own. ``also``: documents of Zarr v2 for the same node, which its own hides. The shape includes
    the ``head``; who opens an array to change it sees it without.
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
    implicit: ClassVar[bool] = False

    @property
    def path(self) -> str:
        return self.mount.path(self.prefix)

    @cached_property
    def data_id(self) -> str:
        """A digest of all that decides what a chunk's bytes mean: everything but the shape, the attributes and our own
        notes. Two arrays (or two states of one) with the same one decode a chunk's bytes alike."""
        other = ("shape", OWN_MEMBER, "attributes", "dimension_names", "consolidated_metadata")
        members = [(name, value) for name, value in self.metadata.document.items() if name not in other]
        return blake2b(repr(sorted(members, key=lambda member: member[0])).encode(), digest_size=8).hexdigest()

    @property
    def kind(self) -> Literal["array"]:
        return "array"

    @property
    def zarr_format(self) -> int:
        return self.metadata.zarr_format

    @property
    def document_key(self) -> str:
        """The key of the document that says what the array is."""
        return self.prefix + (V3 if self.metadata.zarr_format == 3 else self.mount.metadata_key)

    def chunk_key(self, coords: tuple[int, ...]) -> str:
        """The key in the store of a stored object: of a chunk, or where there are shards of one of these, by its
        position among them."""
        return self.prefix + self.metadata.grid.key(coords)

    @property
    def dimension_names(self) -> tuple[str, ...] | None:
        """The names that xarray keeps in ``_ARRAY_DIMENSIONS``, or those of Zarr v3; None where there are none or they
        do not fit."""
        if self.metadata.zarr_format == 3:
            known = self.metadata.dimension_names or ()
            return tuple([name for name in known if name is not None]) if known and None not in known else None
        names = self.attributes.get("_ARRAY_DIMENSIONS")
        if not isinstance(names, list) or len(names) != len(self.metadata.shape):
            return None
        return tuple(names) if all(isinstance(name, str) for name in names) else None

    @property
    def decoder(self) -> Decoder:
        """How the values are decoded by CF conventions. Where axes have no names, a fill value of zero is nobody's
        choice."""
        names, metadata = self.dimension_names, self.metadata
        dtype, fill = metadata.dtype.numpy, metadata.fill_value
        if names is None and fill is not None and fill.dtype.kind != "V" and not fill.any():
            fill = None
        coordinate = names is not None and names == (self.path.rpartition("/")[2],)
        named = bool(names) or "units" in self.attributes
        return make_decoder(dtype, self.attributes, fill, named=named, coordinate=coordinate)


@dataclass(frozen=True, slots=True)
class GroupNode:
    """An open group. ``mount`` is None for the root, whose children are the stores; ``implicit`` ones have no
    ``.zgroup``. ``problems``: what of its documents is wrong, and was read all the same."""

    mount: MountedStore | None
    prefix: str
    attributes: Mapping[str, Any]
    version: str
    implicit: bool = False
    documents: Mapping[str, str | None] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    zarr_format: int = 2
    also: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return "" if self.mount is None else self.mount.path(self.prefix)

    @property
    def kind(self) -> Literal["group"]:
        return "group"

    @property
    def attributes_key(self) -> str:
        """The key of the document that the attributes are in."""
        return self.prefix + (V3 if self.zarr_format == 3 else ".zattrs")


@dataclass(frozen=True, slots=True)
class BrokenNode:
    """A node that has documents but, as ``error`` says, cannot be opened; ``documents`` are those that are there, and
    their versions."""

    mount: MountedStore
    prefix: str
    error: BrokenData
    documents: Mapping[str, str]

    @property
    def path(self) -> str:
        return self.mount.path(self.prefix)

    @property
    def kind(self) -> Literal["array", "group"]:
        names = (self.mount.metadata_key, V3)  # of Zarr v3, what cannot be read may have been either
        return "array" if any(self.prefix + name in self.documents for name in names) else "group"


Kind = Literal["array", "group"]


@dataclass(frozen=True, slots=True)
class ChildInfo:
    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Children:
    """A page of children in order of name; ``next_cursor`` is None on the last one, and an empty page may have one.
    ``problems``: what could not be read of what says which children there are."""

    nodes: tuple[ChildInfo, ...]
    next_cursor: str | None
    problems: tuple[str, ...] = ()
