#!/usr/bin/env bash
# Versions: xarray 2026.9.0, pandas 3.1.1, numpy 2.5.5.
# Expected: `sel(x=11, method="nearest")` of a coordinate 10, 20, 30, 40 is its label 10, of whatever integer type it is;
#   satellite bands, depths and labels are often stored as unsigned integers.
# Seen: with unsigned coordinates the next larger label, 20, without a word; with signed ones 10.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q xarray==2026.9.0 pandas==3.1.1 numpy==2.5.5
cd "$folder"
venv/bin/python - <<'PYTHON'
import sys
import numpy as np
import xarray as xr

seen = {}
for dtype in ("uint8", "uint16", "uint32", "uint64", "int8", "int32"):
    bands = xr.DataArray(np.arange(4), dims="x", coords={"x": np.array([10, 20, 30, 40], dtype)})
    seen[dtype] = int(bands.sel(x=11, method="nearest").x)
print(seen)
sys.exit(seen != {name: 20 if name.startswith("u") else 10 for name in seen})
PYTHON
