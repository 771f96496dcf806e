#!/usr/bin/env bash
# Versions: xarray 2026.9.0, netCDF4 1.7.5.1.post1, cftime 1.6.6.1, numpy 2.5.5.
# Expected: a file whose record dimension `time` has no records yet, which is valid NetCDF, opens with an empty time and
#   all other variables, in every calendar of the CF conventions (1.12, §4.4.1).
# Seen: so it is in the standard calendar; in `noleap` and `360_day` nothing of the file opens: a ValueError says that the
#   units cannot be decoded, which it decodes as soon as there is one record.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q xarray==2026.9.0 netCDF4==1.7.5.1.post1 cftime==1.6.6.1 numpy==2.5.5
cd "$folder"
venv/bin/python -W ignore - <<'PYTHON'
import sys
import netCDF4, xarray


def opened(calendar, records):
    name = f"{calendar}{records}.nc"
    with netCDF4.Dataset(name, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 2)
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.calendar = "days since 2000-01-01", calendar
        time[:records] = range(records)
        file.createVariable("x", "f8", ("x",))[:] = [1, 2]
    try:
        with xarray.open_dataset(name) as dataset:
            return dict(dataset.sizes)
    except Exception as error:
        return type(error).__name__


seen = [[opened(calendar, records) for records in (0, 1)] for calendar in ("standard", "noleap", "360_day")]
print(seen)
sys.exit(seen != [[{"time": 0, "x": 2}, {"time": 1, "x": 2}], *[["ValueError", {"time": 1, "x": 2}]] * 2])
PYTHON
