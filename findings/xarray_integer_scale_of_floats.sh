#!/usr/bin/env bash
# Versions: xarray 2026.9.0, zarr 3.4.2, numpy 2.5.5.
# Expected: floats with a `scale_factor` are floats, whether the attribute is 2 or 2.0: CF 8.1 speaks of numbers, and JSON,
#   in which Zarr keeps attributes, has one kind of these (JavaScript writes 2.0 as 2).
# Seen: with the integer 2, and no `_FillValue`, 1.25 x 2 becomes 2 as int64, and times lose their fractions of a unit
#   (2:00 instead of 2:30 hours), without a word. With 2.0, or with a `_FillValue` of NaN, the numbers are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q xarray==2026.9.0 zarr==3.4.2 numpy==2.5.5 cftime==1.6.5
cd "$folder"
venv/bin/python - <<'PYTHON'
import sys
import numpy as np
import xarray as xr
import zarr

seen = {}
group = zarr.create_group("store", zarr_format=3)
for name, scale in (("integer", 2), ("float", 2.0)):
    for kind, more in (("numbers", {}), ("times", {"units": "hours since 2000-01-01"})):
        attributes = {"scale_factor": scale, **more}
        values = np.array([1.25, -0.75, 3.25], "f4")
        group.create_array(f"{name} {kind}", data=values, dimension_names=["x"], attributes=attributes)
        found = xr.open_zarr("store", consolidated=False)[f"{name} {kind}"].values
        seen[f"{name} {kind}"] = (found - np.datetime64("2000-01-01")) / np.timedelta64(1, "h") if more else found
print({name: values.tolist() for name, values in seen.items()})
wrong, right = [2, 0, 6], [2.5, -1.5, 6.5]
sys.exit(any(values.tolist() != (wrong if "integer" in name else right) for name, values in seen.items()))
PYTHON
