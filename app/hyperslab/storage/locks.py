"""Locks by key: between threads (`KeyedLocks`), and between the processes of one machine (`FileLocks`).

There are two families that never block each other, so that a node lock may be held while chunk locks come and go:
node locks (keys that end in ``.zarray`` or ``.zgroup``) and chunk locks (all other keys). None is re-entrant.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import blake2b
from itertools import islice, takewhile
from operator import is_not
from threading import Condition, Lock

from hyperslab.errors import BadPath
from hyperslab.storage.fence import NO_FOLLOW, READ_DIRECTORY, Fence


class KeyedLocks:
    """Shared and exclusive locks by key, for the threads of one process; unused keys take no memory.

    First come, first served: neither readers nor writers starve.
    """

    def __init__(self) -> None:
        # of each key: its holders and those who wait for it, ``[shared]`` each, in the order in which they came
        self._queues: dict[str, tuple[list[list[bool]], Condition]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        """How many keys are held or waited for."""
        return len(self._queues)

    @contextmanager
    def hold(self, key: str, *, shared: bool = False) -> Iterator[None]:
        """Hold ``key`` while the context lasts."""
        entry = [shared]
        with self._lock:
            queue, changed = self._queues.setdefault(key, ([], Condition(self._lock)))
            queue.append(entry)
        try:
            with self._lock:  # shared ones go together, any other alone
                changed.wait_for(lambda: all(shared and other[0] for other in takewhile(partial(is_not, entry), queue)))
            yield
        finally:
            with self._lock:
                queue[:] = [other for other in queue if other is not entry]
                changed.notify_all()
                if not queue:
                    del self._queues[key]


class FileLocks:
    """Shared and exclusive advisory locks between processes, on files in ``directory``, a path below the fence's root
    (made when first needed).

    The kernel holds them for an open file, so a process that is killed releases all of them at once. A node has a lock
    file of its own (several may be held at once, and two nodes on one file could then wait for each other for ever);
    chunks, of which a thread locks one at a time, share 256 files. The locks also hold between the threads of one
    process: each `hold` opens the file anew.

    Limits: they are ``flock`` locks, which work between the processes of *one* machine on every local file system.
    Over NFS the Linux client (since 2.6.12) turns them into byte-range locks on the server, which work between machines
    if the server's lock manager does; a mount with ``local_lock=flock`` or ``nolock`` keeps them on the one machine,
    and SMB and FUSE file systems vary. If several machines write, an object store is the better place.
    """

    def __init__(self, fence: Fence, directory: str) -> None:
        self._fence = fence
        self._directory = directory
        self._used: set[str] = set()

    @contextmanager
    def hold(self, key: str, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock of ``key`` in its family while the context lasts; raises `OSError`.

        A node's lock has a gate: a second one, which an exclusive waiter keeps closed. ``flock`` lets shared holders in
        for as long as one of them is left, so that under steady writes a resize would wait for ever.
        """
        node = key.endswith((".zarray", ".zgroup"))
        own_file = node or key.rpartition("/")[2].startswith(".")  # a document, such as .zmetadata: there are few
        name = f"{'node' if node else 'chunk'}-{_digest(key, 16 if own_file else 1)}"
        gate = self._acquire(f"{name}.gate", shared) if node else None
        try:
            lock = self._acquire(name, shared)
        finally:
            if gate is not None:
                os.close(gate)
        try:
            yield
        finally:
            os.close(lock)

    @contextmanager
    def hold_commit(self, key: str, *, shared: bool = False) -> Iterator[None]:
        """The store's own lock while it compares and renames: a third family, never held by a caller of the store."""
        lock = self._acquire(f"commit-{_digest(key, 1)}", shared)
        try:
            yield
        finally:
            os.close(lock)

    def tidy(self) -> None:
        """Remove lock files that nobody holds, a thousand at most; whoever needs one of them makes it again."""
        self._used.clear()
        with suppress(OSError, BadPath), self._fence.opened(self._directory, READ_DIRECTORY) as folder:
            with os.scandir(folder) as found:
                names = [item.name for item in islice(found, 1_000)]
            for name in names:
                with suppress(OSError):
                    self._remove(name, folder)

    def _acquire(self, name: str, shared: bool) -> int:
        """A descriptor that holds the lock until it is closed."""
        if len(self._used) >= 600:  # all chunks need 512
            self.tidy()
        self._used.add(name)
        while True:
            descriptor = self._open(name)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
                if self._is_current(descriptor, name):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # someone removed the file while we waited: the lock is now another file's

    def _open(self, name: str) -> int:
        for attempt in range(2):
            try:
                with self._fence.opened(self._directory) as folder:
                    return os.open(name, os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o666, dir_fd=folder)
            except OSError as error:
                if attempt or error.errno not in (errno.ENOENT, errno.ENOSPC, errno.EDQUOT):
                    raise
                if error.errno == errno.ENOENT:
                    self._make_directory()
                else:
                    self.tidy()
        raise AssertionError("the second attempt returns or raises")

    def _remove(self, name: str, folder: int) -> None:
        """Remove a lock's file; raises `OSError`, also if somebody holds the lock.

        Whoever waits for it finds that the file is another one. Removing a gate does no harm: it only keeps an order.
        """
        descriptor = os.open(name, os.O_RDWR | NO_FOLLOW, dir_fd=folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_current(descriptor, name):
                os.unlink(name, dir_fd=folder)
        finally:
            os.close(descriptor)

    def _is_current(self, descriptor: int, name: str) -> bool:
        """Whether an open file is the one with that name, and not one that was removed since; raises `OSError`."""
        try:
            return os.path.samestat(os.fstat(descriptor), self._fence.stat(f"{self._directory}/{name}"))
        except FileNotFoundError:
            return False

    def _make_directory(self) -> None:
        """Two levels and no more: a root that is gone (a disk not mounted) must not come back empty."""
        above = ""
        for name in self._directory.split("/"):
            with self._fence.opened(above) as folder, suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
            above = f"{above}/{name}".lstrip("/")


def _digest(key: str, size: int) -> str:
    """The same in every process, unlike `hash`."""
    return blake2b(key.encode(), digest_size=size).hexdigest()
