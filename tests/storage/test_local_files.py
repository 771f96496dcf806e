"""Files read into the caller's memory: as `get` gives them, inside the store, and with few system calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperslab import errors
from hyperslab.storage import StoreConfig
from hyperslab.storage.base import Taken, file_store
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
    found: list[bytes | int | None] = []
    for key in keys:
        buffer = bytearray(room)
        size = nbytes_of(store, key, store.files().read_parts(key, memoryview(buffer), 0, lambda _: None))
        found.append(size if size is None or size > room else bytes(buffer[:size]))
    return found


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


def test_a_folder_can_read_into_memory() -> None:
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


def test_each_key_of_a_folder_costs_few_calls(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"a/{i}" for i in range(10)]
    store, calls = store_of(root, dict.fromkeys(keys, b"1")), list[str]()
    assert read(store, keys[0]) == [b"1"]  # the folder is known
    for name in ("open", "readv", "pread", "preadv", "fstat", "stat", "close"):
        monkeypatch.setattr(os, name, _counted(name, calls))

    for key in keys:
        store.files().read_parts(key, memoryview(bytearray(4)), 0, lambda _: None)
    assert calls == ["stat", "preadv", "fstat", "close"] * 10  # and one to open it, beneath the root


def _counted(name: str, calls: list[str]) -> Callable[..., Any]:
    original = getattr(os, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return original(*args, **kwargs)

    return call


def test_a_file_rewritten_in_place_while_it_is_read_is_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, preadv = store_of(root, {"a/k": b"old!"}), os.preadv

    def torn(*call: Any) -> int:
        count = preadv(*call)
        (root / "a" / "k").write_bytes(b"new!")
        return count

    monkeypatch.setattr(os, "preadv", torn)

    assert read(store, "a/k") == [b"new!"]


def test_numpy_memory_will_do(root: Path) -> None:
    memory = np.zeros(4, np.uint8)

    store_of(root, {"a/k": b"1234"}).files().read_parts("a/k", memory.data, 0, lambda _: None)

    assert memory.tobytes() == b"1234"
