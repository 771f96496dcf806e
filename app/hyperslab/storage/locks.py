"""Locks by key: between threads (`KeyedLocks`), and between the processes of one machine (`FileLocks`).

There are two families that never block each other, so that a node lock may be held while chunk locks come and go:
node locks (keys that end in ``.zarray`` or ``.zgroup``) and chunk locks (all other keys). None is re-entrant.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from itertools import islice
from threading import Lock
from typing import Final

import portalocker

from hyperslab.errors import BadPath
from hyperslab.storage.fence import NO_FOLLOW, READ_DIRECTORY, Fence

STRIPES: Final = 256
"""Lock files that all chunks of a store share: two chunks of one stripe wait for each other now and then."""

_GATE: Final = ".gate"
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_MOST_KEPT: Final = 600
"""Lock files that one process leaves behind before it tidies up; all chunks need 512."""
_MOST_REMOVED: Final = 1_000
"""Lock files looked at to make room: one deletion needs a handful, and is the first of several perhaps."""


def is_node_key(key: str) -> bool:
    """Whether a lock on ``key`` is of the node family."""
    return key.endswith((".zarray", ".zgroup"))


class _Turn:
    """One waiter in a queue; ``go`` is held until its turn comes."""

    __slots__ = ("go", "shared")

    def __init__(self, shared: bool) -> None:
        self.shared = shared
        self.go = Lock()
        self.go.acquire()


class _Queue:
    """Who holds a key and who waits for it. ``holders``: -1 for an exclusive one, else the number of shared ones."""

    __slots__ = ("holders", "waiting")

    def __init__(self) -> None:
        self.holders = 0
        self.waiting: deque[_Turn] = deque()

    def admits(self, shared: bool) -> bool:
        return self.holders >= 0 if shared else self.holders == 0

    def enter(self, shared: bool) -> None:
        self.holders = self.holders + 1 if shared else -1

    def leave(self) -> None:
        self.holders = self.holders - 1 if self.holders > 0 else 0

    def call_next(self) -> None:
        """Let in from the head of the queue for as long as it can be: strictly first come, first served."""
        while self.waiting and self.admits(self.waiting[0].shared):
            turn = self.waiting.popleft()
            self.enter(turn.shared)
            turn.go.release()


class KeyedLocks:
    """Shared and exclusive locks by key, for the threads of one process; keys that nobody uses take no memory.

    First come, first served: neither readers nor writers starve.
    """

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        """How many keys are held or waited for."""
        return len(self._queues)

    @contextmanager
    def hold(self, key: str, *, shared: bool = False) -> Iterator[None]:
        """Hold ``key`` while the context lasts."""
        self._acquire(key, shared)
        try:
            yield
        finally:
            self._release(key)

    def _acquire(self, key: str, shared: bool) -> None:
        with self._lock:
            queue = self._queues.setdefault(key, _Queue())
            if not queue.waiting and queue.admits(shared):
                queue.enter(shared)
                return
            turn = _Turn(shared)
            queue.waiting.append(turn)
        try:
            turn.go.acquire()
        except BaseException:  # Ctrl-C while waiting: leave the queue, or the key is never free again
            self._withdraw(key, turn)
            raise

    def _release(self, key: str) -> None:
        with self._lock:
            queue = self._queues[key]
            queue.leave()
            self._move_on(key, queue)

    def _withdraw(self, key: str, turn: _Turn) -> None:
        with self._lock:
            queue = self._queues[key]
            if turn in queue.waiting:
                queue.waiting.remove(turn)
            else:
                queue.leave()
            self._move_on(key, queue)

    def _move_on(self, key: str, queue: _Queue) -> None:
        queue.call_next()
        if not queue.holders and not queue.waiting:
            del self._queues[key]


class FileLocks:
    """Shared and exclusive advisory locks between processes, on files below ``directory``, a path below the
    fence's root (made when first needed).

    The kernel holds them for an open file, so a process that is killed lets go of everything at once. A node has a
    lock file of its own (several may be held at once, and two nodes on one stripe could then wait for each other for
    ever); chunks, of which a thread locks one at a time, share `STRIPES` files. Between threads of one process these
    locks hold too: each `hold` opens the file anew.

    Limits: they are ``flock`` locks, which keep apart the processes of *one* machine on every local file system.
    Over NFS the Linux client (since 2.6.12) turns them into byte-range locks on the server, which works between
    machines where the server's lock manager does; a mount with ``local_lock=flock`` or ``nolock`` keeps them on the
    one machine, and SMB and FUSE file systems vary. Where several machines write, an object store is the better place.
    """

    def __init__(self, fence: Fence, directory: str, in_use: Callable[[str], bool]) -> None:
        self._fence = fence
        self._directory = directory
        self._in_use = in_use
        self._taken: set[str] = set()

    @contextmanager
    def hold(self, key: str, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock of ``key`` in its family while the context lasts; raises `OSError`."""
        node = is_node_key(key)
        of_its_own = node or key.rpartition("/")[2].startswith(".")  # a document, such as .zmetadata: there are few
        name = f"{'node' if node else 'chunk'}-{_digest(key, 16 if of_its_own else 1)}"
        lock = self._take_past_the_gate(name, shared) if node else self._take(name, shared)
        try:
            yield
        finally:
            if of_its_own and not self._in_use(key):
                self._remove(name, lock)
            os.close(lock)

    @contextmanager
    def hold_commit(self, key: str, *, shared: bool = False) -> Iterator[None]:
        """The store's own lock while it compares and renames: a third family, never held by a caller of the store."""
        lock = self._take(f"commit-{_digest(key, 1)}", shared)
        try:
            yield
        finally:
            os.close(lock)

    def _take_past_the_gate(self, name: str, shared: bool) -> int:
        """`_take` the lock ``name``, entered through a second one that an exclusive waiter keeps closed.

        ``flock`` lets shared holders in for as long as one of them is left: under steady writes an exclusive waiter
        (a resize) would wait for ever. At the gate they queue behind it.
        """
        gate = self._take(name + _GATE, shared)
        try:
            return self._take(name, shared)
        finally:
            os.close(gate)

    def tidy(self) -> None:
        """Remove the lock files that nobody holds, or a thousand of them."""
        self._taken.clear()
        with suppress(OSError, BadPath):
            self._make_room()

    def _take(self, name: str, shared: bool) -> int:
        """A descriptor that holds the lock until it is closed."""
        if len(self._taken) >= _MOST_KEPT:
            self.tidy()
        self._taken.add(name)
        while True:
            descriptor = self._open(name)
            try:
                wait_for(descriptor, shared)
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
                if attempt or error.errno not in (errno.ENOENT, *_NO_SPACE):
                    raise
                if error.errno == errno.ENOENT:
                    self._make_directory()
                else:
                    self._make_room()
        raise AssertionError("the second attempt returns or raises")

    def _make_room(self) -> None:
        """Remove some lock files that nobody holds; who wants one of them makes it again."""
        with self._fence.opened(self._directory, READ_DIRECTORY) as folder, os.scandir(folder) as found:
            for name in [item.name for item in islice(found, _MOST_REMOVED)]:
                with suppress(OSError):
                    descriptor = os.open(name, os.O_RDWR | NO_FOLLOW, dir_fd=folder)
                    try:
                        self._remove(name, descriptor)
                    finally:
                        os.close(descriptor)

    def _remove(self, name: str, descriptor: int) -> None:
        """Remove a lock's file, unless others hold the lock: ``descriptor`` then does not hold it any more either.

        Who waits for it finds that the file is another one. Of a gate this is no matter: it only keeps an order.
        """
        with suppress(OSError, portalocker.LockException):
            portalocker.lock(descriptor, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
            if self._is_current(descriptor, name):
                with self._fence.opened(self._directory) as folder:
                    os.unlink(name, dir_fd=folder)
                    os.unlink(name + _GATE, dir_fd=folder)

    def _is_current(self, descriptor: int, name: str) -> bool:
        """Whether an open file is the one with that name; raises `OSError`."""
        return is_still_at(descriptor, f"{self._directory}/{name}", self._fence.stat)

    def _make_directory(self) -> None:
        """Two levels and no more: a root that is gone (a disk not mounted) must not come back empty."""
        above = ""
        for name in self._directory.split("/"):
            with self._fence.opened(above) as folder, suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
            above = f"{above}/{name}".lstrip("/")


def wait_for(descriptor: int, shared: bool) -> None:
    """Lock an open file until it is closed; raises `OSError`."""
    flags = portalocker.LockFlags.SHARED if shared else portalocker.LockFlags.EXCLUSIVE
    try:
        portalocker.lock(descriptor, flags)
    except portalocker.LockException as error:  # blocking: never "somebody else has it", always a failure
        raise OSError(errno.ENOLCK, f"the file system gives no locks ({error})") from error


def is_still_at(descriptor: int, path: str, stat: Callable[[str], os.stat_result] = os.stat) -> bool:
    """Whether an open file is the one at ``path``, and not one that was removed since; raises `OSError`."""
    try:
        return os.path.samestat(os.fstat(descriptor), stat(path))
    except FileNotFoundError:
        return False


def _digest(key: str, size: int) -> str:
    """The same in every process, unlike `hash`."""
    return blake2b(key.encode(), digest_size=size).hexdigest()
