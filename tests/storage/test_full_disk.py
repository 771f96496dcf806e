"""A disk without space for one more file, real where this machine lets a test mount one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hyperslab.errors import StoreFull
from hyperslab.storage import StoreConfig, open_store

_MOUNT = "mount -t tmpfs -o size=8m,nr_inodes=40 tmpfs {folder}"
_UNSHARE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec")


def _run_on_a_small_disk(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    script = f"{_MOUNT.format(folder=folder)}\n{command}"
    return subprocess.run([*_UNSHARE, script], capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A folder that becomes a disk for 40 files when `_run_on_a_small_disk` mounts it."""
    if shutil.which("unshare") is None or _run_on_a_small_disk(tmp_path, "true").returncode:
        pytest.skip("no disk can be mounted here")
    return tmp_path


def test_what_another_program_has_stored_can_be_deleted_from_a_full_disk(small_disk: Path) -> None:
    """Deleting takes lock files, for which there is no space either."""
    done = _run_on_a_small_disk(small_disk, f"{sys.executable} {__file__} {small_disk}")

    assert done.returncode == 0, done.stderr


def _fill_and_delete(folder: Path) -> None:
    store = open_store(StoreConfig(name="data", url=str(folder), writable=True))
    with store.lock("a/0"):
        store.put("a/0", b"1")
    (folder / "b").mkdir()
    (folder / "b" / ".zarray").write_bytes(b"{}")
    for number in range(100):
        try:
            with store.lock(f"c{number}/.zarray"):
                store.put(f"c{number}/.zarray", b"{}")
        except StoreFull:
            break
    with store.lock("b/.zarray"), store.lock("b/0"):
        assert store.delete_prefix("b/") == 1
    with store.lock("d/.zarray"):
        store.put("d/.zarray", b"{}")


if __name__ == "__main__":
    _fill_and_delete(Path(sys.argv[1]))
