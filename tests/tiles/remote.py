"""A remote store: a folder behind a network, whose requests are counted and can be made to meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Condition
from typing import Any

from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import MAX_BYTES, Capabilities, Listing, Store, Stored
from hyperslab.tiles.service import Tiles
from tests.arrays.counting import CountingStore

_PATIENCE = 60.0


@dataclass
class Meeting:
    """Requests that ``concern`` it are answered when ``expected`` of them are there at once."""

    concerns: Callable[[Sequence[str]], bool]
    expected: int
    there: int = 0
    changed: Condition = field(default_factory=Condition)

    def join(self) -> None:
        with self.changed:
            self.there += 1
            self.changed.notify_all()
            if not self.changed.wait_for(lambda: self.there >= self.expected, _PATIENCE):
                raise TimeoutError(f"{self.there} of {self.expected} requests were there at once")


class RemoteStore(CountingStore):
    """``looked_up`` holds the keys of each look-up of versions."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.looked_up: list[list[str]] = []
        self.meetings: list[Meeting] = []

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, cheap_stat=False, width=16)

    def get(self, key: str, max_bytes: int = MAX_BYTES) -> Stored | None:
        self._meet([key])
        return super().get(key, max_bytes)

    def versions(self, prefix: str, keys: Sequence[str]) -> list[str | None]:
        self.looked_up.append(list(keys))
        self._meet(keys)
        return super().versions(prefix, keys)

    def list_dir(self, prefix: str) -> Listing:
        self._meet([prefix])
        return super().list_dir(prefix)

    def meet(self, expected: int, concerns: Callable[[Sequence[str]], bool]) -> None:
        """From now on, answer such requests when so many are there."""
        self.meetings.append(Meeting(concerns, expected))

    def forget(self) -> None:
        """What was counted so far."""
        self.looked_up.clear()
        self.gets.clear()

    def _meet(self, keys: Sequence[str]) -> None:
        for meeting in self.meetings:
            if meeting.concerns(keys):
                meeting.join()


@contextmanager
def remote_tiles(folder: Path, **mount: Any) -> Iterator[tuple[Tiles, RemoteStore]]:
    """As `tests.tiles.support.tiles_on`, of a remote store."""
    store = RemoteStore(open_store(StoreConfig(name="data", url=str(folder))))
    service = build([MountedStore("data", store, **mount)])
    try:
        yield Tiles(service.catalog, service.reader), store
    finally:
        service.close()
