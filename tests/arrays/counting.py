"""A store that counts what is asked of another one, and lets tests come in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from hyperslab.storage.base import (
    MAX_BYTES,
    Absent,
    Capabilities,
    Check,
    Entry,
    Folders,
    Keep,
    Listing,
    Store,
    StoredRange,
    StoredValue,
    UnservedEntry,
)


def is_document(key: str) -> bool:
    return key.rpartition("/")[2].startswith((".z", "zarr.json"))


class CountingStore(Store):
    """Passes everything on. Keeps the keys whose values are read, in whole or in part (``gets``), those of ``put`` and
    ``delete`` (``puts``) and those of each look-up of versions (``lookups``); ``claims`` are capabilities that differ
    from the inner store's."""

    hides_absence = False
    _pool = None

    def __init__(self, inner: Store, **claims: Any) -> None:
        self.inner, self.claims = inner, claims
        self.gets: list[str] = []
        self.puts: list[str] = []
        self.lookups: list[list[str]] = []

    def before(self, operation: str, keys: Sequence[str]) -> None:
        """Is called with the name of a method (``get`` for each that reads a value) and the keys or prefix that it is
        asked for, before it goes on; may block or raise."""

    @property
    def looked_up(self) -> list[str]:
        """Keys whose versions were looked up so far."""
        return [key for keys in self.lookups for key in keys]

    def chunk_gets(self) -> list[str]:
        """Keys read so far that are no metadata."""
        return [key for key in self.gets if not is_document(key)]

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, **self.claims)

    def get(self, key: str, max_bytes: int = MAX_BYTES) -> StoredValue | None:
        self._read(key)
        return self.inner.get(key, max_bytes)

    def get_each(
        self,
        keys: Sequence[str],
        max_bytes: int = MAX_BYTES,
        *,
        denied_is_absent: bool = False,  # noqa: ARG002
    ) -> list[StoredValue | None]:
        return [self.get(key, max_bytes) for key in keys]

    def get_part(self, key: str, start: int, stop: int) -> StoredRange | None:
        self._read(key)
        try:
            return self.inner.get_part(key, start, stop)
        except BlockingIOError:  # a thread reads it
            self.gets.remove(key)
            raise

    def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str | None = None
    ) -> list[bytes | memoryview] | None:
        self._read(key)
        return self.inner.get_ranges(key, ranges, version)

    def _read(self, key: str) -> None:
        self.before("get", [key])
        self.gets.append(key)

    def stat(self, key: str) -> Entry | None:
        self.before("stat", [key])
        return self.inner.stat(key)

    def versions(self, prefix: str, keys: Sequence[str]) -> list[str | None]:
        self.lookups.append(list(keys))
        self.before("versions", keys)
        return self.inner.versions(prefix, keys)

    def put(self, key: str, data: Any, *, if_version: str | Absent | None = None) -> str:
        self.before("put", [key])
        self.puts.append(key)
        return self.inner.put(key, data, if_version=if_version)

    def delete(self, key: str, *, if_version: str | None = None) -> bool:
        self.before("delete", [key])
        self.puts.append(key)
        return self.inner.delete(key, if_version=if_version)

    def delete_each(self, keys: Sequence[str], check: Check) -> None:
        self.before("delete_each", keys)
        self.puts += keys
        self.inner.delete_each(keys, check)

    def delete_prefix(self, prefix: str, check: Check | None = None, keep: Keep | None = None) -> int:
        return self.inner.delete_prefix(prefix, check, keep)

    def list_dir(self, prefix: str) -> Listing:
        self.before("list_dir", [prefix])
        return self.inner.list_dir(prefix)

    def list_folders(self, prefix: str, first: str, count: int) -> Folders:
        self.before("list_folders", [prefix])
        return self.inner.list_folders(prefix, first, count)

    def list_prefix(self, prefix: str, unserved: list[UnservedEntry] | None = None) -> Iterator[Entry]:
        self.before("list_prefix", [prefix])
        return self.inner.list_prefix(prefix, unserved)

    def is_link(self, prefix: str) -> bool:
        return self.inner.is_link(prefix)

    def lock(self, key: str, *, shared: bool = False) -> AbstractContextManager[None]:
        return self.inner.lock(key, shared=shared)

    def check(self) -> None:
        self.before("check", [])
        self.inner.check()

    def close(self) -> None:
        self.inner.close()
