"""Change feed: delivers the changes below a path to subscribers, in order, from the change logs of the stores."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from threading import Event, Lock, Thread
from typing import Any, Final, TypeAlias

from hyperslab.arrays.catalog import Catalog, Node
from hyperslab.arrays.changes import ChangeLog, Entry, Log, new_log
from hyperslab.arrays.nodes import ArrayNode, GroupNode, MountedStore, without_unread
from hyperslab.engine.grid import ChunkGrid, Coords
from hyperslab.errors import BadParameter, BrokenData, HyperslabError, NodeNotFound
from hyperslab.storage.keys import STREAM, as_prefix, has_hidden_segment, prefixes
from hyperslab.wire import format_selection

_SCAN_AFTER: Final = 5.0
"""Seconds between two scans for changes by other programs."""
_MAX_LEFT: Final = 32
"""Paths without subscribers of which it is kept what was seen."""
_MAX_STATES: Final = 1000
"""States of a path that are known again."""
_SALT: Final = 8
"""Letters of the salt of hashes in an id."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one node. ``id``: position from which a subscriber resumes. ``data``: ``path``, and those of
    ``created``, ``deleted``, ``shape``, ``boxes`` (selection texts), ``attributes`` and ``unknown`` that apply;
    without any, the node has to be read again."""

    id: str
    data: Mapping[str, Any]

    def below(self, path: str) -> Change | None:
        """The change as seen by a subscriber of ``path``; None if it is not concerned."""
        changed = str(self.data["path"])
        if not path or changed == path or changed.startswith(f"{path}/"):
            return self
        if path.startswith(f"{changed}/") and ("deleted" in self.data or "unknown" in self.data):
            return replace(self, data={**self.data, "path": path})
        return None


Deliver = Callable[[Sequence[Change]], None]
"""Callback for new changes, called from another thread. It must not block."""


_Known: TypeAlias = OrderedDict[str, Node]
"""Nodes by path, in the state that all subscribers have been told of."""


@dataclass(slots=True)
class _NodeChange:
    """Summary of the log entries about one node."""

    created: bool = False
    documents: set[str] = field(default_factory=set)
    coords: set[Coords] = field(default_factory=set)
    unknown: bool = False


class ChangeFeed:
    """Changes of one store. A thread reads its change log while there are subscribers."""

    def __init__(self, catalog: Catalog, mount: MountedStore) -> None:
        self._catalog = catalog
        self._mount = mount
        self._woken = Event()
        writable = mount.writable and mount.store.capabilities.writable
        self._log = ChangeLog(mount.store, self._woken.set, writable=writable)
        self._state: tuple[str | None, Log] = (None, new_log())
        self._subscribers: dict[object, tuple[str, Deliver, bool]] = {}
        self._lock = Lock()  # of the state, the subscribers, and the order of delivery
        self._running = False
        self._known: _Known = OrderedDict()
        self._scanner = _Scanner(catalog, mount)

    @contextmanager
    def subscription(
        self, path: str, since: str | None, deliver: Deliver, *, is_partial: bool = False
    ) -> Iterator[str]:
        """Subscription of ``deliver`` to the changes at and below ``path`` (which begins with the store's name): first
        those since the id ``since``, if given, then new ones. Yields the current id.

        ``is_partial``: the subscriber sees some nodes of the store, so ids tell no numbers, which count all changes.

        Raises `BadParameter` for an invalid id, and `StoreError`.
        """
        own = object()
        head, _, position = ("--0" if since is None else since).rpartition("-")
        if not (position.isdecimal() or (is_partial and position.isalnum())):
            raise BadParameter("since", since, "the id of an event")
        generation, _, state = head.partition("-")
        self._log.watch()
        with self._lock:
            self._scanner.explain(self._advance())
            log = self._state[1]
            if is_partial and since is not None:
                numbers = map(str, range(log.next - len(log.entries), log.next + 1))
                position = self._found(state, position, numbers) or "-1"  # before all that is kept
                state = self._found(state, state[_SALT:], self._scanner.states(path)) or "lost"
            is_sure = self._scanner.begin(path, None if since is None else state, is_new=not self._follows(path))
            now = self._stamped(path, [Change(self._id(log.next), {})], is_partial=is_partial)[0].id
            if since is not None:
                entries, before = log.since(generation, int(position)), f"{generation}-{position}"
                missed = _changes_for(path, self._changes(entries or (), before, OrderedDict()))
                if entries is None or not is_sure:
                    missed = [replace(change, id=before) for change in missed]
                    missed.append(Change(self._id(log.next), {"path": path, "unknown": True}))
                if missed:
                    deliver(self._stamped(path, missed, is_partial=is_partial))
            if not self._subscribers:  # the first subscriber has read nothing older than this
                self._known.clear()
                with suppress(HyperslabError):
                    node = self._catalog.open_node(path)
                    self._known[node.path] = node
            self._subscribers[own] = (path, deliver, is_partial)
            start = not self._running
            self._running = True
        if start:
            Thread(target=self._run, name=f"changes-{self._mount.name}", daemon=True).start()
        try:
            yield now
        finally:
            with self._lock:
                del self._subscribers[own]
                if not self._follows(path):
                    self._scanner.end(path)

    def _hash(self, salt: str, text: str) -> str:
        key = self._state[1].secret.encode()
        return hashlib.blake2b(f"{salt}{text}".encode(), key=key, digest_size=8).hexdigest()

    def _found(self, salt: str, hashed: str, texts: Iterable[str]) -> str | None:
        """The text that has a hash."""
        return next((text for text in texts if self._hash(salt[:_SALT], text) == hashed), None)

    def _follows(self, path: str) -> bool:
        return any(followed == path for followed, *_ in self._subscribers.values())

    def _run(self) -> None:
        tick = 0.5 if self._mount.is_remote else 0.02
        while True:
            try:
                self._log.watch()
                with self._lock:
                    if not self._subscribers:
                        self._running = False
                        return
                    paths = {path for path, *_ in self._subscribers.values()}
                    self._scanner.explain(self._advance())
                if foreign := self._scanner.scan(paths):
                    self._report_foreign(foreign)
                if settled := self._scanner.settled():
                    with self._lock:  # those who subscribe later find them by the state
                        now = self._id(self._state[1].next)
                        self._deliver(self._changes(map(Entry, settled), now, self._known))
            except HyperslabError:  # the store is away; its log is read when it is back
                time.sleep(tick)
            self._woken.wait(tick)
            self._woken.clear()

    def _report_foreign(self, keys: Mapping[str, str | None]) -> None:
        """Report changes by other programs: through the log, so that disconnected subscribers and those of other
        replicas see them, or if it is read-only, to the present subscribers."""
        touched: dict[str, _NodeChange] = {}
        for key, version in keys.items():
            before = len(touched)
            self._add_entry(touched, Entry(key, version or "", foreign=True))
            if self._log.writable and (len(touched) > before or len(keys) <= 100):
                self._log.record(key, created=False, version=version or "", foreign=True)
        if self._log.writable:
            return
        with self._lock:
            number = self._id(self._state[1].next)
            changes = [self._describe(path, _NodeChange(unknown=True), self._known) for path in touched]
            self._deliver([Change(number, data) for data in changes if data is not None])

    def _advance(self) -> Sequence[Entry]:
        """Read the log, deliver its new entries, and return them. The caller holds the lock."""
        before = self._state[1]
        self._state = self._log.read(self._state)
        after = self._state[1]
        if after is before:
            return ()
        entries = after.since(before.generation, before.next)
        if entries is None:  # it was lost, or more came at once than is kept
            entries = (Entry(""),) if self._state[0] is not None or before.next else ()
        if entries:
            self._deliver(self._changes(entries, self._id(before.next), self._known))
        return entries

    def _deliver(self, changes: Sequence[Change]) -> None:
        for path, deliver, is_partial in self._subscribers.values():
            if inside := _changes_for(path, changes):
                deliver(self._stamped(path, inside, is_partial=is_partial))

    def _stamped(self, path: str, changes: Iterable[Change], *, is_partial: bool) -> list[Change]:
        """The changes with the ids that a subscriber of a path gets: for one who sees a part, with keyed hashes of
        state and number, other ones each time."""
        events = []
        for change in changes:
            stamped = self._scanner.stamped(path, change.id)
            if is_partial:
                generation, state, number = stamped.split("-")
                salt = secrets.token_hex(_SALT // 2)
                stamped = f"{generation}-{salt}{self._hash(salt, state)}-{self._hash(salt, number)}"
            events.append(replace(change, id=stamped))
        return events

    def _id(self, position: int) -> str:
        return f"{self._state[1].generation}-{position}"

    def _changes(self, entries: Iterable[Entry], before: str, known: _Known) -> list[Change]:
        """One change for each node in log entries. All but the last have the id before them, so a subscriber that is
        cut off in between gets all of them again."""
        after = self._id(self._state[1].next)
        touched: dict[str, _NodeChange] = {}
        for entry in entries:
            self._add_entry(touched, entry)
        changes = [data for path, what in touched.items() if (data := self._describe(path, what, known)) is not None]
        return [Change(after if i == len(changes) - 1 else before, data) for i, data in enumerate(changes)]

    def _add_entry(self, touched: dict[str, _NodeChange], entry: Entry) -> None:
        key = entry.key
        folder, _, name = key.rpartition("/")
        path = self._mount.path(as_prefix(folder))
        if not name:
            array = self._array_above(key)
            touched.setdefault(path if array is None else array.path, _NodeChange()).unknown = True
        elif name in self._mount.document_names:
            if name != ".zmetadata":
                node = touched.setdefault(path, _NodeChange())
                node.documents.add(name)
                node.created |= entry.created and name != ".zattrs"
                node.unknown |= entry.foreign
        elif (array := self._array_above(key)) is not None:
            coords = array.metadata.stored_grid.parse_key(key[len(array.prefix) :])
            if coords is not None:  # else beyond a shape that is not published, or not a chunk
                node = touched.setdefault(array.path, _NodeChange())
                node.coords.add(coords)
                node.unknown |= entry.foreign

    def _array_above(self, key: str) -> ArrayNode | None:
        with suppress(BrokenData):
            return self._catalog.array_above(self._mount, key)
        return None

    def _describe(self, path: str, what: _NodeChange, known: _Known) -> dict[str, Any] | None:
        """Data of a change, from the current state of the node; None if subscribers know it."""
        before = known.get(path)
        try:
            node = self._catalog.complete(self._catalog.open_node(path, fresh=True))
        except NodeNotFound:
            known.pop(path, None)
            return {"path": path, "deleted": True} if what.documents or what.unknown else None
        except BrokenData:
            return {"path": path, "unknown": True}
        tracked = bool(what.documents) or before is not None  # else subscribers may have read an earlier shape
        if tracked:
            known[path] = node
            known.move_to_end(path)
            while len(known) > 10_000:
                known.popitem(last=False)
        before = None if what.created else before
        if what.unknown or node.implicit or without_unread(node)[1]:
            return {"path": path, "unknown": True}
        data: dict[str, Any] = {"path": path, **({"created": True} if what.created else {})}
        boxes: list[tuple[slice, ...]] = []
        if isinstance(node, ArrayNode):
            if before is not None and (isinstance(before, GroupNode) or before.data_id != node.data_id):
                return {"path": path, "unknown": True}
            shape, shape_before = node.metadata.shape, None if before is None else before.metadata.shape
            if tracked and shape_before != shape:
                data["shape"] = list(shape)
                boxes = _added(shape_before, shape)
            boxes += _boxes(node.metadata.stored_grid, what.coords)
        if tracked and (before is None or without_unread(before)[0] != node.attributes):
            data["attributes"] = dict(node.attributes)
        if data.keys() == {"path"} and not boxes:
            return None
        return {**data, "boxes": [format_selection(box) for box in boxes]} if boxes else data


class _Scanner:
    """Finds changes by other programs: keys below some paths whose version differs from the previous scan's, and that
    no log entry names a second later; and streams whose own keys have changed, and not again until the next scan: the
    process that stored their last rows may have ended before it could log them.

    The *state* of a path is a digest of what a scan has seen. Ids of events have it: a subscriber who comes back to
    another state than this process has seen since may have missed changes.
    """

    def __init__(self, catalog: Catalog, mount: MountedStore) -> None:
        self._catalog = catalog
        self._mount = mount
        self._seen: dict[str, dict[str, str]] = {}
        self._states: dict[str, list[str]] = {}  # by path, since its scans began; what the last one saw is not reported
        self._left = OrderedDict[str, None]()  # paths without subscribers
        self._explained: dict[str, set[str]] = {}  # versions that were logged since the last scan, by key
        self._explained_before: dict[str, set[str]] = {}
        self._suspects: set[str] = set()
        self._moving: set[str] = set()  # prefixes of streams that had changed at the last scan
        self._settled: set[str] = set()  # documents below those that have not changed since
        self._next = time.monotonic()

    def begin(self, path: str, state: str | None, *, is_new: bool) -> bool:
        """Scan a path, for its first subscriber (``is_new``) or another one, who comes back to a ``state`` (None: who
        does not). Returns whether scans find all changes since."""
        self._left.pop(path, None)
        states = self._states.get(path, [])
        if states and (state is None or state in states):
            if is_new:
                self._next = time.monotonic()
            return True
        if states and not is_new:
            return False
        self._seen[path] = self._versions(path)
        self._states[path] = [_digest(self._seen[path])]
        return state in (None, *self._states[path])

    def end(self, path: str) -> None:
        """Take note that a path has no subscribers; what was seen is kept for a while."""
        self._left[path] = None
        while len(self._left) > _MAX_LEFT:
            oldest, _ = self._left.popitem(last=False)
            self._seen.pop(oldest, None)
            self._states.pop(oldest, None)

    def stamped(self, path: str, position: str) -> str:
        """An id, from a generation and a position in the log, with the latest state of which all changes are logged."""
        generation, _, number = position.rpartition("-")
        return f"{generation}-{self.states(path)[-2:][0]}-{number}"

    def states(self, path: str) -> list[str]:
        """The states of a path that are known."""
        return self._states.get(path, [""])

    def explain(self, entries: Iterable[Entry]) -> None:
        """Take note of log entries: versions that need no report."""
        for key, version, _, _ in entries:
            if version is not None:
                self._explained.setdefault(key, set()).add(version)

    def scan(self, paths: Iterable[str]) -> Mapping[str, str | None]:
        """Keys with unexplained changes, and their versions (None: absent). Most calls are too early and scan
        nothing."""
        began = time.monotonic()
        if began < self._next:
            return {}
        if self._suspects:
            keys = sorted(self._suspects)
            now = dict(zip(keys, self._mount.store.versions("", keys), strict=True))
            foreign = {key: version for key, version in now.items() if not self._is_explained(key, version)}
            self._suspects, self._explained_before = set(), {}
            self._next = began + _SCAN_AFTER
            return foreign
        moving_before, self._moving = self._moving, set()
        for path in paths:
            versions, before = self._versions(path), self._seen.get(path)
            if before is not None:  # else its last subscriber has left meanwhile
                changed = {key for key in versions.keys() | before.keys() if versions.get(key) != before.get(key)}
                of_streams = {key for key in changed if has_hidden_segment(key)}
                self._moving |= {key.partition(STREAM)[0] for key in of_streams}
                settled = tuple(moving_before - self._moving)
                names = self._mount.document_names
                self._settled |= {k for k in versions if k.startswith(settled) and k.rpartition("/")[2] in names}
                changed -= of_streams
                self._suspects |= {key for key in changed if not self._is_explained(key, versions.get(key))}
                self._seen[path] = versions
                self._states[path] = [*self._states[path][-_MAX_STATES:], _digest(versions)]
        self._explained_before, self._explained = self._explained, {}
        ended = time.monotonic()
        self._next = ended + (1.0 if self._suspects else max(_SCAN_AFTER, 20 * (ended - began)))
        return {}

    def settled(self) -> set[str]:
        """Documents of arrays that may have rows of streams that were not logged, as found since the last call."""
        documents, self._settled = self._settled, set()
        return documents

    def _is_explained(self, key: str, version: str | None) -> bool:
        for explained in (self._explained, self._explained_before):
            if (version or "") in explained.get(key, ()):
                return True
            if version is None and any("" in explained.get(above, ()) for above in prefixes(key)):
                return True
        return False

    def _versions(self, path: str) -> dict[str, str]:
        store, prefix = self._mount.store, as_prefix(path.partition("/")[2])
        versions, most = [], 10_000  # of more keys, only the documents of the node itself are compared
        if store.capabilities.listable:
            of_streams = [store.list_with_streams(f"{above}{STREAM}/") for above in prefixes(prefix)[:-1]]
            listed = chain(store.list_with_streams(prefix), *of_streams)
            versions = [(entry.key, entry.version) for entry in islice(listed, most + 1)]
        if not versions or len(versions) > most:
            keys = self._mount.document_keys(prefix)
            versions = [(k, v) for k, v in zip(keys, store.versions(prefix, keys), strict=True) if v is not None]
        return dict(versions)


def _digest(versions: Mapping[str, str]) -> str:
    return hashlib.blake2b(repr(sorted(versions.items())).encode(), digest_size=6).hexdigest()


def _changes_for(path: str, changes: Sequence[Change]) -> list[Change]:
    """The changes at and below a path; the last of them has the id of the last of all."""
    found = [inside for change in changes if (inside := change.below(path)) is not None]
    return [*found[:-1], Change(changes[-1].id, found[-1].data)] if found else []


def _added(before: tuple[int, ...] | None, shape: tuple[int, ...]) -> list[tuple[slice, ...]]:
    """Boxes of the cells that a shape has and the one ``before`` (None: any) had not."""
    if before is None or len(before) != len(shape):
        return [tuple(slice(0, size) for size in shape)] if all(shape) else []
    boxes, rest = [], [slice(0, size) for size in shape]
    for axis, (was, now) in enumerate(zip(before, shape, strict=True)):
        if now > was:
            boxes.append((*rest[:axis], slice(was, now), *rest[axis + 1 :]))
        rest[axis] = slice(0, min(was, now))
    return [box for box in boxes if all(part.start < part.stop for part in box)]


def _boxes(grid: ChunkGrid, coords: Iterable[Coords]) -> list[tuple[slice, ...]]:
    """Boxes of chunks. Neighbours along the last axis are merged; more than 64 become their bounding box."""
    boxes: list[tuple[slice, ...]] = []
    for coord in sorted(coords):
        box = grid.bounds(coord)
        if boxes and box and boxes[-1][:-1] == box[:-1] and boxes[-1][-1].stop == box[-1].start:
            box = (*box[:-1], slice(boxes.pop()[-1].start, box[-1].stop))
        boxes.append(box)
    if len(boxes) <= 64:
        return boxes
    return [tuple(slice(min(p.start for p in axis), max(p.stop for p in axis)) for axis in zip(*boxes, strict=True))]
