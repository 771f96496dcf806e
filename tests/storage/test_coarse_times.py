"""A folder on a file system that keeps whole seconds: a real one where this machine mounts it, and one that is imitated
by stamping files with the times that it would have kept."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Store, VersionConflict

_MOUNTABLE = os.name == "posix" and os.geteuid() == 0 and shutil.which("mkfs.ext4") is not None


def _mounted(folder: Path) -> bool:
    """Whether there is an ext4 with inodes of 128 bytes at the folder now."""
    image = folder.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(16 << 20)
    commands = (("mkfs.ext4", "-q", "-I", "128", str(image)), ("mount", "-o", "loop", str(image), str(folder)))
    return all(subprocess.run(command, capture_output=True, check=False).returncode == 0 for command in commands)


def _keep_multiples(granule: int, monkeypatch: pytest.MonkeyPatch) -> None:
    utime = os.utime

    def coarse(path: int, *, ns: tuple[int, int]) -> None:
        utime(path, ns=(ns[0] // granule * granule, ns[1] // granule * granule))

    monkeypatch.setattr(os, "utime", coarse)


@pytest.fixture(params=["100 ns", "1 s", "2 s", *(["mounted"] if _MOUNTABLE else [])])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "root"
    root.mkdir()
    if request.param == "mounted" and _mounted(root):
        yield root
        subprocess.run(["umount", root], check=True)
        return
    _keep_multiples({"100 ns": 100, "2 s": 2_000_000_000}.get(request.param, 1_000_000_000), monkeypatch)
    yield root


@pytest.fixture(params=["fsync", "rename"])
def opened(request: pytest.FixtureRequest, folder: Path) -> Iterator[Callable[[], Store]]:
    """Opens stores of the folder that know as little of each other as those of two processes."""
    stores: list[Store] = []

    def open_another() -> Store:
        stores.append(open_store(StoreConfig("disk", str(folder), writable=True, durability=request.param)))
        return stores[-1]

    yield open_another
    for store in stores:
        store.close()


def test_no_write_has_the_version_of_another(opened: Callable[[], Store], folder: Path) -> None:
    one, other = opened(), opened()
    versions, times = [], []
    for number in range(24):
        store = (one, other, opened())[number % 3]
        versions.append(store.put("a/k", b"%02d" % number))
        times.append((folder / "a/k").stat().st_mtime_ns)
        assert store.versions("a/", ["a/k"]) == [versions[-1]]
        if number % 4 == 3:
            store.delete("a/k")

    assert len(set(versions)) == len(set(times)) == 24
    assert times == sorted(times)
    for stale in versions[:-1]:
        with pytest.raises(VersionConflict):
            one.put("a/k", b"xx", if_version=stale)


def test_writers_side_by_side_give_no_time_twice(opened: Callable[[], Store], folder: Path) -> None:
    stores = [opened() for _ in range(4)]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: stores[number % 4].put(f"k{number}", b"1"), range(64)))

    assert len({(folder / f"k{number}").stat().st_mtime_ns for number in range(64)}) == 64


def test_the_store_says_so_where_it_is_seconds(opened: Callable[[], Store], folder: Path) -> None:
    store = opened()
    store.put("k", b"1")

    store.check()

    assert store.capabilities.coarse_times == ((folder / "k").stat().st_mtime_ns % 1_000_000_000 == 0)
    assert [entry.key for entry in store.list_prefix("")] == ["k"]


def test_a_file_system_with_fine_times_needs_no_clock(tmp_path: Path) -> None:
    store = open_store(StoreConfig("disk", str(tmp_path), writable=True))
    store.put("k", b"1")

    store.check()

    assert not store.capabilities.coarse_times
    assert not (tmp_path / ".hyperslab/clock").exists()
