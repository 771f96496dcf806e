"""Path fence: opens paths below a root such that no symbolic link leads out of it, even if directories are exchanged
for links in the meantime."""

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
"""For a descriptor that serves `os.fstat` and ``dir_fd=``."""
DIRECTORY: Final = PATH | getattr(os, "O_DIRECTORY", 0)
READ_DIRECTORY: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)

Identity = tuple[int, int]
"""Device and inode."""


class _How(ctypes.Structure):
    """``struct open_how``."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Root:
    """A descriptor of the root, closed when the last call that uses it has ended."""

    __slots__ = ("descriptor", "identity")

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, DIRECTORY | NO_FOLLOW)
        self.identity = identity_of(os.fstat(self.descriptor))

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self.descriptor)


class Fence:
    """Opens what lies below a root. Paths are relative to it; "" is the root itself.

    Links that stay inside are followed. All methods raise `errors.BadPath` for what lies outside, and let `OSError`
    pass. What they return is inside at the moment of opening: everything further is done by descriptor.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self._inside = self.root.rstrip("/") + "/"
        self._base: Root | None = None
        self._openat2 = _OpenAt2() if sys.platform == "linux" else None

    def base(self) -> Root:
        """The root as its path leads to it now: it may be mounted, or exchanged for a restored one, at any time."""
        base, stat = self._base, os.stat(self.root)
        if base is None or base.identity != (stat.st_dev, stat.st_ino):
            if os.path.realpath(self.root) != self.root:
                raise BadPath("", "a symbolic link stands in place of the store's folder")
            base = self._base = Root(self.root)
        return base

    def open(self, path: str, flags: int, base: Root | None = None) -> int:
        """A descriptor of an existing file or directory below `base`, which several calls may share; the caller closes
        it."""
        base = base or self.base()
        if (openat2 := self._openat2) is not None:
            descriptor, number = openat2(base.descriptor, path or ".", flags)
            if descriptor >= 0:
                return descriptor
            if number in (errno.ENOSYS, errno.EPERM):  # an old kernel, or a sandbox
                self._openat2 = None
            elif number not in (errno.EXDEV, errno.EAGAIN):
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
        """`os.stat` of what a path leads to."""
        descriptor = self.open(path, PATH)
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Let go of the root's descriptor; the next call opens it again."""
        self._base = None

    def _walk(self, base: int, path: str, flags: int) -> int:
        """`open` component by component, none of which is a link.

        Where one is, what it leads to is looked up by name and walked to from the root again, so that nothing
        depends on what the name meant at that moment.
        """
        names, walked, links = _names(path), list[str](), 0
        current = os.open(".", DIRECTORY if names else flags, dir_fd=base)
        try:
            while names:
                name = names.pop()
                if name == "..":
                    raise BadPath(path, "it leads out of the store")
                if _is_link(name, current):
                    links += 1
                    if links > 40:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    names += self._target("/".join((*walked, name)))
                    walked, name, above = [], ".", base
                else:
                    walked.append(name)
                    above = current
                left, current = current, os.open(name, (DIRECTORY if names else flags) | NO_FOLLOW, dir_fd=above)
                os.close(left)
            if modes.S_ISLNK(os.fstat(current).st_mode):  # exchanged for one after we looked
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            return os.dup(current)
        finally:
            os.close(current)

    def _target(self, path: str) -> list[str]:
        """The names on the way from the root to where a link leads, the last one first."""
        real = os.path.realpath(self._inside + path)
        if real != self.root and not real.startswith(self._inside):
            raise BadPath(path, "a symbolic link leads out of the store")
        return _names(real[len(self._inside) :])


class _OpenAt2:
    """The system call that resolves a path below a directory and refuses to leave it at any component: number 437 on
    all architectures that Python runs on."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._call.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]
        self._how: dict[int, tuple[_How, int]] = {}  # and its address

    def __call__(self, base: int, path: str, flags: int) -> tuple[int, int]:
        """A descriptor and 0, or -1 and the number of the error."""
        how = self._how.get(flags)
        if how is None:
            made = _How(flags | os.O_CLOEXEC, 0, 0x08 | 0x02)  # RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
            how = self._how[flags] = made, ctypes.addressof(made)
        name = os.fsencode(path)
        while True:
            descriptor = self._call(437, base, name, how[1], 24)  # the size of `_How`
            if descriptor >= 0:
                return descriptor, 0
            if (number := ctypes.get_errno()) != errno.EINTR:
                return -1, number


def identity_of(stat: os.stat_result) -> Identity:
    """Device and inode: unique among the files and directories of that time."""
    return stat.st_dev, stat.st_ino


def _names(path: str) -> list[str]:
    """The components of a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _is_link(name: str, directory: int) -> bool:
    return modes.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
