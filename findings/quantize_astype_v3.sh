#!/usr/bin/env bash
# Versions: zarr 3.4.2, numcodecs 0.17.1, numpy 2.5.5.
# Expected: the filter `numcodecs.quantize` may store another float type than the array's (its parameter `astype`), in
#   Zarr v3 as in v2: what zarr-python writes so, it reads.
# Seen: in v2 the array is read. In v3 the write of float64 as float32 succeeds, and reads of it are a ValueError: half of
#   the bytes are taken for the whole chunk.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q zarr==3.4.2 numcodecs==0.17.1 numpy==2.5.5
cd "$folder"
venv/bin/python -W ignore - <<'PYTHON'
import sys
import numcodecs, numpy as np, zarr
from zarr.codecs.numcodecs import Quantize

VALUES = np.arange(6) / 4
OPTIONS = {"digits": 2, "dtype": "<f8", "astype": "<f4"}


def read_back(zarr_format, filter):
    array = zarr.create_array(
        f"v{zarr_format}", shape=(6,), chunks=(6,), dtype="<f8", filters=[filter], compressors=None, zarr_format=zarr_format
    )
    array[:] = VALUES
    try:
        return array[:].tolist()
    except Exception as error:
        return type(error).__name__


seen = [read_back(2, numcodecs.Quantize(**OPTIONS)), read_back(3, Quantize(**OPTIONS))]
print(seen)
sys.exit(seen != [VALUES.tolist(), "ValueError"])
PYTHON
