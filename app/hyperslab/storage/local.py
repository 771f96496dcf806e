"""Stores in folders: atomic and durable writes, a new version with each, and locks between processes."""

from __future__ import annotations

import errno
import os
import stat as modes
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Final, ParamSpec, TypeVar

import numpy as np

from hyperslab.errors import BadPath, ChangedWhileRead, StoreDenied, StoredTooLarge, StoreError
from hyperslab.storage.base import (
    ABSENT,
    AT_ONCE,
    MAX_BYTES,
    Absent,
    Capabilities,
    Check,
    Entry,
    Folders,
    Keep,
    Listing,
    Range,
    Store,
    StoredRange,
    StoredValue,
    UnservedEntry,
    VersionConflict,
    WritersSafe,
)
from hyperslab.storage.config import StoreConfig, flag, reject_unknown
from hyperslab.storage.fence import FILE_MODE, NO_FOLLOW, READ_DIRECTORY, Fence, Siblings
from hyperslab.storage.files import (
    ABSENT_ERRORS,
    FileWriter,
    LogFile,
    discard,
    entry_of,
    failure,
    has_whole_seconds,
    version_of,
    wrong_type,
)
from hyperslab.storage.keys import HIDDEN
from hyperslab.storage.locks import FileLocks
from hyperslab.storage.scan import Scanner
from hyperslab.wire.retry import attempts

OPTIONS: Final = frozenset({"file_locks"})

P = ParamSpec("P")
T = TypeVar("T")


class LocalStore(Store):
    """Store in a directory. Writers are safe between the processes of one machine (see `FileLocks` for network file
    systems).

    ``root`` is created if the store is writable. Links are followed within the root (but not by `delete_prefix`);
    `errors.BadPath` is raised for links that lead out, and for a key that is a prefix of other keys, which a file
    system cannot store. Option ``file_locks=false``: for file systems without ``flock``; writers are then safe between
    threads only.
    """

    hides_absence = False

    def __init__(self, config: StoreConfig, root: str) -> None:
        reject_unknown(config.options, OPTIONS, "a folder")
        file_locks = flag(config.options, "file_locks", True)
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        capabilities = Capabilities(
            width=processors,
            conditional_put=True,
            conditional_delete=True,
            writers_safe=WritersSafe.PROCESSES if file_locks else WritersSafe.THREADS,
            cheap_stat=True,
        )
        super().__init__(config, capabilities, concurrent=False)
        if config.writable:
            self._translated("", os.makedirs, root, exist_ok=True)
        self._fence = Fence(root)
        self._knows_memory = hasattr(os, "RWF_NOWAIT")
        self._scanner = Scanner(self._fence, tidy=config.writable)
        self._writer = FileWriter(self._fence, durable=config.durability == "fsync", file_locks=file_locks)
        self._processes = FileLocks(self._fence, f"{HIDDEN}/locks") if file_locks else None
        self._commit = partial(self._processes.hold, commit=True) if self._processes else self._commits.hold

    @property
    def url(self) -> str:
        return f"file://{self._fence.root}"

    def get(self, key: str, max_bytes: int = MAX_BYTES) -> StoredValue | None:
        data = self._read(key, lambda stat: ((0, stat.st_size),), max_bytes=max_bytes)
        return None if data is None else StoredValue(data[1][0], version_of(data[0]))

    def get_part(self, key: str, start: int, stop: int) -> StoredRange | None:
        data = self._read(key, lambda _: ((start, stop),))
        return None if data is None else StoredRange(entry_of(key, data[0]), start, data[1][0])

    def get_end(self, key: str, nbytes: int) -> StoredRange | None:
        data = self._read(key, lambda stat: ((max(0, stat.st_size - nbytes), stat.st_size),))
        return (
            None if data is None else StoredRange(entry_of(key, data[0]), max(0, data[0].st_size - nbytes), data[1][0])
        )

    def get_ranges(
        self, key: str, ranges: Sequence[Range], version: str | None = None
    ) -> list[bytes | memoryview] | None:
        def checked(stat: os.stat_result) -> Sequence[Range]:
            if version not in (None, version_of(stat)):
                raise VersionConflict(key, version_of(stat))
            return ranges

        data = self._read(key, checked)
        return None if data is None else [*data[1]]

    def stat(self, key: str) -> Entry | None:
        try:
            stat = self._fence.stat(key)
        except OSError as error:
            self._absent(key, error)
            return None
        return entry_of(key, stat) if self._is_file(key, stat) else None

    def versions(self, prefix: str, keys: Sequence[str]) -> list[str | None]:  # noqa: ARG002
        """Opens a directory once for consecutive keys in it."""
        versions: list[str | None] = []
        with closing(Siblings(self._fence)) as directories:
            for directory, inside in groupby(keys, lambda key: key.rpartition("/")[0]):
                try:
                    folder = directories.open(directory)
                except OSError as error:
                    self._absent(f"{directory}/", error)
                    versions += [None for _ in inside]
                    continue
                start = len(directory) + 1 if directory else 0
                try:
                    for key in inside:
                        try:
                            stat = os.stat(key[start:], dir_fd=folder, follow_symlinks=False)
                        except FileNotFoundError:  # the open folder shows that the root exists
                            versions.append(None)
                        except OSError as error:
                            self._absent(key, error)
                            versions.append(None)
                        else:  # `_version` follows a link
                            versions.append(version_of(stat) if modes.S_ISREG(stat.st_mode) else self._version(key))
                finally:
                    os.close(folder)
        return versions

    def document_versions(
        self,
        prefix: str,
        keys: Sequence[str],
        *,
        denied_is_absent: bool = False,  # noqa: ARG002
    ) -> list[str | None]:
        return self.versions(prefix, keys)

    def _delete_prefix(self, prefix: str, check: Check | None, keep: Keep | None) -> int:
        if check is not None:
            check()
        try:
            count = self._scanner.remove(prefix, keep)
            self._tidy_above(prefix)
        except OSError as error:
            self._absent(prefix, error)
            return 0
        return count

    def list_dir(self, prefix: str) -> Listing:
        try:
            return self._scanner.list_dir(prefix)
        except OSError as error:
            self._absent(prefix, error)
            return Listing((), ())

    def list_folders(self, prefix: str, first: str, count: int) -> Folders:
        try:
            return self._scanner.list_folders(prefix, first, count)
        except OSError as error:
            self._absent(prefix, error)
            return Folders(())

    def list_prefix(self, prefix: str, unserved: list[UnservedEntry] | None = None) -> Iterator[Entry]:
        try:
            yield from self._scanner.walk(prefix, unserved)
        except OSError as error:
            self._absent(prefix, error)

    def list_with_streams(self, prefix: str) -> Iterator[Entry]:
        try:
            yield from self._scanner.walk(prefix, [], streams=True)
        except OSError as error:
            self._absent(prefix, error)

    def is_odd(self, key: str) -> bool:
        folder, _, name = key.rpartition("/")
        try:
            with self._fence.opened(folder) as above:
                mode = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
        except (OSError, BadPath):
            return False
        if modes.S_ISLNK(mode):
            with suppress(OSError, BadPath):
                mode = self._fence.stat(key).st_mode
        return not (modes.S_ISREG(mode) or modes.S_ISDIR(mode))

    def denied_folders(self, prefix: str) -> Iterator[tuple[str, bool]]:
        try:
            yield from self._scanner.denied(prefix)
        except OSError as error:
            self._absent(prefix, error)

    def is_link(self, prefix: str) -> bool:
        return self._translated(prefix, self._scanner.is_link, prefix)

    def open_log(self, key: str, *, create: bool = False) -> LogFile | None:
        if create:
            self._require_writable()
            flags = os.O_RDWR | os.O_CREAT | NO_FOLLOW
            descriptor = self._in_folder(key, lambda folder, name: os.open(name, flags, FILE_MODE, dir_fd=folder))
        else:
            try:
                descriptor = self._fence.open(key, os.O_RDONLY | NO_FOLLOW)
            except OSError as error:
                self._absent(key, error)
                return None
        return LogFile(self.name, key, descriptor, durable=self._config.durability == "fsync")

    @contextmanager
    def lock(self, key: str, *, shared: bool = False) -> Iterator[None]:
        with super().lock(key, shared=shared), ExitStack() as held:
            if self._processes is not None:
                self._translated(key, held.enter_context, self._processes.hold(key, shared=shared))
            yield

    def check(self) -> None:
        descriptor = self._translated("", self._fence.open, "", READ_DIRECTORY)
        try:
            coarse = self._writer.coarse or has_whole_seconds(self._translated("", os.fstat, descriptor))
        finally:
            os.close(descriptor)
        self._capabilities = replace(self._capabilities, coarse_times=coarse)
        if self._config.writable and not os.access(self._fence.root, os.W_OK | os.X_OK):
            raise StoreDenied(self.name, "", "the folder cannot be written to")

    def close(self) -> None:
        if self._processes is not None and self._config.writable:
            self._processes.tidy()
        self._fence.close()

    def _read(
        self, key: str, ranges: Callable[[os.stat_result], Sequence[Range]], max_bytes: int | None = None
    ) -> tuple[os.stat_result, Sequence[bytes | memoryview]] | None:
        """The stat of a file and the ranges that ``ranges`` chooses from it, up to its end, read again if another
        program rewrites the file meanwhile; None if absent. Raises `StoredTooLarge` for more than ``max_bytes``."""
        may_wait = not AT_ONCE.get()
        if not may_wait and not self._knows_memory:
            raise BlockingIOError
        for attempt in range(10):
            try:
                descriptor = self._fence.open(key, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO would block
            except OSError as error:
                self._absent(key, error)
                return None
            try:
                before = os.fstat(descriptor)
                if not self._is_file(key, before):
                    return None
                if not before.st_nlink and attempt < 9:  # another file is in its place, or none
                    continue
                size = before.st_size
                if max_bytes is not None and size > max_bytes:
                    raise StoredTooLarge(key, size, max_bytes)
                wanted = [(start, max(start, min(stop, size))) for start, stop in ranges(before)]
                data = (_read_ranges if may_wait else self._read_at_once)(descriptor, wanted)
                after = os.fstat(descriptor)
            except BlockingIOError:
                raise
            except OSError as error:
                raise failure(self.name, key, error) from error
            finally:
                os.close(descriptor)
            # a file without a link has changed only in that another one is in its place
            is_same = before.st_ctime_ns == after.st_ctime_ns or not after.st_nlink
            if is_same and before.st_mtime_ns == after.st_mtime_ns and size == after.st_size:
                return before, data
            if not may_wait:
                raise BlockingIOError
            time.sleep(0.01)
        raise ChangedWhileRead(f"another program is rewriting {key!r} in place")

    def _read_at_once(self, descriptor: int, ranges: Sequence[Range]) -> list[bytes | memoryview]:
        """As `_read_ranges`; raises `BlockingIOError` if the bytes are on a disk, or the file system, as in memory or
        on a network, does not know."""
        parts = list[bytes | memoryview]()
        for start, stop in ranges:
            part = memoryview(bytearray(stop - start))
            try:
                count = os.preadv(descriptor, [part], start, os.RWF_NOWAIT) if part else 0
            except OSError as error:
                self._knows_memory = error.errno != errno.EOPNOTSUPP
                raise BlockingIOError from error
            if count < len(part):
                raise BlockingIOError
            parts.append(part.toreadonly())
        return parts

    def _is_file(self, key: str, stat: os.stat_result) -> bool:
        """Whether it is a file and not a folder; raises for anything else, which must not look like absence."""
        if modes.S_ISREG(stat.st_mode):
            return True
        if not modes.S_ISDIR(stat.st_mode):
            raise StoreError(self.name, key, f"{wrong_type(stat)} stands where the value of this key should be")
        return False

    def _put_parts(self, key: str, parts: Sequence[memoryview], if_version: str | Absent | None) -> str:
        self._compare(key, if_version)  # early, before writing; compared again under the lock

        def write(folder: int, name: str) -> str:
            temporary, descriptor = self._writer.write(folder, parts)
            try:
                self._publish(key, folder, temporary, name, if_version)
                return version_of(os.fstat(descriptor))  # to publish it is a change
            finally:
                os.close(descriptor)

        return self._in_folder(key, write)

    def _in_folder(self, key: str, work: Callable[[int, str], T]) -> T:
        """The result of ``work`` with a descriptor of a key's folder, which is made if missing, and the key's name in
        it; done again if the folder is removed meanwhile, as any is that a deletion leaves empty."""
        directory, _, name = key.rpartition("/")
        for _ in attempts(10, first=0.001, longest=0.05):
            try:
                with self._writer.folder(directory) as folder:
                    done = work(folder, name)
                    self._writer.sync(folder)
            except FileNotFoundError:
                self._require_root(key)
            except OSError as error:
                raise failure(self.name, key, error) from error
            else:
                return done
        raise StoreError(self.name, key, "its folder was removed again and again while it was written")

    def _put_pieces(self, key: str, pieces: Iterator[bytes]) -> None:
        log, position = self.open_log(key, create=True), 0
        assert log is not None
        log.write(0, [])
        for piece in pieces:
            log.write(position, [(position, piece)])
            position += len(piece)

    def _publish(self, key: str, folder: int, temporary: str, name: str, if_version: str | Absent | None) -> None:
        """Compare versions and rename, under an exclusive lock if there is a condition, else a shared one."""
        try:
            with self._commit(key, shared=if_version is None):
                self._compare(key, if_version)
                self._writer.publish(folder, temporary, name, create=if_version is ABSENT)
        except FileExistsError:
            discard(temporary, folder)
            if (current := self._version(key)) is None:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), key) from None
            raise VersionConflict(key, current) from None
        except BaseException:
            discard(temporary, folder)
            raise

    def _delete(self, key: str, if_version: str | None) -> bool:
        directory, _, name = key.rpartition("/")
        try:
            with self._commit(key):
                self._compare(key, if_version)
                if not self.is_odd(key) and self.stat(key) is None:
                    return False
                try:
                    with self._fence.opened(directory) as folder:
                        os.unlink(name, dir_fd=folder)
                except FileNotFoundError:  # deleted concurrently
                    return False
            self._tidy_above(directory)
        except OSError as error:
            raise failure(self.name, key, error) from error
        return True

    def delete_each(self, keys: Sequence[str], check: Check) -> None:
        for directory, inside in groupby(sorted(keys), lambda key: key.rpartition("/")[0]):
            inner = [*inside]
            for batch in (inner[first : first + 1000] for first in range(0, len(inner), 1000)):
                check()
                self._changed(batch[0], partial(self._unlink, directory, batch))
                for key in batch[1:]:
                    self._changed(key, lambda: True)

    def _unlink(self, directory: str, keys: Sequence[str]) -> bool:
        """Delete files in a directory."""
        try:
            with self._fence.opened(directory) as folder:
                for key in keys:
                    with suppress(FileNotFoundError, IsADirectoryError):
                        os.unlink(key.rpartition("/")[2], dir_fd=folder)
            self._tidy_above(directory)
        except OSError as error:
            self._absent(directory, error)
        return True

    def _tidy_above(self, directory: str) -> None:
        """Remove folders that are empty after a deletion, and sync the deletion."""
        with suppress(FileNotFoundError):  # whoever removed it has synced its parent
            self._writer.sync_path(self._scanner.prune(directory))

    def _absent(self, key: str, error: OSError) -> None:
        """Raise the failure for an error, unless it means that the key is absent: not of a file whose link leads to
        nothing, as those of git-annex do until it is fetched."""
        if error.errno not in ABSENT_ERRORS:
            raise failure(self.name, key, error) from error
        self._require_root(key)
        if error.errno == errno.ENOENT and not key.endswith("/"):
            above, _, name = key.rpartition("/")
            with suppress(OSError), self._fence.opened(above) as folder:
                if modes.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    raise StoreError(self.name, key, "a symbolic link leads to nothing") from error

    def _require_root(self, key: str) -> None:
        """Raise `StoreError` if the root is missing: an unmounted disk must not look like absence."""
        if not os.path.isdir(self._fence.root):
            raise StoreError(self.name, key, f"the folder {self._fence.root!r} is not there")

    def _translated(self, key: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except OSError as error:
            raise failure(self.name, key, error) from error


def _read_ranges(descriptor: int, ranges: Sequence[Range]) -> list[bytes | memoryview]:
    """Ranges of a file, several of them in one allocation, each cut at the end of the file.

    When many allocations are freed, the C library gives their pages back, and new pages take longer than reading: of a
    plane of raw chunks in shards, over HTTP, 2.2 times as long.
    """
    if len(ranges) == 1:
        start, stop = ranges[0]
        data = os.pread(descriptor, stop - start, start) if stop > start else b""
        if len(data) == stop - start or not data:  # one call returns at most 2 GiB
            return [data]
    memory = np.empty(sum([stop - start for start, stop in ranges]), np.uint8).data
    parts = list[bytes | memoryview]()
    for start, stop in ranges:
        part, memory = memory[: stop - start], memory[stop - start :]
        done = 0
        while done < len(part) and (count := os.preadv(descriptor, [part[done:]], start + done)):
            done += count
        parts.append(part[:done])
    return parts
