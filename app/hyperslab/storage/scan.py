"""Directory scanner of local stores: lists and deletes."""

from __future__ import annotations

import os
import stat as modes
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from hyperslab.errors import BadPath
from hyperslab.storage.base import Entry, Keep, Listing, Unserved
from hyperslab.storage.fence import NO_FOLLOW, READ_DIRECTORY, Fence, Identity, identity_of
from hyperslab.storage.files import TEMPORARY, discard, entry_of, wrong_type
from hyperslab.storage.keys import HIDDEN, flaw_of, is_hidden, prefixes

ABANDONED_AFTER: Final = 3600.0
"""Seconds after which an unfinished write counts as abandoned."""


class Scanner:
    """Lists and deletes directories below a root. Names that are hidden or have a flaw are not keys.

    ``tidy``: remove temporary files of killed writers on the way. All methods raise `OSError`, but files that vanish
    meanwhile count as absent.
    """

    def __init__(self, fence: Fence, *, tidy: bool) -> None:
        self._fence = fence
        self._tidy = tidy

    def list_dir(self, prefix: str) -> Listing:
        """The direct children of a directory, without links to it or a directory above, so that recursion ends."""
        deeper, unserved = dict[str, Identity](), list[Unserved]()
        entries = [*self._entries(prefix, self._above(prefix), deeper, unserved)]
        return Listing.of(entries, deeper, unserved)

    def walk(
        self, prefix: str, unserved: list[Unserved] | None = None, above: tuple[Identity, ...] | None = None
    ) -> Iterator[Entry]:
        """All keys below a prefix; ``above`` are the directories on the way, to detect circular links. ``unserved``
        receives what has no key, and directories below that must not be listed, which raise without it."""
        above, deeper = self._above(prefix) if above is None else above, dict[str, Identity]()
        yield from self._entries(prefix, above, deeper, [] if unserved is None else unserved)
        for name, identity in deeper.items():
            try:
                yield from self.walk(f"{prefix}{name}/", unserved, (*above, identity))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except PermissionError:
                if unserved is None:
                    raise
                unserved.append(Unserved.at(prefix, name, "the service may not list this folder"))

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
        return tuple(identity_of(self._fence.stat(each)) for each in prefixes(prefix.rpartition("/")[0]))

    def _entries(
        self, prefix: str, above: tuple[Identity, ...], deeper: dict[str, Identity], unserved: list[Unserved]
    ) -> Iterator[Entry]:
        """The files in a directory, through links; the directories in it that are not ``above`` go to ``deeper``, what
        has no key to ``unserved``."""
        with self._fence.opened(prefix, READ_DIRECTORY) as folder, os.scandir(folder) as found:
            for item in found:
                if is_hidden(item.name):
                    self._discard_abandoned(item, folder)
                    continue
                flaw = flaw_of(item.name, prefix)
                if flaw is None:
                    stat = self._stat(prefix, item)
                    if stat is None:  # deleted meanwhile
                        continue
                    if isinstance(stat, str):
                        flaw = stat
                    elif modes.S_ISREG(stat.st_mode):
                        yield entry_of(prefix + item.name, stat)
                    elif not modes.S_ISDIR(stat.st_mode):
                        flaw = f"it is {wrong_type(stat)}"
                    elif identity_of(stat) not in above:
                        deeper[item.name] = identity_of(stat)
                    else:
                        flaw = "a symbolic link leads to a folder above it"
                if flaw is not None:
                    unserved.append(Unserved.at(prefix, item.name, flaw))

    def _stat(self, prefix: str, item: os.DirEntry[str]) -> os.stat_result | str | None:
        """The stat of an item, through links; the reason why a link has none; None for a deleted item."""
        is_link = item.is_symlink()
        try:
            return self._fence.stat(prefix + item.name) if is_link else item.stat(follow_symlinks=False)
        except FileNotFoundError:
            return "a symbolic link leads to nothing" if is_link else None
        except BadPath:
            return "a symbolic link leads out of the store; serve its target as a store of its own"
        except OSError as error:
            if not is_link:
                raise
            return f"a symbolic link cannot be followed: {os.strerror(error.errno or 0)}"

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
        with os.scandir(folder) as found:
            for item in found:
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
