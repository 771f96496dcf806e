"""One store with an array of each kind, served once for all tests that only read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import zarr

from hyperslab.storage import StoreConfig
from tests.api.support import Running, Served, running, serving, write_array

CUBE = np.arange(20 * 30 * 40, dtype="<u2").reshape(20, 30, 40)
FLOATS = np.linspace(-1, 1, 63, dtype=">f4").reshape(7, 9)
FLOATS[3, 3] = np.nan
TABLE = np.zeros(10, [("id", "<i4"), ("pos", "<f8", (3,)), ("name", "|S4")])
TABLE["id"] = range(10)
TABLE["pos"] = np.arange(30).reshape(10, 3)
TABLE["name"] = b"abc"


@pytest.fixture(scope="session")
def example_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``cube`` (3-D), ``group/floats`` (big endian, nested keys), ``table`` (records), ``scalar``, ``sparse``,
    ``empty``, below a group with an attribute."""
    folder = tmp_path_factory.mktemp("example")
    zarr.open_group(folder, mode="w", zarr_format=2).attrs["title"] = "example"
    write_array(folder, "cube", CUBE, (8, 16, 16))
    zarr.open_group(folder / "group", mode="w", zarr_format=2)
    write_array(folder, "group/floats", FLOATS, (3, 4), chunk_key_encoding={"name": "v2", "separator": "/"})
    write_array(folder, "scalar", np.array(42, "<i8"), ())
    zarr.create_array(folder / "sparse", shape=(100, 100), chunks=(10, 10), dtype="<f4", fill_value=7.5, zarr_format=2)
    zarr.create_array(folder / "empty", shape=(0, 5), chunks=(1, 5), dtype="<f4", zarr_format=2)
    (folder / "empty" / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["t", "x"], "missing": NaN}')
    _write_table(folder / "table")
    return folder


def _write_table(folder: Path) -> None:
    """By hand: zarr-python 3 does not write records with subarrays."""
    folder.mkdir()
    dtype = [["id", "<i4"], ["pos", "<f8", [3]], ["name", "|S4"]]
    members = {"shape": [10], "chunks": [4], "order": "C", "fill_value": None, "compressor": None, "filters": None}
    (folder / ".zarray").write_text(json.dumps({"zarr_format": 2, "dtype": dtype, **members}))
    for i in range(3):
        chunk = np.zeros(4, TABLE.dtype)
        part = TABLE[4 * i : 4 * i + 4]
        chunk[: len(part)] = part
        (folder / str(i)).write_bytes(chunk.tobytes())


@pytest.fixture(scope="session")
def example(example_store: Path) -> Iterator[Running]:
    """The example store behind a socket, chunks cached."""
    with running(example_store) as found:
        yield found


@pytest.fixture(scope="session")
def client(example: Running) -> Iterator[httpx.Client]:
    """Of the example store."""
    with httpx.Client(base_url=example.url, timeout=30) as found:
        yield found


@pytest.fixture(params=["folder", "memory"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    """An empty store ``data`` of each kind: ``memory`` is a bucket to all that is ours, and far quicker than S3."""
    if request.param == "bucket":
        config = request.getfixturevalue("s3_server").new_bucket().config(name="data", writable=True)
    else:
        url = {"folder": f"{tmp_path}/data", "memory": f"memory://{tmp_path}", "fsspec": f"dir::file://{tmp_path}"}
        config = StoreConfig(name="data", url=url[request.param], writable=True, durability="rename")
    with serving(config) as found:
        yield found
