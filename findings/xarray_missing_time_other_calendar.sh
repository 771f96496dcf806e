#!/usr/bin/env bash
# Versions: xarray 2026.9.0, cftime 1.6.6.1, numpy 2.5.5.
# Expected: a floating-point time that is missing (the `_FillValue` of its variable, or NaN) is missing when decoded, in
#   every calendar of the CF conventions (1.12, §2.5.1 and §4.4): NaT in the standard calendar, and no date in others.
# Seen: NaT in the standard calendar; in `noleap` and `360_day`, and in the standard one where the dates are before 1678,
#   it is the date that the units count from, which no value tells from a measurement at that date.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q xarray==2026.9.0 cftime==1.6.6.1 numpy==2.5.5
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import sys
import numpy as np
import xarray


def decoded(calendar, year):
    attributes = {"units": f"days since {year}-01-01", "calendar": calendar, "_FillValue": -9999.0}
    times = xarray.Variable("t", np.array([1, -9999.0]), attributes)
    return str(xarray.decode_cf(xarray.Dataset({"t": times})).t.values[1])


CASES = [("standard", 2000), ("standard", 1600), ("noleap", 2000), ("360_day", 2000)]
seen = [decoded(*case) for case in CASES]
print(seen)
sys.exit(seen != ["NaT", *[f"{year}-01-01 00:00:00" for _, year in CASES[1:]]])
PYTHON
