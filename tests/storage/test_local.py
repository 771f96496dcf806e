"""Folders."""

from __future__ import annotations

import errno
import math
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, contextmanager, suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from hyperslab import errors
from hyperslab.storage import StoreConfig, fence, files, locks, open_store, scan
from hyperslab.storage import local as local_store
from hyperslab.storage.base import ABSENT, Store, VersionConflict, WritersSafe
from hyperslab.storage.files import FileWriter
from tests.arrays.support import snapshot
from tests.storage.support import fill


def local(root: Path, **values: object) -> Store:
    chosen = {"writable": True, "durability": "rename"} | values
    return open_store(StoreConfig("disk", str(root), **chosen))  # type: ignore[arg-type]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def test_every_rewrite_changes_the_version(root: Path) -> None:
    """Ours, durable ones too, and others'."""
    store = local(root, durability="fsync")
    versions = {store.put("k", b"ours") for _ in range(30)}
    time.sleep(0.02)  # the kernel's clock, which stamps the others' writes, ticks every few milliseconds

    (root / "k").write_bytes(b"xxxx")

    assert len(versions | {*store.versions("", ["k"])}) == 31


@pytest.mark.parametrize("way", ["in place", "made anew", "renamed"])
def test_a_file_that_others_write_with_its_old_size_and_time_has_another_version(root: Path, way: str) -> None:
    """As archives do whose files all have one time, and copies that keep times; a new file may get the old inode."""
    store, path, other = local(root), root / "k", root / "other"
    version = store.put("k", b"ours")
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        if way == "made anew":
            path.unlink()
        written = other if way == "renamed" else path
        written.write_bytes(b"xxxx")
        os.utime(written, ns=(before.st_atime_ns, before.st_mtime_ns))
        if way == "renamed":
            other.replace(path)

    assert store.versions("", ["k"]) != [version]
    with pytest.raises(VersionConflict):
        store.put("k", b"late", if_version=version)


def test_folders_of_a_large_folder_are_listed_again_when_it_changed_or_after_seconds(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root, {f"{folder}/{name}/k": b"" for folder, names in (("few", "abc"), ("many", "abcd")) for name in names})
    store, scandir = local(root, writable=False), Mock(wraps=os.scandir)
    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr("hyperslab.storage.scan._MANY", 3)

    def listed(folder: str = "many/") -> tuple[str, int]:
        """Names, and how often the folder was read for them."""
        scandir.reset_mock()
        return "".join(store.list_folders(folder, "", 9).names), scandir.call_count

    assert [listed(), listed()] == [("abcd", 1)] * 2  # it has changed just now
    monkeypatch.setattr("hyperslab.storage.scan._SETTLED", -1.0)
    assert [listed(), listed()] == [("abcd", 1), ("abcd", 0)]
    assert [listed("few/"), listed("few/")] == [("abc", 1)] * 2
    (root / "many/e").mkdir()
    assert [listed(), listed()] == [("abcde", 1), ("abcde", 0)]
    monkeypatch.setattr("hyperslab.storage.scan._REMEMBERED", 0.0)
    assert listed() == ("abcde", 1)


def test_reading_leaves_no_trace_and_writing_makes_the_folder(root: Path) -> None:
    fill(root, {"a/k": b"1", "a/.hyperslab.tmp.1.2.3": b"half"})
    os.utime(root / "a/.hyperslab.tmp.1.2.3", (0, 0))
    store = local(root, writable=False)

    store.get("a/k")
    store.versions("a/", ["a/k", "a/l"])
    list(store.list_prefix(""))
    store.check()
    local(root / "new" / "folder").put("a/k", b"1", if_version=ABSENT)

    found = sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and "locks" not in path.parts
    )
    assert found == ["a/.hyperslab.tmp.1.2.3", "a/k", "new/folder/a/k"]


class TestRoot:
    """A root that is gone is a failure, not a store without keys."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return local(tmp_path / "gone", writable=False)

    def test_every_read_is_a_fault_and_no_absence(self, store: Store) -> None:
        for read in (
            lambda: store.get("k"),
            lambda: store.get_ranges("k", [(0, 1)]),
            lambda: store.stat("k"),
            lambda: store.versions("", ["k"]),
            lambda: store.list_dir(""),
            lambda: list(store.list_prefix("")),
            store.check,
        ):
            with pytest.raises(errors.StoreError):
                read()

    def test_writing_does_not_bring_it_back_empty(self, tmp_path: Path) -> None:
        root = tmp_path / "root"
        store = local(root)
        root.rmdir()

        for write in (lambda: store.put("k", b"1"), lambda: store.lock("k").__enter__()):
            with pytest.raises(errors.StoreError):
                write()

        assert not root.exists()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
@pytest.mark.parametrize(("reason", "error"), [(errno.EPERM, errors.StoreDenied), (errno.ENOSPC, errors.StoreFull)])
def test_a_file_that_cannot_be_made_says_why_without_openat2(
    root: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: int, error: type[errors.StoreError]
) -> None:
    """As on a full disk, or in a folder that is protected (``chattr +i``), where openat2 fails as in a sandbox."""
    store, openat = local(root), os.open

    def refuse(path: str, flags: int, *others: int, **options: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(reason, os.strerror(reason), path)
        return openat(path, flags, *others, **options)

    monkeypatch.setattr(fence._OpenAt2, "__call__", lambda *_: (-1, number))
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(error), store.lock("k"):
        raise AssertionError("nobody holds it")


@pytest.mark.parametrize("has_openat2", [True, False], indirect=True)
class TestLinks:
    """Symbolic links are followed inside the root and refused where they lead out."""

    @pytest.fixture(autouse=True)
    def has_openat2(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
        if not request.param:
            monkeypatch.setattr(fence._OpenAt2, "__call__", lambda *_: (-1, errno.ENOSYS))
        return bool(request.param)

    @pytest.fixture
    def outside(self, tmp_path: Path) -> Path:
        fill(tmp_path / "outside", dict.fromkeys(("secret", "deep/secret"), b"a secret from outside"))
        return tmp_path / "outside"

    def test_what_lies_outside_is_refused(self, root: Path, outside: Path) -> None:
        """Behind a link to a file or a folder, also one that takes the place of a folder that was read before."""
        fill(root, {"a/k": b"1", "b/secret": b"harmless"})
        (root / "a" / "link").symlink_to(outside / "secret")
        (root / "c").symlink_to(outside)
        store = local(root)
        assert store.get("b/secret") is not None
        (root / "b").rename(root / "d")
        (root / "b").symlink_to(outside)

        for key in ("a/link", "c/secret", "c/deep/secret", "b/secret"):
            self._refuses(store, key)
        for key in ("../outside/secret", "a/../../outside/secret", ".."):  # that were never normalised
            for read in (store.get, store.stat):
                with suppress(errors.BadPath):
                    assert read(key) is None

    def test_nothing_is_written_through_a_link_that_leads_out(self, root: Path, outside: Path) -> None:
        (root / "a").symlink_to(outside)
        store = local(root)

        for key in ("a/new", "a/deep/new", "a/fresh/new"):
            with pytest.raises(errors.BadPath):
                store.put(key, b"1")
        with pytest.raises(errors.BadPath):
            store.delete("a/secret")
        with pytest.raises(errors.BadPath):
            store.delete_prefix("a/")

        assert sorted(str(p.relative_to(outside)) for p in outside.rglob("*")) == ["deep", "deep/secret", "secret"]

    def test_listings_leave_out_what_lies_outside(self, root: Path, outside: Path) -> None:
        fill(root, {"a/k": b"1"})
        (root / "a" / "out").symlink_to(outside)
        (root / "a" / "file").symlink_to(outside / "secret")
        (root / "a" / "dangling").symlink_to(root / "nothing")
        store = local(root)

        assert [entry.key for entry in store.list_prefix("")] == ["a/k"]
        assert store.list_dir("a/").prefixes == ()

    def test_links_inside_are_followed(self, root: Path) -> None:
        fill(root, {"real/k": b"1", "real/sub/l": b"2"})
        (root / "alias").symlink_to(root / "real")
        (root / "real" / "link").symlink_to("k")
        (root / "dangling").symlink_to(root / "nothing")
        store = local(root)

        assert [store.get(key) is not None for key in ("alias/k", "alias/sub/l", "real/link")] == [True] * 3
        assert store.versions("", ["real/link"]) == store.versions("", ["real/k"])
        assert {e.key for e in store.list_prefix("alias/")} == {"alias/k", "alias/link", "alias/sub/l"}
        for read in (store.get, store.stat, lambda key: store.versions("", [key])):
            with pytest.raises(errors.StoreError, match="leads to nothing"):  # no absence: see git-annex
                read("dangling")
        links = [store.is_link(prefix) for prefix in ("alias/", "real/", "alias/sub/", "nothing/", "")]
        assert links == [True, False, False, False, False]
        assert store.delete_prefix("alias/") == 3  # the link alone goes
        assert not (root / "alias").exists()
        assert (root / "real" / "k").read_bytes() == b"1"

    def test_links_in_a_circle_end(self, root: Path) -> None:
        """What leads back to where one comes from is not listed, as seen from where one stands: ``b`` is no child of
        ``a/to_b/to_a/to_b``, but one of ``a``."""
        fill(root, {"a/k": b"1", "b/l": b"2"})
        (root / "a" / "to_b").symlink_to(root / "b")
        (root / "b" / "to_a").symlink_to(root / "a")
        (root / "a" / "up").symlink_to(root)
        (root / "self").symlink_to(root / "self")
        store = local(root)

        assert "a/to_b/l" in {entry.key for entry in store.list_prefix("")}
        with pytest.raises(errors.StoreError, match="in a circle"):
            store.get("self")
        listed = [store.list_dir(prefix).prefixes for prefix in ("", "a/", "a/to_b/", "b/", "b/to_a/")]
        assert listed == [("a", "b"), ("to_b",), (), ("to_a",), ()]

    def test_a_folder_exchanged_for_a_link_while_it_is_used_leads_nowhere_else(self, root: Path, outside: Path) -> None:
        """Whatever moment the exchange comes at: nothing outside is read, listed, overwritten or removed."""
        fill(root, {"a/secret": b"inside", "a/deep/secret": b"inside"})
        store, done = local(root), threading.Event()
        seen = set[bytes | None]()

        def exchange() -> None:
            (root / "link").symlink_to(outside)
            while not done.is_set():
                for old, new in (("a", "b"), ("link", "a"), ("a", "link"), ("b", "a")):
                    with suppress(OSError):  # a writer may have made it again
                        (root / old).rename(root / new)

        def read_part() -> None:
            part = store.get_part("a/secret", 0, 8)
            seen.add(bytes(part.data) if part else None)

        with ThreadPoolExecutor(1) as pool:
            exchanging = pool.submit(exchange)
            for i in range(150):
                for use in (
                    lambda: seen.add(bytes(stored.data) if (stored := store.get("a/secret")) else None),
                    read_part,
                    lambda: seen.update(entry.key.encode()[-6:] for entry in store.list_prefix("a/") if entry.size > 6),
                    lambda i=i: store.put(f"a/{i % 3}", b"inside"),
                    lambda: store.put("a/deep/secret", b"inside"),
                    lambda i=i: store.delete(f"a/{(i + 1) % 3}"),
                    lambda: store.delete_prefix("a/deep/"),
                ):
                    with suppress(errors.HyperslabError):
                        use()
            done.set()
            exchanging.result()

        assert seen <= {b"inside", None}
        assert {str(p.relative_to(outside)): p.read_bytes() for p in outside.rglob("*") if p.is_file()} == {
            "secret": b"a secret from outside",
            "deep/secret": b"a secret from outside",
        }

    @pytest.mark.parametrize("exchanged", ["link", "a"])
    def test_a_folder_exchanged_after_it_was_looked_at_is_refused(
        self, root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, exchanged: str
    ) -> None:
        fill(root, {"a/secret": b"inside"})
        (root / "link").symlink_to(root / "a")
        store, look = local(root), fence._open_unless_link

        def looked(name: str, flags: int, directory: int) -> int | None:
            found = look(name, flags, directory)
            if name == exchanged and not (root / "old").exists():
                (root / name).rename(root / "old")
                (root / name).symlink_to(outside)
            return found

        monkeypatch.setattr(fence, "_open_unless_link", looked)
        with suppress(errors.HyperslabError):
            assert (stored := store.get("link/secret")) is None or stored.data == b"inside"

    def test_locks_are_taken_inside(self, root: Path, outside: Path) -> None:
        (root / ".hyperslab").symlink_to(outside)

        with pytest.raises(errors.BadPath), local(root).lock("a"):
            pass
        assert not (outside / "locks").exists()

    def test_a_root_that_is_exchanged_is_the_new_one(self, root: Path, outside: Path) -> None:
        """A restored copy, or a disk that is mounted late."""
        fill(root, {"k": b"old"})
        store = local(root)
        assert store.get("k") is not None
        root.rename(root.with_name("old"))
        fill(root, {"k": b"new"})

        stored = store.get("k")
        assert stored is not None
        assert stored.data == b"new"

        root.rename(root.with_name("older"))
        root.symlink_to(outside)
        self._refuses(store, "secret")

    @staticmethod
    def _refuses(store: Store, key: str) -> None:
        for read in (
            lambda: store.get(key),
            lambda: store.get_ranges(key, [(0, 1)]),
            lambda: store.stat(key),
            lambda: store.versions("", [key]),
        ):
            with pytest.raises(errors.BadPath):
                read()


class TestNames:
    """What a disk cannot hold."""

    @pytest.mark.parametrize("key", ["pipe", "socket", "device", "link"])
    def test_what_is_no_file_is_a_fault_of_the_store_and_no_absence(self, root: Path, key: str) -> None:
        """It would read as fill values; and nobody waits for what comes out of a pipe."""
        os.mkfifo(root / "pipe")
        (root / "device").symlink_to("/dev/zero")  # led out of the store, which is refused as such
        (root / "link").symlink_to(root / "pipe")
        with socket.socket(socket.AF_UNIX) as listener, chdir(root):  # the names of sockets are short
            listener.bind("socket")
        store = local(root)

        for read in (
            lambda: store.get(key),
            lambda: store.get_ranges(key, [(0, 1)]),
            lambda: store.versions("", [key]),
            lambda: store.put(key, b"1", if_version=ABSENT),
            lambda: store.get_part(key, 0, 1),
        ):
            with pytest.raises(errors.BadPath if key == "device" else errors.StoreError) as failed:
                read()
            assert key == "device" or "stands where" in str(failed.value)

    def test_a_folder_is_absent_as_a_prefix_is_and_stands_in_the_way_of_a_value(self, root: Path) -> None:
        fill(root, {"a/k": b"1"})

        assert local(root).get("a") is None
        assert local(root).stat("a") is None
        assert not local(root).delete("a")
        for condition in (None, ABSENT):
            with pytest.raises(errors.StoreError, match="a folder stands where"):
                local(root).put("a", b"1", if_version=condition)

    def test_a_name_too_long_for_the_disk_is_absent_and_cannot_be_written(self, root: Path) -> None:
        key = "a/" + "x" * 300

        assert local(root).get(key) is None
        assert local(root).versions("a/", [key]) == [None]
        with pytest.raises(errors.BadPath):
            local(root).put(key, b"1")

    @pytest.mark.parametrize(
        ("key", "kind"), [("a", errors.StoreError), ("a/k/below", errors.BadPath), ("a/k/b/c", errors.BadPath)]
    )
    def test_a_key_that_clashes_with_a_folder_or_a_file_is_refused(
        self, root: Path, key: str, kind: type[Exception]
    ) -> None:
        fill(root, {"a/k": b"1"})
        store = local(root)

        with pytest.raises(kind):
            store.put(key, b"2")

        assert [path.name for path in (root / "a").iterdir()] == ["k"]
        assert [entry.key for entry in store.list_prefix("")] == ["a/k"]

    def test_names_that_are_not_text_are_not_keys(self, root: Path) -> None:
        (root / os.fsdecode(b"\xff\xfe")).write_bytes(b"1")

        assert list(local(root).list_prefix("")) == []


class TestLogs:
    """A value that grows at its end."""

    def test_what_lies_behind_the_place_of_a_write_is_cut_off(self, root: Path) -> None:
        writer = local(root, durability="fsync").open_log("a/tail", create=True)
        reader = local(root, writable=False).open_log("a/tail")
        assert writer is not None
        assert reader is not None

        writer.write(0, [(0, b"abc"), (3, memoryview(b"def"))])
        writer.write(2, [(2, b"XY")])
        (root / "a" / "tail").unlink()

        out = bytearray(3)
        reader.read_into(1, memoryview(out))
        assert (bytes(out), reader.size) == (b"bXY", 4)
        with pytest.raises(errors.StoreError, match="ends at byte 4"):
            reader.read_into(2, memoryview(out))

    def test_none_is_made_by_looking_or_without_leave(self, root: Path) -> None:
        store = local(root, writable=False)

        assert store.open_log("tail") is None
        with pytest.raises(errors.ReadOnly):
            store.open_log("tail", create=True)
        assert list(root.iterdir()) == []


def test_what_a_killed_writer_left_is_no_key_and_goes_when_it_is_old(root: Path) -> None:
    left_behind = root / "a" / ".hyperslab.tmp.1.2.3"
    fill(root, {"a/k": b"1", "a/.hyperslab.tmp.1.2.3": b"half", "b/k": b"1", "b/.hyperslab.tmp.1.2.3": b"half"})
    store = local(root)

    assert [entry.key for entry in store.list_dir("a/").entries] == ["a/k"]
    assert left_behind.exists()
    os.utime(left_behind, (time.time() - 7200,) * 2)
    store.list_dir("a/")
    assert not left_behind.exists()
    assert store.delete_prefix("b/") == 1
    assert not (root / "b").exists()


class TestDurability:
    """What is asked of the disk before a write counts as done."""

    @pytest.fixture
    def synced(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The paths that fsync was called for, in order."""
        paths: list[str] = []
        fsync = os.fsync

        def spy(descriptor: int) -> None:
            paths.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", spy)
        return paths

    def test_file_folder_and_new_parents_are_synced(self, root: Path, synced: list[str]) -> None:
        local(root, durability="fsync").put("a/b/k", b"1")

        assert [path for path in synced if "tmp" not in Path(path).name] == [str(root), f"{root}/a", f"{root}/a/b"]
        assert sum(".hyperslab.tmp" in path for path in synced) == 1

    def test_folders_that_someone_else_made_are_synced_once(self, root: Path, synced: list[str]) -> None:
        fill(root, {"a/b/other": b"1"})
        store = local(root, durability="fsync")
        store.put("a/b/k", b"1")
        synced.clear()

        store.put("a/b/l", b"1")

        assert [Path(path).parent if ".hyperslab.tmp" in path else Path(path) for path in synced] == [root / "a/b"] * 2

    def test_a_deletion_is_synced_and_rename_durability_never_waits(self, root: Path, synced: list[str]) -> None:
        fill(root, {"a/b/k": b"1", "a/l": b"2"})
        store = local(root, durability="rename")
        store.put("a/b/k", b"1")
        store.delete("a/b/k")
        assert synced == []
        (root / "a/b").mkdir()
        (root / "a/b/k").touch()

        local(root, durability="fsync").delete("a/b/k")

        assert synced == [f"{root}/a"]

    @pytest.mark.parametrize("durability", ["fsync", "rename"])
    def test_a_log_is_synced_where_values_are(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, durability: str
    ) -> None:
        synced: list[int] = []
        monkeypatch.setattr(os, "fdatasync", synced.append)
        log = local(root, durability=durability).open_log("tail", create=True)
        assert log is not None

        log.write(0, [(0, b"abc")])

        assert len(synced) == (durability == "fsync")


def test_folders_that_a_deletion_leaves_empty_are_removed(root: Path) -> None:
    fill(root, {"a/b/c/k": b"1", "a/l": b"2"})
    store = local(root)

    store.delete("a/b/c/k")

    assert [path.name for path in (root / "a").iterdir()] == ["l"]
    store.delete("a/l")
    assert root.exists()
    assert not (root / "a").exists()


@pytest.mark.parametrize("durability", ["fsync", "rename"])
def test_a_folder_that_a_deletion_removes_at_the_last_moment_is_made_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    """Values and logs are stored in it nevertheless."""
    store, opened = local(root, durability=durability), FileWriter.folder

    @contextmanager
    def removed(writer: FileWriter, path: str) -> Iterator[int]:
        with opened(writer, path) as folder:
            if path == "a/b":
                monkeypatch.setattr(FileWriter, "folder", opened)
                (root / "a" / "b").rmdir()
            yield folder

    for change in (lambda: store.put("a/b/k", b"1"), lambda: store.open_log("a/b/tail", create=True)):
        store.delete_prefix("a/")
        monkeypatch.setattr(FileWriter, "folder", removed)
        change()
        assert FileWriter.folder is opened
    assert [*snapshot(root)] == ["a/b/tail"]


def test_a_creation_overwrites_nothing_that_another_program_makes_meanwhile(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, looks = local(root), list[str]()

    def compare(key: str, _: object) -> None:
        looks.append(key)
        if len(looks) == 2:  # the last one before the value is published
            (root / key).write_bytes(b"theirs")

    monkeypatch.setattr(store, "_compare", compare)
    with pytest.raises(VersionConflict):
        store.put("k", b"ours", if_version=ABSENT)

    assert snapshot(root) == {"k": b"theirs"}


def test_writers_and_deleters_of_one_folder_do_not_trip_each_other(root: Path) -> None:
    store = local(root)

    def write(i: int) -> None:
        for j in range(30):
            key = f"a/b/{i}.{j}"
            store.put(key, b"1")
            assert store.delete(key)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))

    assert list(store.list_prefix("")) == []


def test_a_write_that_does_not_fit_leaves_nothing_behind(root: Path) -> None:
    fill(root, {"k": b"old"})
    store = local(root)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(errors.StoreFull):
            store.put("k", bytes(200_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert [path.name for path in root.iterdir() if path.is_file()] == ["k"]
    assert (root / "k").read_bytes() == b"old"


def test_a_store_without_file_locks_says_so(root: Path) -> None:
    store = local(root, options={"file_locks": "false"})

    with store.lock("k"):
        store.put("k", b"1", if_version=None)
    store.close()

    assert store.capabilities.writers_safe is WritersSafe.THREADS
    assert not (root / ".hyperslab").exists()
    assert local(root).capabilities.writers_safe is WritersSafe.PROCESSES


@pytest.mark.parametrize("url", ["file://{}", "{}", "file://localhost{}"])
def test_a_folder_is_a_path_or_a_file_url(root: Path, url: str) -> None:
    fill(root, {"k": b"1"})

    store = open_store(StoreConfig("disk", url.format(root)))

    assert store.get("k") is not None
    assert store.url == f"file://{root}"
    with pytest.raises(errors.BadDefinition, match="names the machine"):
        open_store(StoreConfig("disk", f"file://elsewhere{root}"))


ACTS: dict[str, Callable[[Store], object]] = {
    "get": lambda store: store.get("a/b/k"),
    "ranges": lambda store: store.get_ranges("a/b/k", [(0, 1), (1, 2)]),
    "versions": lambda store: store.versions("", ["a/b/k", "a/c/k", "l"]),
    "create": lambda store: store.put("n/m/k", b"1", if_version=ABSENT),
    "delete": lambda store: store.delete("a/b/k"),
    "delete_prefix": lambda store: store.delete_prefix("a/", lambda: None, lambda key, _: key.endswith("l")),
    "list_folders": lambda store: store.list_folders("", "", 9),
    "list_prefix": lambda store: [*store.list_prefix("")],
    "denied_folders": lambda store: [*store.denied_folders("")],
    "is_link": lambda store: store.is_link("a/b/"),
    "log": lambda store: store.open_log("a/b/k").size,  # type: ignore[union-attr]
    "new log": lambda store: store.open_log("z/k", create=True).write(0, [(0, b"1")]),  # type: ignore[union-attr]
    "lock": lambda store: store.lock("a/k").__enter__(),
    "check": lambda store: store.check(),
}
CALLS = (
    "fdatasync fstat fsync ftruncate link mkdir open pread preadv pwrite rename rmdir scandir stat unlink utime write"
)


@pytest.mark.parametrize("act", ACTS)
def test_whatever_call_a_disk_refuses_it_is_a_failure_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """Never an error that nobody expects."""
    left = math.inf

    def refusing(call: Callable[..., object]) -> Callable[..., object]:
        def limited(*arguments: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                raise OSError(errno.EIO, "no")
            return call(*arguments, **options)

        return limited

    refused = {name: refusing(getattr(os, name)) for name in CALLS.split()}
    for module in (fence, files, local_store, locks, scan):
        monkeypatch.setattr(module, "os", SimpleNamespace(**{**vars(os), **refused}))
    for number in count(1):
        root = tmp_path / str(number)
        root.mkdir()
        fill(root, {"a/b/k": b"1", "a/b/l": b"2", "a/.hyperslab.stream/k": b"3"})
        store, left = local(root), number
        with suppress(errors.StoreError):
            ACTS[act](store)
        if left > 0:
            return
        left = math.inf
