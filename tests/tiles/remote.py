"""A remote store: a folder behind a network, whose requests are counted and can be made to meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition
from typing import Any

from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.cache import VersionedCache
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Store
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
    def __init__(self, inner: Store) -> None:
        super().__init__(inner, cheap_stat=False, width=16)
        self.meetings: list[Meeting] = []

    def meet(self, expected: int, concerns: Callable[[Sequence[str]], bool]) -> None:
        """From now on, answer such requests when so many are there."""
        self.meetings.append(Meeting(concerns, expected))

    def forget(self) -> None:
        """What was counted so far."""
        self.lookups.clear()
        self.gets.clear()

    def before(self, operation: str, keys: Sequence[str]) -> None:
        for meeting in self.meetings:
            if operation != "stat" and meeting.concerns(keys):
                meeting.join()


@contextmanager
def remote_tiles(folder: Path, **mount: Any) -> Iterator[tuple[Tiles, RemoteStore]]:
    """As `tests.tiles.support.tiles_on`, of a remote store."""
    store = RemoteStore(open_store(StoreConfig(name="data", url=str(folder))))
    service = build([MountedStore("data", store, **mount)])
    try:
        yield Tiles(service.catalog, service.reader, VersionedCache(64 << 20)), store
    finally:
        service.close()
