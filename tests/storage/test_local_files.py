"""Many files read into the caller's memory: as `get` gives them, inside the store, and with few system calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperslab import errors
from hyperslab.storage import StoreConfig
from hyperslab.storage.base import Pull, Taken, file_store
from hyperslab.storage.local import LocalStore

HOUR_AGO = 1_000_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def store_of(root: Path, values: Mapping[str, bytes], *, old: bool = True) -> LocalStore:
    """A store with files that were written long ago, or just now."""
    for key, value in values.items():
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)
        if old:
            os.utime(path, (HOUR_AGO, HOUR_AGO))
    return LocalStore(StoreConfig("disk", str(root)), str(root))


def read(store: LocalStore, *keys: str, room: int = 64) -> list[bytes | int | None]:
    """What each key gives: the value, its size where there is no room for it, or None."""
    buffer = bytearray(room * len(keys))
    extents = store.files().read_each(keys, memoryview(buffer), 0, room, packed=False)
    assert [start for start, _ in filter(None, extents)] == [i * room for i, extent in enumerate(extents) if extent]
    return [_value(buffer, extent, room) for extent in extents]


def _value(buffer: bytearray, extent: tuple[int, int] | None, room: int) -> bytes | int | None:
    if extent is None:
        return None
    start, stop = extent
    return bytes(buffer[start:stop]) if stop - start <= room else stop - start


def read_parts(
    store: LocalStore, key: str, ranges: list[tuple[int, int]] | None, *, head: int = 4, room: int = 64
) -> tuple[bytes, bytes, int | None]:
    """The head as it was seen last, the buffer, and the size."""
    heads: list[bytes] = []

    def choose(seen: memoryview) -> list[tuple[int, int]] | None:
        heads.append(bytes(seen))
        return ranges

    buffer = bytearray(room)
    size = nbytes_of(store, key, store.files().read_parts(key, memoryview(buffer), head, choose))
    return heads[-1] if heads else b"", bytes(buffer), size


def nbytes_of(store: LocalStore, key: str, taken: Taken | None) -> int | None:
    """The number of bytes, once the version is seen to be that of the store."""
    found = store.get(key)
    assert (taken and taken.version) == (found and found.version)
    return taken and taken.nbytes


def test_a_folder_can_read_many_files() -> None:
    assert file_store(LocalStore.__new__(LocalStore)) is not None


@pytest.mark.parametrize("old", [True, False])
def test_values_are_those_of_get(root: Path, old: bool) -> None:
    values = {"a/0.0": b"one", "a/0.1": b"", "a/deep/0": b"two", "b/0.0": b"three", "top": b"four"}
    store = store_of(root, values, old=old)

    assert read(store, *values, *reversed(values)) == [*values.values(), *reversed(values.values())]


def test_what_is_not_there_is_absent(root: Path) -> None:
    store = store_of(root, {"a/k": b"1", "a/folder/k": b"2"})

    assert read(store, "a/no", "a/k", "no/k", "a/folder", "a/k/below", "a/folder/k") == [
        None, b"1", None, None, None, b"2",
    ]  # fmt: skip


def test_a_root_that_is_gone_is_a_failure(root: Path) -> None:
    store = store_of(root, {})
    root.rmdir()

    with pytest.raises(errors.StoreError):
        read(store, "a/k")


def test_the_size_of_a_value_without_room_is_told(root: Path) -> None:
    assert read(store_of(root, {"a/k": b"12345"}), "a/k", room=3) == [5]


def test_packed_values_lie_one_behind_the_other(root: Path) -> None:
    store = store_of(root, {"a/0": b"one", "a/1": b"three", "a/2": b"", "a/3": b"too long", "a/4": b"4"})
    buffer = bytearray(64)

    extents = store.files().read_each(
        ["a/0", "a/no", "a/1", "a/2", "a/3", "a/4"], memoryview(buffer), 2, 5, packed=True
    )

    assert extents == [(2, 5), None, (10, 15), (15, 15), (15, 23), (20, 21)]
    assert bytes(buffer[:22]) == b"\0\0one" + bytes(5) + b"threetoo l4\0"


@pytest.mark.parametrize("old", [True, False])
def test_versions_are_those_of_the_store(root: Path, old: bool) -> None:
    store, keys = store_of(root, {"a/0": b"one", "b/1": b"two"}, old=old), ["a/0", "a/no", "b/1"]
    versions: list[str | None] = ["before"]

    store.files().read_each(keys, memoryview(bytearray(64)), 0, 8, packed=True, versions=versions)

    assert versions == ["before", *store.versions("", keys)]


class TestLinks:
    @pytest.fixture
    def outside(self, tmp_path: Path) -> Path:
        store_of(tmp_path / "outside", {"secret": b"secret"})
        return tmp_path / "outside"

    def test_those_inside_are_followed(self, root: Path) -> None:
        store = store_of(root, {"real/k": b"1"})
        (root / "alias").symlink_to(root / "real")
        (root / "real" / "link").symlink_to("k")

        assert read(store, "alias/k", "real/link", "alias/link") == [b"1"] * 3

    def test_those_that_lead_out_are_refused(self, root: Path, outside: Path) -> None:
        store = store_of(root, {"a/k": b"1"})
        (root / "a" / "link").symlink_to(outside / "secret")
        (root / "out").symlink_to(outside)

        for key in ("a/link", "out/secret"):
            with pytest.raises(errors.BadPath):
                read(store, key)
            with pytest.raises(errors.BadPath):
                read(store, "a/k", key)
            with pytest.raises(errors.BadPath):
                read_parts(store, key, [(0, 2)])

    def test_a_folder_replaced_by_one_while_it_is_read_is_still_the_old_one(
        self, root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, readv = store_of(root, {"a/k": b"1", "a/secret": b"harmless"}), os.readv

        def swapped(descriptor: int, buffers: tuple[memoryview, ...]) -> int:
            if not (root / "a").is_symlink():
                (root / "a").rename(root / "b")
                (root / "a").symlink_to(outside)
            return readv(descriptor, buffers)

        monkeypatch.setattr(os, "readv", swapped)

        assert read(store, "a/k", "a/secret") == [b"1", b"harmless"]
        with pytest.raises(errors.BadPath):
            read(store, "a/secret")


class TestParts:
    DATA = bytes(range(50))

    @pytest.mark.parametrize("old", [True, False])
    def test_ranges_are_put_where_they_lie(self, root: Path, old: bool) -> None:
        store = store_of(root, {"a/k": self.DATA}, old=old)

        head, buffer, size = read_parts(store, "a/k", [(10, 13), (40, 50)])

        assert (head, size) == (self.DATA[:4], 50)
        assert (buffer[10:13], buffer[40:50]) == (self.DATA[10:13], self.DATA[40:50])

    def test_nothing_else_is_read(self, root: Path) -> None:
        _, buffer, _ = read_parts(store_of(root, {"a/k": self.DATA}), "a/k", [(10, 13)], head=0)

        assert buffer == bytes(10) + self.DATA[10:13] + bytes(51)

    def test_without_ranges_all_is_read(self, root: Path) -> None:
        for head in (0, 4):
            _, buffer, size = read_parts(store_of(root, {"a/k": self.DATA}), "a/k", None, head=head)

            assert (buffer[:50], size) == (self.DATA, 50)

    def test_a_short_value_has_a_short_head(self, root: Path) -> None:
        assert read_parts(store_of(root, {"a/k": b"12"}), "a/k", None)[::2] == (b"12", 2)

    def test_ranges_behind_the_end_leave_the_buffer_alone(self, root: Path) -> None:
        _, buffer, size = read_parts(store_of(root, {"a/k": self.DATA[:20]}), "a/k", [(18, 30)])

        assert (buffer[18:30], size) == (self.DATA[18:20] + bytes(10), 20)

    def test_what_is_not_there_is_absent(self, root: Path) -> None:
        assert read_parts(store_of(root, {"a/k": b"1"}), "a/no", None) == (b"", bytes(64), None)


def pull(
    store: LocalStore, key: str, *ranges: tuple[int, int], room: int = 64, fails: int = 0
) -> tuple[list[int], bytes, int | None]:
    """How many bytes each range gave, the buffer, and how many were read; the first ``fails`` times it is corrupt."""
    buffer, counts, failures = bytearray(room), list[int](), iter(range(fails))

    def take(read: Pull) -> None:
        counts[:] = [read(start, stop) for start, stop in ranges]
        if next(failures, None) is not None:
            raise errors.ChunkCorrupt(key, None, "torn")

    nbytes = nbytes_of(store, key, store.files().pull(key, memoryview(buffer), take))
    return counts, bytes(buffer), nbytes


class TestPieces:
    DATA = bytes(range(1, 51))

    def test_only_what_is_asked_for_is_read_to_where_it_lies(self, root: Path) -> None:
        counts, buffer, nbytes = pull(store_of(root, {"a/k": self.DATA}), "a/k", (10, 13), (40, 45))

        assert (counts, nbytes) == ([3, 5], 8)
        assert buffer == bytes(10) + self.DATA[10:13] + bytes(27) + self.DATA[40:45] + bytes(19)

    def test_a_file_that_was_just_written_is_read_as_a_whole(self, root: Path) -> None:
        counts, buffer, nbytes = pull(store_of(root, {"a/k": self.DATA}, old=False), "a/k", (10, 13), (48, 60))

        assert (counts, nbytes) == ([3, 2], 50)
        assert buffer[:50] == self.DATA

    @pytest.mark.parametrize("old", [True, False])
    def test_behind_the_end_and_the_buffer_there_is_nothing(self, root: Path, old: bool) -> None:
        store = store_of(root, {"a/k": self.DATA}, old=old)

        assert pull(store, "a/k", (45, 55), (50, 60))[0] == [5, 0]
        assert pull(store, "a/k", (10, 30), (20, 30), room=20)[0] == [10, 0]

    def test_what_is_not_there_is_absent(self, root: Path) -> None:
        assert pull(store_of(root, {"a/k": b"1"}), "a/no", (0, 1)) == ([], bytes(64), None)

    def test_what_is_corrupt_is_read_again_as_a_whole(self, root: Path) -> None:
        """It may have been torn by a writer."""
        store = store_of(root, {"a/k": self.DATA})

        assert pull(store, "a/k", (0, 1), fails=1)[::2] == ([1], 50)
        with pytest.raises(errors.ChunkCorrupt):
            pull(store, "a/k", (0, 1), fails=2)

    def test_a_file_rewritten_in_place_meanwhile_is_read_again(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, preadv = store_of(root, {"a/k": self.DATA}), os.preadv

        def torn(*call: Any) -> int:
            count = preadv(*call)
            (root / "a" / "k").write_bytes(bytes(50))
            return count

        monkeypatch.setattr(os, "preadv", torn)

        assert pull(store, "a/k", (10, 13), (20, 23))[1] == bytes(64)

    def test_links_are_followed_and_folders_left_to_get(self, root: Path, tmp_path: Path) -> None:
        store = store_of(root, {"real/k": self.DATA, "real/folder/x": b""})
        (root / "real" / "link").symlink_to("k")
        (tmp_path / "secret").write_bytes(b"secret")
        (root / "real" / "out").symlink_to(tmp_path / "secret")

        assert pull(store, "real/link", (0, 4))[::2] == ([4], 4)
        assert pull(store, "real/folder", (0, 4))[2] is None
        with pytest.raises(errors.BadPath):
            pull(store, "real/out", (0, 4))


def test_each_key_of_a_folder_costs_four_calls(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"a/{i}" for i in range(10)]
    store, calls = store_of(root, dict.fromkeys(keys, b"1")), list[str]()
    assert read(store, keys[0]) == [b"1"]  # the folder is known
    for name in ("open", "readv", "pread", "preadv", "fstat", "stat", "close"):
        monkeypatch.setattr(os, name, _counted(name, calls))

    assert read(store, *keys) == [b"1"] * 10
    assert calls == ["stat", *["open", "readv", "fstat", "close"] * 10, "close"]


def _counted(name: str, calls: list[str]) -> Callable[..., Any]:
    original = getattr(os, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return original(*args, **kwargs)

    return call


def test_a_file_rewritten_in_place_while_it_is_read_is_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, readv = store_of(root, {"a/k": b"old!"}), os.readv

    def torn(descriptor: int, buffers: tuple[memoryview, ...]) -> int:
        count = readv(descriptor, buffers)
        (root / "a" / "k").write_bytes(b"new!")
        return count

    monkeypatch.setattr(os, "readv", torn)

    assert read(store, "a/k") == [b"new!"]


def test_numpy_memory_will_do(root: Path) -> None:
    memory = np.zeros(4, np.uint8)

    store_of(root, {"a/k": b"1234"}).files().read_each(["a/k"], memory.data, 0, 4, packed=True)

    assert memory.tobytes() == b"1234"
