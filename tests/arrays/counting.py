"""A store that counts what is asked of another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from threading import Lock

from hyperslab.storage.base import (
    MAX_BYTES,
    Absent,
    Capabilities,
    Check,
    Entry,
    Keep,
    Listing,
    Part,
    Store,
    Stored,
)


class CountingStore(Store):
    """Passes everything on and keeps the keys whose values are read, in whole or in part (``gets``), and those of
    ``put`` and ``delete`` (``puts``)."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.gets: list[str] = []
        self.puts: list[str] = []
        self._lock = Lock()

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def get(self, key: str, max_bytes: int = MAX_BYTES) -> Stored | None:
        with self._lock:
            self.gets.append(key)
        return self.inner.get(key, max_bytes)

    def get_each(self, keys: Sequence[str], max_bytes: int = MAX_BYTES) -> list[Stored | None]:
        return [self.get(key, max_bytes) for key in keys]

    def get_part(self, key: str, start: int, stop: int) -> Part | None:
        with self._lock:
            self.gets.append(key)
        return self.inner.get_part(key, start, stop)

    def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str | None = None
    ) -> list[bytes | memoryview] | None:
        with self._lock:
            self.gets.append(key)
        return self.inner.get_ranges(key, ranges, version)

    def stat(self, key: str) -> Entry | None:
        return self.inner.stat(key)

    def versions(self, prefix: str, keys: Sequence[str]) -> list[str | None]:
        return self.inner.versions(prefix, keys)

    def put(self, key: str, data: bytes | memoryview, *, if_version: str | Absent | None = None) -> str:
        with self._lock:
            self.puts.append(key)
        return self.inner.put(key, data, if_version=if_version)

    def delete(self, key: str, *, if_version: str | None = None) -> bool:
        with self._lock:
            self.puts.append(key)
        return self.inner.delete(key, if_version=if_version)

    def delete_prefix(self, prefix: str, check: Check | None = None, keep: Keep | None = None) -> int:
        return self.inner.delete_prefix(prefix, check, keep)

    def list_dir(self, prefix: str) -> Listing:
        return self.inner.list_dir(prefix)

    def list_prefix(self, prefix: str) -> Iterator[Entry]:
        return self.inner.list_prefix(prefix)

    def is_link(self, prefix: str) -> bool:
        return self.inner.is_link(prefix)

    def lock(self, key: str, *, shared: bool = False) -> AbstractContextManager[None]:
        return self.inner.lock(key, shared=shared)

    def check(self) -> None:
        self.inner.check()

    def close(self) -> None:
        self.inner.close()
