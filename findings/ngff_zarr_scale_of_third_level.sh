#!/usr/bin/env bash
# Versions: ngff-zarr 0.50.0, zarr 3.4.2, numpy 2.5.5, dask 2026.8.0.
# Expected: the `scale` of a level maps its cells to physical space (OME-Zarr 0.5, "multiscales"): a ramp of 1 per unit
#   rises by 5 per cell of a level whose scale is 5, as it does in what `to_multiscales` returns.
# Seen: with factors that do not divide each other (3, 5), `to_ngff_zarr` stores the third level reduced by 6, with a scale
#   of 5: what is in it lies elsewhere, and it ends short. `scale_strategy="exact"` stores what was made.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for python in ${PYTHON:-python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9]*/bin/python}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break # what is pinned wants 3.12
done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q ngff-zarr==0.50.0 zarr==3.4.2 numpy==2.5.5 dask==2026.8.0
cd "$folder"
venv/bin/python -W ignore - <<'PYTHON'
import sys
import ngff_zarr
import numpy as np
import zarr

ramp = np.broadcast_to(np.arange(300, dtype="f4"), (300, 300)).copy()
image = ngff_zarr.to_ngff_image(ramp, dims=["y", "x"], scale={"y": 1.0, "x": 1.0})
levels = ngff_zarr.to_multiscales(image, scale_factors=[3, 5], chunks=64)
found = {}
for strategy in ("pad", "exact"):
    ngff_zarr.to_ngff_zarr(f"{strategy}.zarr", levels, version="0.5", scale_strategy=strategy)
    group = zarr.open_group(f"{strategy}.zarr", mode="r")
    dataset = group.attrs["ome"]["multiscales"][0]["datasets"][2]
    row = group[dataset["path"]][0]
    step = round(float(np.diff(row[5:-5]).mean()), 2)
    found[strategy] = (len(row), dataset["coordinateTransformations"][0]["scale"][1], step)
print("cells, scale and step of the third level:", found, "made:", levels.images[2].data.shape)
sys.exit(found != {"pad": (50, 5.0, 6.0), "exact": (60, 5.0, 5.0)})
PYTHON
