"""Keeping writers apart: node locks, repeated attempts, and a lease among replicas that share only an object store.

A lease is for what one put cannot do. It is an object made with a conditional put, so only one replica can hold it. It
is renewed while it is held; one that was not renewed for `_TERM` seconds belongs to a dead replica and may be taken
over. It is given back by a put on condition as well: a DELETE that is repeated would take it from the next holder.

It keeps replicas out of each other's way, and is no fence: a request of a holder that was slow may take effect at any
time. So all that is stored under a lease is stored on the condition of what was read under it, and nobody leaves that
as it was: taking over changes the array's document (a member that readers ignore), and remembers how far chunks may be
on their way (see `extent.fenced`). Who could not publish makes sure of the lease before another try
(`Turn.take_again`).
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from threading import Event, Lock, Thread
from typing import Any, Final, TypeVar

from hyperslab.arrays.extent import fenced
from hyperslab.arrays.nodes import V3, MountedStore
from hyperslab.engine.jsontext import distinct, dump_json, parse_object
from hyperslab.errors import (
    ConsolidatedBehind,
    HyperslabError,
    InDoubt,
    Overloaded,
    PartlyWritten,
    StoreDenied,
    StoreError,
    StoreFull,
    WriteConflict,
)
from hyperslab.storage.base import ABSENT, Absent, VersionConflict
from hyperslab.storage.keys import HIDDEN
from hyperslab.wire import retry

MOST_TRIES: Final = 100
attempts: Final = partial(retry.attempts, MOST_TRIES, first=0.005, longest=0.2)
"""The numbers of `MOST_TRIES` attempts at what other writers may prevent, with pauses between them."""
_TERM = 20.0
_RENEWALS = 4

T = TypeVar("T")


def retried(key: str, attempt: Callable[[], T]) -> T:
    """The result of ``attempt``, which is called again where it raises `VersionConflict`: another writer came first.
    Raises `WriteConflict` after `MOST_TRIES` times."""
    for _ in attempts():
        with suppress(VersionConflict):
            return attempt()
    raise WriteConflict(key, f"other writers came first {MOST_TRIES} times")


def node_lock(mount: MountedStore, prefix: str, *, shared: bool = False) -> AbstractContextManager[None]:
    """Held shared by writers of chunks, exclusively by whoever changes shape, existence or several chunks at once."""
    return mount.store.lock(f"{prefix}.zarray", shared=shared)


class Turn:
    """The right to go on that `alone` gives. One that rests on locks cannot be lost.

    ``inherited``: the one before was cut off, so requests of its may still be on their way.
    """

    inherited = False

    def check(self) -> None:
        """Raise `WriteConflict` if the turn may be somebody else's by now. Costs nothing: to be called before each
        change of what is not published."""

    def take_again(self) -> None:
        """Make sure of the turn before another attempt; where it was lost, wait for it anew. What was read before may
        be out of date."""


def alone(mount: MountedStore, prefix: str) -> AbstractContextManager[Turn]:
    """Keep appenders, and writers of several chunks on one condition, from each other where locks do not reach."""
    shared = mount.has_replicas
    return Lease(mount, prefix).held() if shared else nullcontext(Turn())


class Lease(Turn):
    """The right to append to one array, or to write several of its chunks on one condition; held across replicas."""

    def __init__(self, mount: MountedStore, prefix: str) -> None:
        digest = hashlib.blake2b(prefix.encode(), digest_size=12).hexdigest()
        self._key = f"{HIDDEN}/lease/{digest}.json"
        self._path = mount.path(prefix)
        self._documents = (prefix + mount.metadata_key, prefix + V3)
        self._store = mount.store
        self._holder = uuid.uuid4().hex
        self._version = ""
        self._ends = 0.0
        self._lock = Lock()

    @contextmanager
    def held(self) -> Iterator[Turn]:
        """Wait for the lease, hold and renew it; raises `Overloaded` after a minute of waiting."""
        self._acquire()
        ended = Event()
        renewer = Thread(target=self._renew_until, args=(ended,), daemon=True)
        renewer.start()
        sure = False
        try:
            yield self
            sure = True
        except HyperslabError as error:  # what a store has failed to do may still be on its way
            sure = isinstance(error, PartlyWritten | ConsolidatedBehind) or not isinstance(error, StoreError)
            raise
        finally:
            ended.set()
            renewer.join()
            self._release(sure=sure)

    def check(self) -> None:
        """By our own clock: others wait for longer, as they count from when they see a renewal, and we from before."""
        if time.monotonic() > self._ends:
            raise WriteConflict(self._path, f"this writer was held up for {_TERM:.0f} s, and another may go on")

    def take_again(self) -> None:
        """The store is asked, not the clock: an attempt has failed, perhaps as somebody has taken over."""
        with self._lock:
            if not self._claim(self._version):
                self._acquire()

    def _acquire(self) -> None:
        longest = 60.0
        deadline = time.monotonic() + longest
        seen: tuple[str, float] | None = None  # a foreign lease's version and since when it has not changed
        while time.monotonic() < deadline:
            stored = self._store.get(self._key)
            document = {"holder": None} if stored is None else parse_object(stored.data) or {}
            version = ABSENT if stored is None else stored.version
            if stored is not None and (seen is None or seen[0] != stored.version):
                seen = (stored.version, time.monotonic())
            free = document.get("holder", "") is None
            if (free or (seen is not None and time.monotonic() - seen[1] > _TERM)) and self._claim(version):
                if not free or document.get("unsure"):
                    self.inherited = True
                    self._fence()  # where it fails, the lease stays: whoever takes that over has to do this
                return
            time.sleep(0.02)
        raise Overloaded(f"other writers have kept {self._path!r} for {longest:.0f} s", 5)

    def _claim(self, expected: str | Absent) -> bool:
        """Take the lease, or renew it, on top of the version ``expected``, or of one of our own, as there is where an
        answer was lost; False where it is somebody else's. Raises `StoreError`."""
        for last in (False, False, True):
            began = time.monotonic()
            try:
                self._version = self._store.put(self._key, self._text(holder=self._holder), if_version=expected)
            except (StoreDenied, StoreFull):
                raise
            except (VersionConflict, StoreError) as error:
                stored = self._store.get(self._key)
                document = None if stored is None else parse_object(stored.data)
                if stored is not None and document is not None and document.get("holder") == self._holder:
                    expected = stored.version
                elif isinstance(error, VersionConflict) or (ABSENT if stored is None else stored.version) != expected:
                    return False
                if last and isinstance(error, StoreError):
                    raise
            else:
                self._ends = began + _TERM
                return True
        return False

    def _text(self, **members: Any) -> bytes:
        """Another text at each renewal: on most object stores the version is a digest of the content."""
        return distinct(dump_json({**members, "renewed": time.time_ns(), "for": self._path}))

    def _renew_until(self, ended: Event) -> None:
        """One renewal that fails is no loss: there is time for others."""
        while not ended.wait(_TERM / _RENEWALS):
            with self._lock, suppress(StoreError):
                if not self._claim(self._version):
                    self._ends = 0.0

    def _release(self, *, sure: bool = True) -> None:
        """``sure``: no request of this holder is on its way any more, as far as answers tell."""
        with suppress(VersionConflict, StoreError):  # taken over, or it will run out by itself
            if sure and self._store.capabilities.conditional_delete:
                self._store.delete(self._key, if_version=self._version)
                return
            unsure = {} if sure else {"unsure": True}
            self._store.put(self._key, self._text(holder=None, **unsure), if_version=self._version)

    def _fence(self) -> None:
        """Make the publication of the holder we took over from fail.

        A change by somebody else does not do that: it may be the holder's own, who then goes on from there.
        """

        def change(key: str) -> None:
            stored = self._store.get(key)
            document = None if stored is None else parse_object(stored.data)
            if stored is None or document is None or "shape" not in document:
                return  # there is nothing that could be published
            try:
                text = distinct(dump_json(fenced(document, self._holder)))
                self._store.put(key, text, if_version=stored.version)
            except InDoubt as error:
                raise VersionConflict(key, None) from error

        for key in self._documents:
            retried(key, partial(change, key))
