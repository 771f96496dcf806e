"""zarr-python 2 reads and writes through ``/zarr``, in an environment of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np

from tests.api.conftest import CUBE, TABLE, example, example_store
from tests.api.support import Running, npy, running, writable, write_array
from tests.tools import zarr2_python

__all__ = ["example", "example_store"]


def run(program: str) -> str:
    """What a program prints."""
    command = [str(zarr2_python()), "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_zarr_2_reads_arrays_and_finds_members(example: Running) -> None:
    program = f"""
import json, zarr
group = zarr.open_group(zarr.storage.FSStore({example.url + "/zarr/data"!r}, mode="r"), mode="r")
table = group["table"][...]
consolidated = zarr.open_consolidated({example.url + "/zarr/data"!r})
line = consolidated["cube"][4, 4]
print(json.dumps([sorted(group), group["cube"][3].tolist(), table["pos"].tolist(), line.tolist()]))
"""
    told = run(program)

    names, plane, positions, line = json.loads(told)
    assert {"cube", "group", "table"} <= set(names)
    assert plane == CUBE[3].tolist()
    assert positions == TABLE["pos"].tolist()
    assert line == CUBE[4, 4].tolist()


def test_zarr_2_lists_groups_and_arrays_that_are_named_like_chunks(tmp_path: Path) -> None:
    for name in ("image/0", "image/1", "plate/0/0.0"):
        write_array(tmp_path, name, np.full((4, 4), 7, "|u1"), (2, 2))
    (tmp_path / "plate/0/.zgroup").write_text('{"zarr_format": 2}')
    (tmp_path / "image/1/1.1").unlink()
    with running(tmp_path) as found:
        program = f"""
import json, zarr
store = zarr.storage.FSStore({found.url + "/zarr/data"!r}, mode="r")
group = zarr.open_group(store, mode="r")
print(json.dumps([sorted(group["image"]), sorted(group["plate/0"]), group["plate"]["0/0.0"][...].tolist(),
                  sorted(store.listdir("image/0")), group["image/1"][...].tolist()]))
"""
        told = run(program)

    full, gap = np.full((4, 4), 7), np.full((4, 4), 7)
    gap[2:, 2:] = 0
    assert json.loads(told) == [["0", "1"], ["0.0"], full.tolist(), [".zarray"], gap.tolist()]


def test_zarr_2_creates_writes_resizes_and_appends(tmp_path: Path) -> None:
    values = np.arange(80, dtype="<f4").reshape(10, 8)
    values[2:5] = -1
    with writable(tmp_path) as client:
        run(f"""
import numpy as np, zarr
store = zarr.storage.FSStore("{client.base_url}/zarr/data/a", mode="w")
array = zarr.open_array(store, mode="w-", shape=(10, 8), chunks=(4, 3), dtype="<f4")
array[...] = np.arange(80).reshape(10, 8)
array[2:5] = -1
array.attrs["unit"] = "K"
array.resize(12, 8)
array.append(np.ones((3, 8)))
""")
        found = npy(client.get("/v1/slice/data/a?format=npy").content)

    np.testing.assert_array_equal(found, np.vstack([values, np.zeros((2, 8)), np.ones((3, 8))]))
