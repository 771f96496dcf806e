#!/usr/bin/env bash
# Versions: xarray 2026.9.0, zarr 3.4.2, netCDF4 1.7.5.1.post1, numpy 2.5.5.
# Expected: what `to_zarr` writes, `open_zarr` opens: a variable of text with a `_FillValue`, as netCDF4 files have it.
# Seen: in Zarr v2 it does; in v3 the write succeeds, and then the whole store cannot be opened: the value is decoded as
#   those of numbers are (base64), which text is not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q xarray==2026.9.0 zarr==3.4.2 netCDF4==1.7.5.1.post1 numpy==2.5.5
cd "$folder"
venv/bin/python -W ignore - <<'PYTHON'
import sys
import netCDF4
import numpy as np
import xarray as xr

with netCDF4.Dataset("file.nc", "w") as file:
    file.createDimension("x", 2)
    file.createVariable("name", str, ("x",), fill_value="none")[:] = np.array(["a", "b"], object)
    file.createVariable("number", "i4", ("x",))[:] = [1, 2]
seen = {}
for zarr_format in (2, 3):
    with xr.open_dataset("file.nc", engine="netcdf4") as dataset:
        dataset.to_zarr(f"{zarr_format}.zarr", zarr_format=zarr_format, consolidated=False)
    try:
        seen[zarr_format] = xr.open_zarr(f"{zarr_format}.zarr", consolidated=False)["name"].values.tolist()
    except Exception as error:
        seen[zarr_format] = f"{type(error).__name__}: {error}"
print(seen)
sys.exit(not (seen[2] == ["a", "b"] and "decode" in str(seen[3])))
PYTHON
