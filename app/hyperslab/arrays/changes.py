"""Change log: the keys of a store that any worker or replica has put or deleted.

The log is a bounded object in the store itself. It is written only while there are subscribers: they renew a watch mark
in the store, which writers look up. Entries are keys and versions, not values, so their order and repetition do not
matter: the value is read when the change is delivered.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from posixpath import commonpath
from threading import Lock, Thread
from typing import Final, NamedTuple

from hyperslab.engine.jsontext import distinct, dump_json, parse_object
from hyperslab.errors import HyperslabError, InDoubt
from hyperslab.storage.base import ABSENT, Store, StoredValue, VersionConflict
from hyperslab.storage.keys import HIDDEN, as_prefix, has_hidden_segment
from hyperslab.wire.retry import backoff

_LOG: Final = f"{HIDDEN}/changes"
_WATCH: Final = f"{HIDDEN}/watch"
MAX_ENTRIES: Final = 1000
"""Entries in a log. More in one flush become a single one for their common prefix."""
_WATCHED_FOR: Final = 900.0
_RENEW_AFTER: Final = 300.0
LOOK_AFTER: Final = (1.0, 0.02)
"""Seconds for which the watch mark is cached, of a remote store and of a folder."""


class Entry(NamedTuple):
    """A key that changed; one that ends in ``/`` (or is empty) stands for everything below. ``version``: its new one,
    "" if it was deleted, None if that is not known. ``created``: it was absent before. ``foreign``: another program has
    changed it, as a scan has found."""

    key: str
    version: str | None = None
    created: bool = False
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class Log:
    """Content of a log: the entries numbered ``next - len(entries)`` to ``next``, exclusive. ``generation`` changes if
    the log was lost and begun again. ``secret``: the key of ids that tell no numbers."""

    generation: str
    secret: str
    next: int
    entries: tuple[Entry, ...]

    def since(self, generation: str, position: int) -> tuple[Entry, ...] | None:
        """The entries from a position on; None if some have been dropped."""
        count = self.next - position
        if generation != self.generation or not 0 <= count <= len(self.entries):
            return None
        return self.entries[len(self.entries) - count :]

    def with_entries(self, entries: Sequence[Entry]) -> Log:
        """The log with entries added at the end, and the oldest dropped if there are too many."""
        kept = (*self.entries, *entries)[-MAX_ENTRIES:]
        while sum([len(entry.key) for entry in kept]) > MAX_ENTRIES * 512:
            kept = kept[len(kept) // 2 :]
        return replace(self, next=self.next + len(entries), entries=kept)


class ChangeLog:
    """The change log of one store. Safe to call from many threads. A read-only store is not written.

    ``on_flush`` is called when entries have been stored.
    """

    def __init__(self, store: Store, on_flush: Callable[[], object], *, writable: bool) -> None:
        self._store = store
        self._on_flush = on_flush
        self.writable = writable
        self._look_after = LOOK_AFTER[store.capabilities.cheap_stat]
        self._lock = Lock()
        self._pending: list[Entry] = []
        self._flushing = False
        self._mark: tuple[str | None, float] = (None, 0.0)  # version of the watch mark, and when it was first seen
        self._looked = float("-inf")
        self._renewed = float("-inf")
        if writable:
            store.observer = self.record

    def record(self, key: str, *, created: bool, version: str | None = None, foreign: bool = False) -> None:
        """Log a changed key, within some milliseconds, if there are subscribers."""
        if has_hidden_segment(key) or not self._is_watched():
            return
        with self._lock:
            self._pending.append(Entry(key, version, created, foreign))
            if self._flushing:
                return
            self._flushing = True
        Thread(target=self._flush, name="changes", daemon=True).start()

    def watch(self) -> None:
        """Have changes logged for some minutes; to be repeated every now and then. On return, every worker and replica
        logs them."""
        if not self.writable or time.monotonic() - self._renewed < _RENEW_AFTER:
            return
        is_watched = time.monotonic() - self._renewed < _WATCHED_FOR
        lapsed = False
        if not is_watched:  # changes are unlogged since the last watch expired, or there was none
            stored = self._store.get(_WATCH)
            renewed = (parse_object(stored.data) or {}).get("renewed") if stored is not None else None
            # also if the clock has gone back since
            lapsed = not isinstance(renewed, int) or abs(time.time_ns() - renewed) > _WATCHED_FOR * 1e9
        self._store.put(_WATCH, distinct(dump_json({"renewed": time.time_ns()})))
        if lapsed:
            with self._store.lock(_LOG):
                self._store.put(_LOG, _text(new_log()))
        self._renewed = time.monotonic()
        if not is_watched:
            time.sleep(self._look_after)  # until no worker or replica has the earlier state cached

    def read(self, known: tuple[str | None, Log]) -> tuple[str | None, Log]:
        """Version and content of the log; the ``known`` ones if the version is the same."""
        entry = self._store.stat(_LOG)
        if entry is not None and entry.version == known[0]:
            return known
        stored = None if entry is None else self._store.get(_LOG)
        if stored is None:
            return (None, known[1] if known[0] is None else new_log())
        return stored.version, _parsed(stored)

    def _is_watched(self) -> bool:
        now = time.monotonic()
        if now - self._renewed < _RENEW_AFTER:
            return True
        if now - self._looked >= self._look_after:
            try:
                (version,) = self._store.versions("", [_WATCH])
            except HyperslabError:
                return True
            self._looked = now
            if version != self._mark[0]:
                self._mark = version, now
        return self._mark[0] is not None and now - self._mark[1] < _WATCHED_FOR

    def _flush(self) -> None:
        """Store pending entries, until there are none; retried while the store fails."""
        attempt = 0
        while True:
            with self._lock:
                entries, self._pending = list(dict.fromkeys(self._pending)), []
                if not entries:
                    self._flushing = False
                    return
            if len(entries) > MAX_ENTRIES:
                entries = [Entry(as_prefix(commonpath([entry.key for entry in entries])))]
            try:
                with self._store.lock(_LOG):
                    stored = self._store.get(_LOG)
                    text = _text((new_log() if stored is None else _parsed(stored)).with_entries(entries))
                    self._store.put(_LOG, text, if_version=ABSENT if stored is None else stored.version)
                attempt = 0
                self._on_flush()
            except (VersionConflict, InDoubt, HyperslabError):
                with self._lock:
                    self._pending = entries + self._pending
                attempt += 1
                time.sleep(backoff(attempt))


def new_log() -> Log:
    """A log without entries."""
    return Log(secrets.token_hex(4), secrets.token_hex(16), 0, ())


def _text(log: Log) -> bytes:
    return dump_json({name: getattr(log, name) for name in ("generation", "secret", "next", "entries")})


def _parsed(stored: StoredValue) -> Log:
    """The log; a new one if it is invalid, so that all subscribers read everything again."""
    document = parse_object(stored.data) or {}
    with suppress(KeyError, TypeError, ValueError):
        entries = tuple([Entry(str(k), v and str(v), bool(c), bool(f)) for k, v, c, f in document["entries"]])
        count = max(int(document["next"]), len(entries))
        return Log(str(document["generation"]), str(document["secret"]), count, entries[-MAX_ENTRIES:])
    return new_log()
