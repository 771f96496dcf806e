#!/usr/bin/env bash
# Versions: virtualizarr 2.8.0, kerchunk 0.2.10, xarray 2026.9.0, zarr 3.4.2, h5py 3.16.0, numpy 2.5.5.
# Expected: references to the values of an HDF5 file read as these values. The only chunk of an array without axes has the
#   key `0` in Zarr v2, which such references are.
# Seen: the references that VirtualiZarr writes for kerchunk have that chunk of a scalar under `a/`. kerchunk's engine of
#   xarray reads NaN, and zarr-python the fill value, 0, both without a word. An array of one value is read right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q virtualizarr==2.8.0 kerchunk==0.2.10 xarray==2026.9.0 zarr==3.4.2 h5py==3.16.0 \
    numpy==2.5.5 obstore==0.12.1 dask==2026.8.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import json, pathlib, sys
import fsspec, h5py, virtualizarr, xarray, zarr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr.parsers import HDFParser
from zarr.storage import FsspecStore

with h5py.File("values.h5", "w") as file:
    file["scalar"], file["vector"] = 3.5, [3.5]
registry = ObjectStoreRegistry({"file://": LocalStore()})
url = pathlib.Path("values.h5").absolute().as_uri()
virtual = virtualizarr.open_virtual_dataset(url, parser=HDFParser(), registry=registry, loadable_variables=[])
virtual.vz.to_kerchunk("references.json", format="json")
references = json.loads(pathlib.Path("references.json").read_text())["refs"]
by_xarray = xarray.open_dataset("references.json", engine="kerchunk")
store = FsspecStore(fsspec.filesystem("reference", fo="references.json", asynchronous=True), path="")
by_zarr = zarr.open_group(store, mode="r", zarr_format=2)
seen = {
    "keys": sorted(key for key in references if "/." not in key and not key.startswith(".")),
    "xarray": [float(by_xarray["scalar"]), float(by_xarray["vector"][0])],
    "zarr-python": [float(by_zarr["scalar"][()]), float(by_zarr["vector"][0])],
}
print(seen)
expected = "{'keys': ['scalar/', 'vector/0'], 'xarray': [nan, 3.5], 'zarr-python': [0.0, 3.5]}"
sys.exit(str(seen) != expected)
PYTHON
