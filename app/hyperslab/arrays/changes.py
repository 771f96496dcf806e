"""Change log: which keys of a store were put or deleted, through any worker or replica.

The log is a bounded object in the store itself. It is written only while somebody follows changes: who does renews a
watch mark in the store, and whoever changes a key looks for that mark first. Entries are keys and not values, so that
their order and their repetition do not matter: what a key holds is looked up when the change is told.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from posixpath import commonpath
from threading import Lock, Thread
from typing import Final

from hyperslab.engine.jsontext import distinct, dump_json, parse_object
from hyperslab.errors import HyperslabError, InDoubt
from hyperslab.storage.base import ABSENT, Store, Stored, VersionConflict
from hyperslab.storage.keys import HIDDEN, as_prefix, has_hidden_segment
from hyperslab.wire.retry import backoff

_LOG: Final = f"{HIDDEN}/changes"
_WATCH: Final = f"{HIDDEN}/watch"
MOST_ENTRIES: Final = 1000
"""Entries that are kept; also of one flush, before they become one for all that lies below their common prefix."""
_WATCHED_FOR: Final = 900.0
_RENEW_AFTER: Final = 300.0
LOOK_AFTER: Final = 1.0
"""Seconds for which a look at the watch mark of a remote store holds."""


@dataclass(frozen=True, slots=True)
class Log:
    """The entries of a log that are kept: those numbered ``next - len(entries)`` to ``next``, exclusive.

    An entry is a key that changed; one that ends in ``/`` (or is empty) stands for everything below; ``+`` in front: it
    was absent before. ``generation`` is another one when the log was lost and begun again.
    """

    generation: str
    next: int
    entries: tuple[str, ...]

    def since(self, generation: str, position: int) -> tuple[str, ...] | None:
        """The entries from a position on; None where they are not all kept any more."""
        count = self.next - position
        if generation != self.generation or not 0 <= count <= len(self.entries):
            return None
        return self.entries[len(self.entries) - count :]

    def with_entries(self, entries: Sequence[str]) -> Log:
        """Entries added at the end, as many kept as there is room for."""
        kept = (*self.entries, *entries)[-MOST_ENTRIES:]
        while sum(map(len, kept)) > MOST_ENTRIES * 512:
            kept = kept[len(kept) // 2 :]
        return Log(self.generation, self.next + len(entries), kept)


class ChangeLog:
    """The change log of one store. Safe to call from many threads; nothing is stored where the store is read-only.

    ``on_flush`` is called when entries have been stored.
    """

    def __init__(self, store: Store, on_flush: Callable[[], object], *, writable: bool) -> None:
        self._store = store
        self._on_flush = on_flush
        self.writable = writable
        self._remote = not store.capabilities.cheap_stat
        self._lock = Lock()
        self._pending: list[str] = []
        self._flushing = False
        self._mark: tuple[str | None, float] = (None, 0.0)  # the version of the watch mark, and since when it has that
        self._looked = float("-inf")
        self._renewed = float("-inf")
        if writable:
            store.observer = self.record

    def record(self, key: str, *, created: bool) -> None:
        """Note that a key has changed, if somebody follows: it is in the log some milliseconds later."""
        if has_hidden_segment(key) or not self._is_watched():
            return
        with self._lock:
            self._pending.append(f"+{key}" if created else key)
            if self._flushing:
                return
            self._flushing = True
        Thread(target=self._flush, name="changes", daemon=True).start()

    def watch(self) -> None:
        """Have changes recorded for some minutes from now; to be called again every now and then. When it returns,
        every worker and replica knows."""
        if not self.writable or time.monotonic() - self._renewed < _RENEW_AFTER:
            return
        known = time.monotonic() - self._renewed < _WATCHED_FOR
        lapsed = False
        if not known:  # have changes gone unrecorded, because nobody had followed for long, or nobody ever has?
            stored = self._store.get(_WATCH)
            renewed = (parse_object(stored.data) or {}).get("renewed") if stored is not None else None
            lapsed = not isinstance(renewed, int) or time.time_ns() - renewed > _WATCHED_FOR * 1e9
        self._store.put(_WATCH, distinct(dump_json({"renewed": time.time_ns()})))
        if lapsed:
            with self._store.lock(_LOG):
                self._store.put(_LOG, _text(new_log()))
        self._renewed = time.monotonic()
        if self._remote and not known:
            time.sleep(LOOK_AFTER)  # until no look from before the mark holds any more

    def read(self, known: tuple[str | None, Log]) -> tuple[str | None, Log]:
        """The version and the content of the log, if it has another version than the known one."""
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
        if not self._remote or now - self._looked >= LOOK_AFTER:
            try:
                entry = self._store.stat(_WATCH)
            except HyperslabError:
                return True
            self._looked = now
            version = None if entry is None else entry.version
            if version != self._mark[0]:
                self._mark = version, now
        return self._mark[0] is not None and now - self._mark[1] < _WATCHED_FOR

    def _flush(self) -> None:
        """Store what is pending, and what comes meanwhile; a store that does not answer is tried again."""
        attempt = 0
        while True:
            with self._lock:
                entries, self._pending = list(dict.fromkeys(self._pending)), []
                if not entries:
                    self._flushing = False
                    return
            if len(entries) > MOST_ENTRIES:
                entries = [as_prefix(commonpath([entry.removeprefix("+") for entry in entries]))]
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
    return Log(secrets.token_hex(4), 0, ())


def _text(log: Log) -> bytes:
    return dump_json({"generation": log.generation, "next": log.next, "entries": log.entries})


def _parsed(stored: Stored) -> Log:
    """The log; a new one where it cannot be read, so that everybody reads everything again."""
    document = parse_object(stored.data) or {}
    with suppress(KeyError, TypeError, ValueError):
        entries = tuple(map(str, document["entries"]))
        return Log(str(document["generation"]), max(int(document["next"]), len(entries)), entries[-MOST_ENTRIES:])
    return new_log()
