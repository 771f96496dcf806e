"""Walking the directories of a local store: listing, removing, tidying up."""

from __future__ import annotations

import errno
import os
import stat as modes
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from hyperslab.errors import BadPath
from hyperslab.storage.base import Entry, Listing
from hyperslab.storage.files import TEMPORARY, Fence, Identity, discard, version_of
from hyperslab.storage.keys import is_hidden, prefixes

ABANDONED_AFTER: Final = 3600.0
"""Seconds after which an unfinished write belongs to nobody any more: no write takes that long."""


class Scanner:
    """Lists and removes what lies below a root; names that are not UTF-8 or hidden are not keys.

    With ``tidy`` it removes the temporary files of killed writers where it comes across them.
    All methods let `OSError` pass, except that what vanishes while they look was never there.
    """

    def __init__(self, fence: Fence, *, tidy: bool) -> None:
        self._fence = fence
        self._tidy = tidy

    def list_dir(self, prefix: str) -> Listing:
        """The direct children of a directory, without those that lead back to it or above it: whoever descends from
        here on comes to an end."""
        entries: list[Entry] = []
        prefixes: list[str] = []
        above = self._above(prefix)
        for name, stat in self._children(self._directory(prefix)):
            if not modes.S_ISDIR(stat.st_mode):
                entries.append(entry_of(prefix + name, stat))
            elif _identity(stat) not in above:
                prefixes.append(name)
        return Listing(tuple(sorted(entries, key=lambda entry: entry.key)), tuple(sorted(prefixes)))

    def walk(self, prefix: str, above: tuple[Identity, ...] | None = None) -> Iterator[Entry]:
        """Every key below; ``above`` are the directories on the way, so that links in a circle end."""
        above = self._above(prefix) if above is None else above
        deeper: list[tuple[str, Identity]] = []
        for name, stat in self._children(self._directory(prefix)):
            if not modes.S_ISDIR(stat.st_mode):
                yield entry_of(prefix + name, stat)
            elif _identity(stat) not in above:
                deeper.append((name, _identity(stat)))
        for name, identity in deeper:
            with suppress(FileNotFoundError, NotADirectoryError):
                yield from self.walk(f"{prefix}{name}/", (*above, identity))

    def remove(self, prefix: str) -> int:
        """Remove a directory with all that is in it, hidden things too; return how many keys there were.

        Files go before directories: a node's own documents first. Links are removed, not followed. Of the root
        only the keys go: the service's own directory stays, with the locks that others may hold.
        """
        directory = self._directory(prefix)
        self._fence.enter(directory)
        if self.is_link(prefix):
            count = sum(1 for _ in self.walk(prefix))
            os.unlink(directory)
            return count
        return self._remove_tree(directory, is_root=directory == self._fence.root)

    def is_link(self, prefix: str) -> bool:
        """Whether the last name of a directory is a symbolic link."""
        return os.path.islink(self._directory(prefix))

    def prune(self, directory: str) -> str:
        """Remove a directory if it is empty, and those above it; return the nearest that stays."""
        while directory != self._fence.root:
            try:
                os.rmdir(directory)
            except FileNotFoundError:
                pass  # another thread was here first
            except OSError:  # not empty (errno varies), a mount point, a link: it stays
                break
            directory = os.path.dirname(directory)
        return directory

    def _directory(self, prefix: str) -> str:
        return f"{self._fence.root.rstrip('/')}/{prefix}".rstrip("/") or "/"

    def _above(self, prefix: str) -> tuple[Identity, ...]:
        """A directory and those on the way to it, as they are reached: one behind a link is below where the link is."""
        return tuple(self._fence.enter(self._directory(each)) for each in prefixes(prefix.rpartition("/")[0]))

    def _children(self, directory: str) -> Iterator[tuple[str, os.stat_result]]:
        """Names and what they lead to (files and directories only)."""
        self._fence.enter(directory)
        with os.scandir(directory) as found:
            for item in found:
                if is_hidden(item.name):
                    self._tidy_up(item)
                elif _is_text(item.name):
                    with suppress(FileNotFoundError, BadPath):  # gone by now, or a link that leads nowhere we go
                        stat = self._stat(item)
                        if stat is not None and (modes.S_ISREG(stat.st_mode) or modes.S_ISDIR(stat.st_mode)):
                            yield item.name, stat

    def _stat(self, item: os.DirEntry[str]) -> os.stat_result | None:
        """None for links in a circle."""
        if not item.is_symlink():
            return item.stat(follow_symlinks=False)
        try:
            return os.stat(self._fence.follow(item.path))
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return None

    def _tidy_up(self, item: os.DirEntry[str]) -> None:
        if not self._tidy or not item.name.startswith(TEMPORARY):
            return
        with suppress(OSError):  # tidying is a courtesy: whoever lists must not pay for it
            if time.time() - item.stat(follow_symlinks=False).st_mtime > ABANDONED_AFTER:
                discard(item.path)

    def _remove_tree(self, directory: str, *, is_root: bool) -> int:
        count = 0
        deeper: list[str] = []
        with os.scandir(directory) as found:
            for item in found:
                if item.is_dir(follow_symlinks=False):
                    deeper.append(item.path)
                else:
                    discard(item.path)
                    count += not is_hidden(item.name)
        for path in deeper:
            if not (is_root and is_hidden(os.path.basename(path))):
                with suppress(FileNotFoundError):
                    count += self._remove_tree(path, is_root=False)
                    self.prune_one(path)
        return count

    @staticmethod
    def prune_one(directory: str) -> None:
        """Remove a directory unless a writer has put something into it again."""
        with suppress(OSError):
            os.rmdir(directory)


def _identity(stat: os.stat_result) -> Identity:
    return stat.st_dev, stat.st_ino


def entry_of(key: str, stat: os.stat_result) -> Entry:
    """What a ``stat`` says of a key."""
    return Entry(key, stat.st_size, version_of(stat), stat.st_mtime)


def _is_text(name: str) -> bool:
    """Whether a file name is UTF-8: Python spells other bytes as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
