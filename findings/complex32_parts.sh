#!/usr/bin/env bash
# Versions: ml_dtypes 0.6.0, numpy 2.4.6.
# Expected: `.real` and `.imag` of an array of ml_dtypes' complex32 (`complex_float16` in the registry of Zarr) are its
#   parts, 1 and 2 for 1+2j, as with every other complex dtype.
# Seen: `.real` is the whole number, 1+2j, and `.imag` is 0, without a warning. A view as float16 has the parts.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ml_dtypes==0.6.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import sys
import ml_dtypes, numpy

numbers = numpy.array([1 + 2j], "c8").astype(ml_dtypes.complex32)
seen = {
    "real": numbers.real.astype("c8").tolist(),
    "imag": numbers.imag.astype("c8").tolist(),
    "parts": numbers.view("f2").tolist(),
}
print(seen)
sys.exit(seen != {"real": [1 + 2j], "imag": [0j], "parts": [1.0, 2.0]})
PYTHON
