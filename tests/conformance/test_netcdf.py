"""NCZarr data that netcdf-c writes, which reads them back itself: the filters of each compressor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.api.support import serving

netCDF4 = pytest.importorskip("netCDF4")  # noqa: N816 - the name of the library


@pytest.mark.parametrize("options", [
    {"compression": "zlib"},
    {"compression": "zlib", "complevel": 9, "fletcher32": True},
    {"compression": "zlib", "significant_digits": 3},
    {"compression": "zlib", "shuffle": False},
    {"compression": "zstd"},
    {"compression": "bzip2"},
    {"compression": "blosc_zlib", "blosc_shuffle": 2},
], ids=str)  # fmt: skip
def test_what_netcdf_writes_has_the_values_that_netcdf_reads(tmp_path: Path, options: dict[str, Any]) -> None:
    url, dtypes = f"file://{tmp_path / 'nc'}#mode=nczarr,file", ["f4", "f8"]
    dtypes += [] if "significant_digits" in options else ["u1", "i2", "u4", "i8"]
    with netCDF4.Dataset(url, "w") as dataset:
        dataset.createDimension("x", 1200)
        for dtype in dtypes:
            variable = dataset.createVariable(dtype, dtype, ("x",), chunksizes=(500,), **options)
            variable[:] = np.arange(1200) * 9 % 250
    with netCDF4.Dataset(url) as dataset:
        expected = {dtype: np.ma.filled(dataset[dtype][:]) for dtype in dtypes}

    with serving(tmp_path) as service:
        for dtype in dtypes:
            path = f"data/nc/{dtype}"
            found = np.array(service.http.get(f"/v1/slice/{path}?format=json").json(), dtype)
            np.testing.assert_array_equal(found, expected[dtype])
            form = service.http.get(f"/zarr3/{path}/zarr.json").json()  # any other reader sees the size, not 0
            sizes = [c["configuration"]["elementsize"] for c in form["codecs"] if c["name"] == "numcodecs.shuffle"]
            assert sizes == [np.dtype(dtype).itemsize] * len(sizes)
            written = np.arange(1200, 0, -1).astype(dtype)
            assert service.http.put(f"/v1/slice/{path}", content=written.tobytes()).is_success
            with netCDF4.Dataset(url) as dataset:
                np.testing.assert_array_equal(np.ma.filled(dataset[dtype][:]), written)
            stored = json.loads((tmp_path / "nc" / dtype / ".zarray").read_text())
            assert stored["filters"] == service.http.get(f"/v1/metadata/{path}").json()["filters"]
