#!/usr/bin/env bash
# Versions: xarray 2026.9.0, h5netcdf 1.8.2, h5py 3.16.0.
# Expected: a soft link to nothing, which HDF5 allows in any group (its target may come later, or lie in a part that was
#   not copied), takes away no more than its own name: h5py lists it and reads everything beside it.
# Seen: xarray opens nothing of the file: KeyError, without the name of the link.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q xarray==2026.9.0 h5netcdf==1.8.2 h5py==3.16.0
cd "$folder"
venv/bin/python -W ignore - <<'PYTHON'
import sys
import h5py, numpy as np, xarray


def opened(with_link):
    name = f"{with_link}.nc"
    with h5py.File(name, "w") as file:
        x = file.create_dataset("x", data=np.arange(3))
        x.make_scale("x")
        file.create_dataset("v", data=np.arange(3.0)).dims[0].attach_scale(x)
        if with_link:
            file["later"] = h5py.SoftLink("/not/here/yet")
    with h5py.File(name) as file:
        beside = file["v"][:].tolist()
    try:
        with xarray.open_dataset(name, engine="h5netcdf") as dataset:
            return beside, sorted(dataset.variables), ""
    except Exception as error:
        return beside, type(error).__name__, "later" in str(error)


seen = [opened(False), opened(True)]
print(seen)
sys.exit(seen != [([0, 1, 2], ["v", "x"], ""), ([0, 1, 2], "KeyError", False)])
PYTHON
