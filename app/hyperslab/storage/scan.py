"""Directory scanner of local stores: lists and deletes."""

from __future__ import annotations

import os
import stat as modes
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Final, NamedTuple

from hyperslab.errors import BadPath
from hyperslab.storage.base import Entry, Folders, Keep, Listing, UnservedEntry
from hyperslab.storage.fence import NO_FOLLOW, READ_DIRECTORY, Fence, Identity, identity_of
from hyperslab.storage.files import TEMPORARY, discard, entry_of, wrong_type
from hyperslab.storage.keys import CONVERTIBLE, HIDDEN, STREAM, flaw_of, is_hidden, prefixes

ABANDONED_AFTER: Final = 3600.0
"""Seconds after which an unfinished write counts as abandoned."""

_SETTLED: Final = 2.0
"""Seconds after which a change of a directory gives it another time than the last one, also on FAT."""
_REMEMBERED: Final = 5.0
"""Seconds for which names are remembered: some file systems (mounted buckets) never change a directory's times."""
_MANY: Final = 1000
"""Names that are listed faster than a page of them is described."""

_What = Entry | Identity | str | None
"""A file, a directory, the reason why something is neither, or nothing any more."""


class _Names(NamedTuple):
    """Names in a directory in order, without files; ``others`` of them are no directories, but may be links to some.
    ``state``: identity and times of the directory before, ``since``: the time of the look."""

    state: tuple[int, ...]
    since: float
    names: list[str]
    others: set[str]
    unserved: list[UnservedEntry]


class Scanner:
    """Lists and deletes directories below a root. Names that are hidden or have a flaw are not keys.

    ``tidy``: remove temporary files of killed writers on the way. All methods raise `OSError`, but files that vanish
    meanwhile count as absent.
    """

    def __init__(self, fence: Fence, *, tidy: bool) -> None:
        self._fence = fence
        self._tidy = tidy
        self._known: dict[str, _Names] = {}
        self._lock = Lock()

    def list_dir(self, prefix: str) -> Listing:
        """The direct children of a directory, without links to it or a directory above, so that recursion ends."""
        deeper, unserved = dict[str, Identity](), list[UnservedEntry]()
        entries = [*self._entries(prefix, self._above(prefix), deeper, unserved)]
        return Listing.of(entries, deeper, unserved)

    def list_folders(self, prefix: str, first: str, count: int) -> Folders:
        """`Store.list_folders`, without a stat for each directory."""
        found, unserved = self._names(prefix), list[UnservedEntry]()
        start = bisect_left(found.names, first)
        names = found.names[start : start + count]
        if found.others:
            above, deeper = self._above(prefix), set(names) - found.others
            for name in found.others.intersection(names):
                what = self._what(prefix + name, above)
                if isinstance(what, str):
                    unserved.append(UnservedEntry.at(prefix, name, what))
                elif isinstance(what, tuple):
                    deeper.add(name)
            names = [name for name in names if name in deeper]
        following = found.names[start + count] if start + count < len(found.names) else None
        return Folders(names, following, sorted([*found.unserved, *unserved]))

    def walk(
        self,
        prefix: str,
        unserved: list[UnservedEntry] | None = None,
        above: tuple[Identity, ...] | None = None,
        *,
        streams: bool = False,
    ) -> Iterator[Entry]:
        """All keys below a prefix; ``above`` are the directories on the way, to detect circular links. ``unserved``
        receives what has no key, and directories below that must not be listed, which raise without it. ``streams``:
        with what belongs to streams."""
        above, deeper = self._above(prefix) if above is None else above, dict[str, Identity]()
        yield from self._entries(prefix, above, deeper, [] if unserved is None else unserved, streams=streams)
        for name, identity in deeper.items():
            try:
                yield from self.walk(f"{prefix}{name}/", unserved, (*above, identity), streams=streams)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError:
                if unserved is None:
                    raise
                unserved.append(UnservedEntry.at(prefix, name, "the service may not list this folder"))

    def remove(self, prefix: str, keep: Keep | None = None) -> int:
        """Delete the contents of a directory, including hidden files, except names for which ``keep`` is True; returns
        the number of keys.

        Files are deleted before directories: a node's documents first. Links are not followed. In the root, the
        service's own directory is kept, with its locks.
        """
        self._fence.stat(prefix)
        if self.is_link(prefix):
            count = sum(1 for _ in self.walk(prefix))
            with self._parent(prefix) as (folder, name):
                os.unlink(name, dir_fd=folder)
            return count
        with self._fence.opened(prefix, READ_DIRECTORY) as folder:
            return self._remove_tree(folder, prefix, keep)

    def denied(self, prefix: str) -> Iterator[tuple[str, bool]]:
        """`Store.denied_folders`."""
        deeper = list[str]()
        try:
            with self._fence.opened(prefix, READ_DIRECTORY) as folder, os.scandir(folder) as entries:
                items = [*entries]
                if items and not os.access(".", os.W_OK | os.X_OK, dir_fd=folder, effective_ids=True):
                    yield prefix, True
                deeper = [item.name for item in items if item.is_dir(follow_symlinks=False)]
        except PermissionError:
            yield prefix, False
        for name in deeper:
            yield from self.denied(f"{prefix}{name}/")

    def is_link(self, prefix: str) -> bool:
        """Whether a directory is a symbolic link."""
        if not prefix:
            return False
        try:
            with self._parent(prefix) as (folder, name):
                return modes.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def prune(self, prefix: str) -> str:
        """Remove a directory and those above it while they are empty; returns the first that remains."""
        path = prefix.rstrip("/")
        while path:
            try:
                with self._parent(path) as (folder, name):
                    os.rmdir(name, dir_fd=folder)
            except FileNotFoundError:
                pass  # removed concurrently
            except (OSError, BadPath):  # not empty (errno varies), a mount point, or a link
                break
            path = path.rpartition("/")[0]
        return path

    @contextmanager
    def _parent(self, prefix: str) -> Iterator[tuple[int, str]]:
        """A descriptor of the parent directory, and the name in it."""
        above, _, name = prefix.rstrip("/").rpartition("/")
        with self._fence.opened(above) as folder:
            yield folder, name

    def _above(self, prefix: str) -> tuple[Identity, ...]:
        """Identities of a directory and its parents by path, not by link target."""
        return tuple(identity_of(self._fence.stat(above)) for above in prefixes(prefix.rpartition("/")[0]))

    def _entries(
        self,
        prefix: str,
        above: tuple[Identity, ...],
        deeper: dict[str, Identity],
        unserved: list[UnservedEntry],
        *,
        streams: bool = False,
    ) -> Iterator[Entry]:
        """The files in a directory, through links; the directories in it that are not ``above`` go to ``deeper``, what
        has no key to ``unserved``."""
        with self._fence.opened(prefix, READ_DIRECTORY) as folder, os.scandir(folder) as entries:
            for item in entries:
                if is_hidden(item.name) and not (streams and item.name == STREAM):
                    self._discard_abandoned(item, folder)
                    continue
                what: _What = flaw_of(item.name, prefix)
                if what is None:
                    what = self._what(prefix + item.name, above, item)
                if isinstance(what, Entry):
                    yield what
                elif isinstance(what, str):
                    unserved.append(UnservedEntry.at(prefix, item.name, what))
                elif what is not None:
                    deeper[item.name] = what

    def _what(self, key: str, above: tuple[Identity, ...], item: os.DirEntry[str] | None = None) -> _What:
        """The type of an item of a directory, through a link."""
        is_link = item is None or item.is_symlink()
        try:
            stat = self._fence.stat(key) if item is None or is_link else item.stat(follow_symlinks=False)
        except FileNotFoundError:
            return "a symbolic link leads to nothing" if is_link else None
        except BadPath:
            return "a symbolic link leads out of the store; serve its target as a store of its own"
        except OSError as error:
            if not is_link:
                raise
            return f"a symbolic link cannot be followed: {os.strerror(error.errno or 0)}"
        if modes.S_ISREG(stat.st_mode):
            return entry_of(key, stat)
        if not modes.S_ISDIR(stat.st_mode):
            return f"it is {wrong_type(stat)}"
        identity = identity_of(stat)
        return identity if identity not in above else "a symbolic link leads to a folder above it"

    def _names(self, prefix: str) -> _Names:
        """The names in a directory. Those of a large one are remembered for some seconds, while its times stay as they
        are."""
        with self._fence.opened(prefix, READ_DIRECTORY) as folder:
            stat, names_known, now = os.fstat(folder), self._known.get(prefix), time.monotonic()
            state = (*identity_of(stat), stat.st_mtime_ns, stat.st_ctime_ns)
            if names_known is not None and names_known.state == state and now - names_known.since < _REMEMBERED:
                return names_known
            settled = time.time() - max(stat.st_mtime, stat.st_ctime) > _SETTLED
            listed, convertible = _Names(state, now, [], set(), []), dict[str, str]()
            with os.scandir(folder) as entries:
                for item in entries:
                    if is_hidden(item.name):
                        self._discard_abandoned(item, folder)
                    elif flaw := flaw_of(item.name, prefix):
                        listed.unserved.append(UnservedEntry.at(prefix, item.name, flaw))
                    elif item.is_dir(follow_symlinks=False):
                        listed.names.append(item.name)
                    elif not item.is_file(follow_symlinks=False):
                        listed.names.append(item.name)
                        listed.others.add(item.name)
                    elif kind := CONVERTIBLE.get(os.path.splitext(item.name)[1].lower()):
                        convertible[kind] = min(item.name, convertible.get(kind, item.name))
        for kind, name in convertible.items():
            reason = f"hyperslab convert makes Zarr of files of {kind}"
            listed.unserved.append(UnservedEntry.at(prefix, name, reason))
        listed.names.sort()
        if settled and len(listed.names) > _MANY:
            with self._lock:
                self._known.pop(prefix, None)
                while sum(len(listing.names) for listing in self._known.values()) > 500_000:
                    del self._known[next(iter(self._known))]
                self._known[prefix] = listed
        return listed

    def _discard_abandoned(self, item: os.DirEntry[str], folder: int) -> None:
        if not self._tidy or not item.name.startswith(TEMPORARY):
            return
        with suppress(OSError):  # must not fail a listing
            stat = item.stat(follow_symlinks=False)
            if time.time() - min(stat.st_mtime, stat.st_ctime) > ABANDONED_AFTER:  # mtimes may be ahead: see FileWriter
                discard(item.name, folder)

    def _remove_tree(self, folder: int, prefix: str, keep: Keep | None) -> int:
        """Delete the contents of an open directory; returns the number of keys."""
        count = 0
        deeper: list[str] = []
        with os.scandir(folder) as entries:
            for item in entries:
                if item.is_dir(follow_symlinks=False):
                    deeper.append(item.name)
                elif keep is None or is_hidden(item.name) or not keep(prefix + item.name, item.is_symlink()):
                    discard(item.name, folder)
                    count += not is_hidden(item.name)
        for name in deeper:
            if prefix or name != HIDDEN:  # keep what belongs to the whole store
                with suppress(FileNotFoundError, NotADirectoryError):
                    try:
                        inner = os.open(name, READ_DIRECTORY | NO_FOLLOW, dir_fd=folder)
                    except PermissionError:  # what is in it is not known, and stays
                        if keep is not None:
                            keep(prefix + name, False)
                        continue
                    try:
                        count += self._remove_tree(inner, f"{prefix}{name}/", None if is_hidden(name) else keep)
                    finally:
                        os.close(inner)
                    with suppress(OSError):  # not empty: a writer has added something
                        os.rmdir(name, dir_fd=folder)
        return count
