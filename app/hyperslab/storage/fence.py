"""Path fence: opens paths below a root without following symbolic links out of it, safe against concurrent renames."""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from hyperslab.errors import BadPath

PATH: Final = getattr(os, "O_PATH", os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
"""Flags of a descriptor for `os.fstat` and ``dir_fd=``."""
DIRECTORY: Final = PATH | getattr(os, "O_DIRECTORY", 0)
READ_DIRECTORY: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)

Identity = tuple[int, int]
"""Device and inode."""


class Root:
    """Descriptor of the root, closed with its last reference."""

    __slots__ = ("descriptor", "identity")

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, DIRECTORY | NO_FOLLOW)
        self.identity = identity_of(os.fstat(self.descriptor))

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self.descriptor)


class Fence:
    """Opens paths relative to a root ("" is the root itself), following links within it.

    All methods raise `errors.BadPath` for paths that lead out, and `OSError`. As names may change their meaning any
    time, callers continue with the descriptors they get.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self._inside = self.root.rstrip("/") + "/"
        self._base: Root | None = None

    def base(self) -> Root:
        """The current root directory: it may be mounted or replaced at any time."""
        base, stat = self._base, os.stat(self.root)
        if base is None or base.identity != (stat.st_dev, stat.st_ino):
            if os.path.realpath(self.root) != self.root:
                raise BadPath("", "a symbolic link stands in place of the store's folder")
            base = self._base = Root(self.root)
        return base

    def open(self, path: str, flags: int, base: Root | None = None) -> int:
        """A descriptor of an existing file or directory, which the caller closes; ``base`` saves several calls the
        check of the root.

        It goes component by component without following links. The target of a link is resolved by name and walked from
        the root again, so that the result does not depend on races.
        """
        root = (base or self.base()).descriptor
        names, walked, links = path.strip("/").split("/")[::-1], list[str](), 0
        held: list[int] = []  # the directories on the way, and the result
        try:
            while names:
                name = names.pop() or "."
                if name == "..":
                    raise BadPath(path, "it leads out of the store")
                found = _open_unless_link(name, DIRECTORY if names else flags, held[-1] if walked else root)
                if found is not None:
                    walked.append(name)
                    held.append(found)
                    continue
                links += 1
                if links > 40:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                names += self._target("/".join((*walked, name)))
                walked = []
            return held.pop()
        finally:
            for descriptor in held:
                os.close(descriptor)

    @contextmanager
    def opened(self, path: str, flags: int = DIRECTORY) -> Iterator[int]:
        """`open` for as long as the context lasts."""
        descriptor = self.open(path, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def stat(self, path: str) -> os.stat_result:
        """`os.stat` of a path."""
        descriptor = self.open(path, PATH)
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Release the descriptor of the root; the next call opens it again."""
        self._base = None

    def _target(self, path: str) -> list[str]:
        """The components of a link's target relative to the root, last first."""
        real = os.path.realpath(self._inside + path)
        if real != self.root and not real.startswith(self._inside):
            raise BadPath(path, "a symbolic link leads out of the store")
        return real[len(self._inside) :].split("/")[::-1]


def identity_of(stat: os.stat_result) -> Identity:
    """Device and inode, unique among existing files and directories."""
    return stat.st_dev, stat.st_ino


def _open_unless_link(name: str, flags: int, directory: int) -> int | None:
    """A descriptor of a name in a directory; None if it is a symbolic link."""
    try:
        found = os.open(name, flags | NO_FOLLOW, dir_fd=directory)
    except FileNotFoundError:
        raise
    except OSError:  # which one it is for a link depends on the system
        if modes.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            return None
        raise
    if flags & PATH and modes.S_ISLNK(os.fstat(found).st_mode):  # these flags open the link itself
        os.close(found)
        return None
    return found
