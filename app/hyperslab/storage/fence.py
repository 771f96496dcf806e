"""Path fence: opens paths below a root without following symbolic links out of it, safe against concurrent renames."""

from __future__ import annotations

import ctypes
import errno
import os
import stat as modes
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from hyperslab.errors import BadPath

PATH: Final = getattr(os, "O_PATH", os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
"""Flags of a descriptor for `os.fstat` and ``dir_fd=``."""
DIRECTORY: Final = PATH | getattr(os, "O_DIRECTORY", 0)
READ_DIRECTORY: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
FILE_MODE: Final = 0o666
"""Permissions of a file that is created, less the process's mask."""

Identity = tuple[int, int]
"""Device and inode."""


class _How(ctypes.Structure):
    """``struct open_how``."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


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
        self._openat2 = _OpenAt2() if sys.platform == "linux" else None

    def base(self) -> Root:
        """The current root directory: it may be mounted or replaced at any time."""
        base, stat = self._base, os.stat(self.root)
        if base is None or base.identity != (stat.st_dev, stat.st_ino):
            if os.path.realpath(self.root) != self.root:
                raise BadPath("", "a symbolic link stands in place of the store's folder")
            base = self._base = Root(self.root)
        return base

    def open(self, path: str, flags: int, base: Root | None = None) -> int:
        """A descriptor of a file or directory, which the caller closes; it exists, or ``flags`` create it. ``base``
        saves several calls the check of the root."""
        base = base or self.base()  # referenced until the end, so that it stays open
        if (openat2 := self._openat2) is not None:
            descriptor, number = openat2(base.descriptor, path or ".", flags)
            if descriptor >= 0:
                return descriptor
            if number in (errno.ENOSYS, errno.EPERM):
                descriptor = self._walk(base.descriptor, path, flags)  # raises if it is the file that is protected
                self._openat2 = None  # an old kernel, or a sandbox
                return descriptor
            if number not in (errno.EXDEV, errno.EAGAIN):
                raise OSError(number, os.strerror(number), path)
        return self._walk(base.descriptor, path, flags)

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

    def _walk(self, root: int, path: str, flags: int) -> int:
        """`open` component by component without following links.

        The target of a link is resolved by name and walked from the root again, so that the result does not depend on
        races.
        """
        names, walked, links = path.strip("/").split("/")[::-1], list[str](), 0
        held: list[int] = []  # the directories on the way, and the result
        try:
            while names:
                name = names.pop() or "."
                if name == "..":
                    raise BadPath(path, "it leads out of the store")
                opened = _open_unless_link(name, DIRECTORY if names else flags, held[-1] if walked else root)
                if opened is not None:
                    walked.append(name)
                    held.append(opened)
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

    def _target(self, path: str) -> list[str]:
        """The components of a link's target relative to the root, last first."""
        real = os.path.realpath(self._inside + path)
        if real != self.root and not real.startswith(self._inside):
            raise BadPath(path, "a symbolic link leads out of the store")
        return real[len(self._inside) :].split("/")[::-1]


class Siblings:
    """Opens one directory after the other, and looks up the root only once. The directory above is kept open: names in
    it are opened in half the time."""

    def __init__(self, fence: Fence) -> None:
        self._fence = fence
        self._base: Root | None = None
        self._above: tuple[str, int | None] | None = None

    def open(self, path: str) -> int:
        """`Fence.open` of a directory."""
        self._base = self._base or self._fence.base()
        above, _, name = path.rpartition("/")
        if self._above is None or self._above[0] != above:
            self.close()
            self._above = above, None
            return self._fence.open(path, DIRECTORY, self._base)
        if self._above[1] is None:
            self._above = above, self._fence.open(above, DIRECTORY, self._base)
        with suppress(OSError):  # it may be a link
            return os.open(name, DIRECTORY | NO_FOLLOW, dir_fd=self._above[1])
        return self._fence.open(path, DIRECTORY, self._base)

    def close(self) -> None:
        """Release the directory above."""
        if self._above is not None and self._above[1] is not None:
            os.close(self._above[1])
        self._above = None


class _OpenAt2:
    """The system call openat2 (number 437 on all architectures), which resolves a path below a directory."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._call.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]
        self._how: dict[int, tuple[_How, int]] = {}  # by flags, with the address

    def __call__(self, base: int, path: str, flags: int) -> tuple[int, int]:
        """A descriptor and 0, or -1 and the errno."""
        how = self._how.get(flags)
        if how is None:
            mode = FILE_MODE if flags & os.O_CREAT else 0
            struct = _How(flags | os.O_CLOEXEC, mode, 0x08 | 0x02)  # RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
            how = self._how[flags] = struct, ctypes.addressof(struct)
        name = os.fsencode(path)
        while True:
            descriptor = self._call(437, base, name, how[1], 24)  # the size of `_How`
            if descriptor >= 0:
                return descriptor, 0
            if (number := ctypes.get_errno()) != errno.EINTR:
                return -1, number


def identity_of(stat: os.stat_result) -> Identity:
    """Device and inode, unique among existing files and directories."""
    return stat.st_dev, stat.st_ino


def _open_unless_link(name: str, flags: int, directory: int) -> int | None:
    """A descriptor of a name in a directory; None if it is a symbolic link."""
    try:
        descriptor = os.open(name, flags | NO_FOLLOW, FILE_MODE, dir_fd=directory)
    except FileNotFoundError:
        raise
    except OSError:  # which one it is for a link depends on the system
        with suppress(FileNotFoundError):  # it could not be created
            if modes.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                return None
        raise
    if flags & PATH and modes.S_ISLNK(os.fstat(descriptor).st_mode):  # these flags open the link itself
        os.close(descriptor)
        return None
    return descriptor
