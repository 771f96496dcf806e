"""SIGKILL at any moment: what is half-made opens nowhere, and the same call goes on and makes what one call makes.

``TEST_KILLS`` says how often, 5 times by default.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import zarr

from hyperslab.conversion import CannotConvert, convert, making, tiff
from hyperslab.errors import StoreError
from hyperslab.storage.local import LocalStore
from tests.forked import PRELOADED

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([*PRELOADED, "dask.threaded", "hyperslab.conversion.tiff"])
KILLS = int(os.environ.get("TEST_KILLS", "5"))
OPTIONS: dict[str, Any] = {"chunks": (16, 16), "axes": "tyx"}


def run(src: str, dst: str, started: Any) -> None:
    """Convert in a process of its own, which notes what is done after each block."""
    making.NOTE_SECONDS = 0.0  # type: ignore[misc]
    started.set()
    convert(src, dst, **OPTIONS)


def stored(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_killed_conversion_is_gone_on_with(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    values = np.random.default_rng(seed).integers(0, 999, (12, 90, 83)).astype("u2")
    values[3:6] = 0  # of which no chunks are stored
    tifffile.imwrite(
        tmp_path / "a.tif", values, metadata=None, photometric="minisblack", compression="zlib", tile=(16, 16)
    )
    src, dst = str(tmp_path / "a.tif"), tmp_path / "killed"
    convert(src, str(tmp_path / "once"), **OPTIONS)
    kills = 0
    while kills < KILLS:
        started = CONTEXT.Event()
        child = CONTEXT.Process(target=run, args=(src, str(dst), started))
        child.start()
        started.wait()
        child.join(chance.uniform(0, 0.4))
        if child.exitcode is None:
            os.kill(child.pid or 0, signal.SIGKILL)
            child.join()
            kills += 1
        assert child.exitcode in (0, -signal.SIGKILL), seed
        if not (dst / "zarr.json").exists():
            assert not (dst / "0" / "zarr.json").exists() or (dst / ".hyperslab.conversion").exists(), seed
            with pytest.raises((CannotConvert, FileNotFoundError), match=r"half-made|holds no array|nothing is there"):
                convert(str(dst), str(tmp_path / "other"))
        elif not (dst / ".hyperslab.conversion").exists():
            convert(src, str(dst), **OPTIONS, replace=True)
            assert stored(dst) == stored(tmp_path / "once"), seed
            shutil.rmtree(dst)  # without the folders it would be other data

    if not (dst / "zarr.json").exists() or (dst / ".hyperslab.conversion").exists():
        convert(src, str(dst), **OPTIONS)

    assert stored(dst) == stored(tmp_path / "once"), seed


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(40 * 40, dtype="u2").reshape(40, 40)
    np.save(tmp_path / "a.npy", values)
    make_block, made = making.make_block, []

    def fail_late(work: Any, box: Any) -> int:
        made.append(box)
        if len(made) == 4:
            raise OSError(28, "No space left on device")
        return make_block(work, box)

    monkeypatch.setattr(making, "make_block", fail_late)
    monkeypatch.setattr(making, "NOTE_SECONDS", 0.0)
    monkeypatch.setattr(making, "BLOCK_BYTES", 1)
    with pytest.raises(OSError, match="No space left"):
        convert(str(tmp_path / "a.npy"), str(tmp_path / "a"), chunks=(10, 10))
    before = len(made)

    convert(str(tmp_path / "a.npy"), str(tmp_path / "a"), chunks=(10, 10))

    assert len(made) - before < 16
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a", mode="r")[...], values)


def test_what_another_conversion_left_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", np.ones((20, 20), "u1"))
    np.save(tmp_path / "b.npy", np.full((20, 20), 2, "u1"))
    with monkeypatch.context() as patched:
        patched.setattr(making, "make_block", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            convert(str(tmp_path / "a.npy"), str(tmp_path / "out"), chunks=(10, 10))
    (tmp_path / "out" / "c" / "0").mkdir(parents=True)
    (tmp_path / "out" / "c" / "0" / "0").write_bytes(b"stale")

    with pytest.raises(CannotConvert, match="half-made from"):
        convert(str(tmp_path / "b.npy"), str(tmp_path / "out"), chunks=(10, 10))
    convert(str(tmp_path / "b.npy"), str(tmp_path / "out"), chunks=(10, 10), replace=True)

    assert (zarr.open_array(tmp_path / "out", mode="r")[...] == 2).all()  # type: ignore[union-attr]


def test_a_replacement_that_was_interrupted_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", np.ones((4, 4), "u1"))
    call = partial(convert, str(tmp_path / "a.npy"), str(tmp_path / "out"), chunks=(2, 2), replace=True)
    call()
    with monkeypatch.context() as patched:  # after the document and the first chunk
        patched.setattr(LocalStore, "delete_prefix", lambda store, *_: store.delete("c/0/0") or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            call()
    assert not (tmp_path / "out" / "zarr.json").exists()
    with pytest.raises(CannotConvert, match="replacement was interrupted"):
        convert(str(tmp_path / "a.npy"), str(tmp_path / "out"))

    call()

    assert (zarr.open_array(tmp_path / "out", mode="r")[...] == 1).all()  # type: ignore[union-attr]


@pytest.mark.parametrize("dst", ["a", "a/", ".", "../{}/a"])
def test_a_source_is_not_replaced_by_itself(tmp_path: Path, dst: str) -> None:
    np.save(tmp_path / "a.npy", np.ones((4, 4), "u1"))
    convert(str(tmp_path / "a.npy"), str(tmp_path / "a"))
    before = stored(tmp_path / "a")

    with pytest.raises(CannotConvert, match="another place"):
        convert(str(tmp_path / "a"), f"{tmp_path}/{dst.format(tmp_path.name)}", replace=True)

    assert stored(tmp_path / "a") == before


@pytest.mark.parametrize("dst", ["out", "out.nc", "out.ome.tif", "out.npy"])
def test_a_full_disk_is_said_and_the_same_call_goes_on_when_there_is_room(tmp_path: Path, dst: str) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).integers(0, 255, (3, 300, 300), "u1"))
    call = partial(convert, str(tmp_path / "a.npy"), str(tmp_path / dst), axes="zyx")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises((CannotConvert, StoreError), match=f"{dst}.*File too large"):
            call()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert {path.name for path in tmp_path.iterdir()} == ({"a.npy", "out"} if dst == "out" else {"a.npy"})
    assert not (tmp_path / "out" / "zarr.json").exists()
    call()
    assert (tmp_path / dst).exists()


@pytest.mark.parametrize("dst", ["out", "out.npy"])
def test_a_source_that_changes_while_it_is_read_makes_nothing(tmp_path: Path, dst: str) -> None:
    values = np.zeros((4, 4), "u1")
    np.save(tmp_path / "a.npy", values)

    with pytest.raises(CannotConvert, match=r"a\.npy changed"):
        convert(
            str(tmp_path / "a.npy"), str(tmp_path / dst), progress=lambda *_: np.save(tmp_path / "a.npy", values + 1)
        )

    assert not (tmp_path / "out.npy").exists()
    assert not (tmp_path / "out" / "zarr.json").exists()


def test_directories_of_a_tiff_are_read_before_several_threads_want_them(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((4, 8, 8), "u1"), photometric="minisblack", compression="zlib")
    file = tiff.FILES.get(str(tmp_path / "a.tif"))
    file.filehandle.close()

    assert [len(series.pages) for series in file.series] == [4]
    assert all(page is not None and page.dataoffsets for page in file.series[0].pages)
    tiff.FILES.clear()


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_a_tiff_that_is_cut_short_is_said_and_nothing_opens(tmp_path: Path, compression: str | None) -> None:
    values = np.random.default_rng(0).integers(0, 255, (4, 60, 60), "u1")
    tifffile.imwrite(tmp_path / "a.tif", values, photometric="minisblack", compression=compression)
    (tmp_path / "a.tif").write_bytes((tmp_path / "a.tif").read_bytes()[:9000])

    with pytest.raises(CannotConvert, match=r"a\.tif .*cut short"):
        convert(str(tmp_path / "a.tif"), str(tmp_path / "out"), axes="zyx")

    assert not (tmp_path / "out" / "zarr.json").exists()


@pytest.mark.parametrize("replace", [False, True])
def test_what_is_not_ours_is_never_removed(tmp_path: Path, replace: bool) -> None:
    np.save(tmp_path / "a.npy", np.ones((4, 4), "u1"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "diary.txt").write_text("dear")

    with pytest.raises(CannotConvert, match=r"diary\.txt"):
        convert(str(tmp_path / "a.npy"), str(tmp_path / "notes"), replace=replace)
    convert(str(tmp_path / "a.npy"), str(tmp_path / "a"))
    (tmp_path / "a" / "diary.txt").write_text("dear")
    with pytest.raises(CannotConvert, match=r"diary\.txt" if replace else "exists"):
        convert(str(tmp_path / "a.npy"), str(tmp_path / "a"), replace=replace)

    assert (tmp_path / "notes" / "diary.txt").read_text() == (tmp_path / "a" / "diary.txt").read_text() == "dear"
