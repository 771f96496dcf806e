#!/usr/bin/env bash
# Versions: zarr 3.4.2, numcodecs 0.17.1, numpy 2.5.5.
# Expected: data types of Zarr v3 have no byte order (core specification, "Data types": it is a matter of the codec
#   `bytes`), so an array that is made with `dtype=">f8"` and the filter `numcodecs.astype` from `float64` to `float32`
#   holds what is written: its document is the same as with "<f8".
# Seen: the documents are the same; with ">f8" the write of 1.0 stores 0.0 without an error.
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
import pathlib, sys
import numpy as np, zarr
from zarr.codecs.numcodecs import AsType


def stored(dtype):
    filters = [AsType(encode_dtype="float32", decode_dtype="float64")]
    array = zarr.create_array(
        dtype, shape=(3,), chunks=(3,), dtype=dtype, filters=filters, compressors=None, zarr_format=3
    )
    array[:] = [0.0, 1.0, 2.0]
    chunk = np.frombuffer(pathlib.Path(dtype, "c", "0").read_bytes(), "<f4")
    return pathlib.Path(dtype, "zarr.json").read_text(), array[:].tolist(), chunk.tolist()


(little, *of_little), (big, *of_big) = stored("<f8"), stored(">f8")
seen = [little == big, of_little, of_big]
print(seen)
sys.exit(seen != [True, [[0.0, 1.0, 2.0]] * 2, [[0.0, 0.0, 0.0]] * 2])
PYTHON
