"""Mutual exclusion of writers: node locks, retries, and leases between replicas that share only an object store.

A lease covers work of more than one put. It is an object created by a conditional put, so only one replica holds it.
The holder renews it; a lease not renewed for `_TERM` seconds belongs to a dead replica and may be taken over. Its
release is a conditional put too: a repeated DELETE would remove the lease of the next holder.

A lease reduces conflicts and is no fence: a slow request of a former holder may take effect at any time. So all puts
under a lease are conditional on versions read under it, and these versions do not persist: a takeover changes the
array's document (a member that readers ignore), and records which chunks may still be written (see `extent.fenced`).
After a failed publication the holder confirms the lease before it retries (`Permit.take_again`).
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

MAX_TRIES: Final = 100
attempts: Final = partial(retry.attempts, MAX_TRIES, first=0.005, longest=0.2)
"""Numbers of `MAX_TRIES` attempts at a conflicting change, with pauses between them."""
_TERM = 20.0
_RENEWALS = 4

T = TypeVar("T")


def retried(
    key: str,
    attempt: Callable[[], T],
    between: Callable[[], None] = lambda: None,
    *,
    after: type[VersionConflict | HyperslabError] = VersionConflict,
) -> T:
    """The result of ``attempt``, which opens, checks and publishes; repeated, after a pause and a call of ``between``,
    while it raises ``after``. Raises `WriteConflict` after `MAX_TRIES` attempts."""
    for number in attempts():
        if number:
            between()
        with suppress(after):
            return attempt()
    what = "the answer was lost" if after is InDoubt else "other writers came first"
    raise WriteConflict(key, f"{what} {MAX_TRIES} times")


def node_lock(mount: MountedStore, prefix: str, *, shared: bool = False) -> AbstractContextManager[None]:
    """Node lock: shared for chunk writers, exclusive for changes of shape, existence or several chunks at once."""
    return mount.store.lock(f"{prefix}.zarray", shared=shared)


class Permit:
    """Permission to proceed, from `node_lease`. One based on locks cannot be lost.

    ``inherited``: the previous holder failed, and its requests may still arrive.
    """

    inherited = False

    def check(self) -> None:
        """Raise `WriteConflict` if the permit may be lost. Costs nothing; called before each unpublished change."""

    def take_again(self) -> None:
        """Confirm the permit before another attempt, or wait for it again if it was lost; earlier reads may then be out
        of date."""


def node_lease(mount: MountedStore, prefix: str) -> AbstractContextManager[Permit]:
    """Exclude other appenders, and other conditional writers of several chunks, across replicas without common
    locks."""
    shared = mount.has_replicas
    return Lease(mount, prefix).held() if shared else nullcontext(Permit())


class Lease(Permit):
    """Exclusive right to append to an array, or to write several of its chunks on one condition, across replicas."""

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
    def held(self) -> Iterator[Permit]:
        """Wait for the lease, hold and renew it; raises `Overloaded` after a minute."""
        self._acquire()
        ended = Event()
        renewer = Thread(target=self._renew_until, args=(ended,), daemon=True)
        renewer.start()
        sure = False
        try:
            yield self
            sure = True
        except HyperslabError as error:  # the failed request may still arrive
            sure = isinstance(error, PartlyWritten | ConsolidatedBehind) or not isinstance(error, StoreError)
            raise
        finally:
            ended.set()
            renewer.join()
            self._release(sure=sure)

    def check(self) -> None:
        """Measured by our own clock: other replicas wait longer, as they count from when they see a renewal, and we
        from before it."""
        if time.monotonic() > self._ends:
            raise WriteConflict(self._path, f"this writer was held up for {_TERM:.0f} s, and another may go on")

    def take_again(self) -> None:
        """Asks the store, not the clock: the failed attempt may be due to a takeover."""
        with self._lock:
            if not self._claim(self._version):
                self._acquire()

    def _acquire(self) -> None:
        longest = 60.0
        deadline = time.monotonic() + longest
        seen: tuple[str, float] | None = None  # version of a foreign lease, and the time of its last change
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
                    self._fence()  # after a failure the lease stays, and the next holder repeats it
                return
            time.sleep(0.02)
        raise Overloaded(f"other writers have kept {self._path!r} for {longest:.0f} s", 5)

    def _claim(self, expected: str | Absent) -> bool:
        """Take or renew the lease on top of the version ``expected``, or of a version of our own, left by a put whose
        answer was lost; False if another replica holds it. Raises `StoreError`."""
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
        """Unique text for each renewal: on most object stores the version is a digest of the content."""
        return distinct(dump_json({**members, "renewed": time.time_ns(), "for": self._path}))

    def _renew_until(self, ended: Event) -> None:
        """Renew the lease until the event is set. A single failed renewal is harmless."""
        while not ended.wait(_TERM / _RENEWALS):
            with self._lock, suppress(StoreError):
                if not self._claim(self._version):
                    self._ends = 0.0

    def _release(self, *, sure: bool = True) -> None:
        """``sure``: no request of this holder is in flight any more, as far as answers tell."""
        with suppress(VersionConflict, StoreError):  # taken over, or expires by itself
            if sure and self._store.capabilities.conditional_delete:
                self._store.delete(self._key, if_version=self._version)
                return
            unsure = {} if sure else {"unsure": True}
            self._store.put(self._key, self._text(holder=None, **unsure), if_version=self._version)

    def _fence(self) -> None:
        """Change the array's document so that publication by the former holder fails.

        A change by another writer is not sufficient: it may be the former holder's own, which then continues from it.
        """

        def change(key: str) -> None:
            stored = self._store.get(key)
            document = None if stored is None else parse_object(stored.data)
            if stored is None or document is None or "shape" not in document:
                return  # nothing could be published
            try:
                text = distinct(dump_json(fenced(document, self._holder)))
                self._store.put(key, text, if_version=stored.version)
            except InDoubt as error:
                raise VersionConflict(key, None) from error

        for key in self._documents:
            retried(key, partial(change, key))
