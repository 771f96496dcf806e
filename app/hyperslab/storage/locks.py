"""Locks by key: between threads (`KeyedLocks`), and between the processes of a machine (`FileLocks`).

Two families never block each other, so that chunk locks can be taken under a node lock: node locks (keys that end in
``.zarray`` or ``.zgroup``) and chunk locks (all other keys). None is re-entrant.
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
    """Fair shared and exclusive locks by key, between the threads of a process; unused keys take no memory."""

    def __init__(self) -> None:
        # by key: holders and waiters in order of arrival, each a list ``[shared]``
        self._queues: dict[str, tuple[list[list[bool]], Condition]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        """Number of keys that are held or waited for."""
        return len(self._queues)

    @contextmanager
    def hold(self, key: str, *, shared: bool = False) -> Iterator[None]:
        """Hold ``key`` while the context lasts."""
        entry = [shared]
        with self._lock:
            queue, changed = self._queues.setdefault(key, ([], Condition(self._lock)))
            queue.append(entry)
        try:
            with self._lock:
                changed.wait_for(lambda: all(shared and other[0] for other in takewhile(partial(is_not, entry), queue)))
            yield
        finally:
            with self._lock:
                queue[:] = [other for other in queue if other is not entry]
                changed.notify_all()
                if not queue:
                    del self._queues[key]


class FileLocks:
    """Shared and exclusive ``flock`` locks on files in ``directory``, a path below the fence's root.

    The kernel releases the locks of a killed process. Each node has its own lock file, since several may be held at
    once and sharing could deadlock; chunks, which a thread locks one at a time, share 256 files. Each `hold` opens the
    file anew, so locks also hold between threads.

    They work between the processes of one machine. Over NFS the Linux client (since 2.6.12) maps them to byte-range
    locks on the server, which work between machines, unless mounted with ``local_lock=flock`` or ``nolock``; SMB and
    FUSE file systems vary. If several machines write, use an object store.
    """

    def __init__(self, fence: Fence, directory: str) -> None:
        self._fence = fence
        self._directory = directory
        self._used: set[str] = set()

    @contextmanager
    def hold(self, key: str, *, shared: bool = False, commit: bool = False) -> Iterator[None]:
        """Hold the lock of ``key``; raises `OSError`. ``commit``: the store's own for comparing versions and renaming;
        a third family, which callers never hold.

        Node locks have a second one, a gate, which an exclusive waiter holds: with ``flock`` alone, a steady stream of
        shared holders would starve it.
        """
        node = not commit and key.endswith((".zarray", ".zgroup"))
        # documents such as .zmetadata are few
        own_file = node or (not commit and key.rpartition("/")[2].startswith("."))
        family = "commit" if commit else "node" if node else "chunk"
        name = f"{family}-{blake2b(key.encode(), digest_size=16 if own_file else 1).hexdigest()}"
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

    def tidy(self) -> None:
        """Remove up to a thousand lock files that nobody holds; they are recreated on demand."""
        self._used.clear()
        with suppress(OSError, BadPath), self._fence.opened(self._directory, READ_DIRECTORY) as folder:
            with os.scandir(folder) as entries:
                names = [item.name for item in islice(entries, 1_000)]
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
            os.close(descriptor)  # the file was removed meanwhile: lock the new one

    def _open(self, name: str) -> int:
        for attempt in range(2):
            try:
                return self._fence.open(f"{self._directory}/{name}", os.O_RDWR | os.O_CREAT | NO_FOLLOW)
            except OSError as error:
                if attempt or error.errno not in (errno.ENOENT, errno.ENOSPC, errno.EDQUOT):
                    raise
                if error.errno != errno.ENOENT:
                    self.tidy()
                    continue
                above = ""  # not the root itself: an unmounted disk must not reappear as an empty folder
                for part in self._directory.split("/"):
                    with self._fence.opened(above) as folder, suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder)
                    above = f"{above}/{part}".lstrip("/")
        raise AssertionError("the second attempt returns or raises")

    def _remove(self, name: str, folder: int) -> None:
        """Remove a lock file; raises `OSError`, also if the lock is held. Waiters notice through `_is_current`; gates
        may be removed any time, as they only affect fairness."""
        descriptor = os.open(name, os.O_RDWR | NO_FOLLOW, dir_fd=folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_current(descriptor, name):
                os.unlink(name, dir_fd=folder)
        finally:
            os.close(descriptor)

    def _is_current(self, descriptor: int, name: str) -> bool:
        """Whether an open file still has this name; raises `OSError`."""
        try:
            now = os.stat(f"{self._fence.root}/{self._directory}/{name}", follow_symlinks=False)
            return os.path.samestat(os.fstat(descriptor), now)
        except FileNotFoundError:
            return False
